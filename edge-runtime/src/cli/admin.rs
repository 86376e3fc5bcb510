//! Verbs of the program `edge-admin`, which is installed beside this one: the daemon's binary has no code that only
//! people need.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::CliError;

/// Its name.
pub(super) const PROGRAM: &str = "edge-admin";

/// Name of each and what it is for; a test of that program holds its own against them.
pub const VERBS: &[(&str, &str)] = &[
    ("join", "become a node of a cluster with a single-use token"),
    ("status", "this node and its link, when it was last seen, epoch, queue, round trip"),
    ("ps", "pods and containers of this node"),
    ("logs", "what a container printed"),
    ("exec", "a command in a running container; ends with its exit code"),
    ("inspect", "all that is known of a pod (NAME, NAMESPACE/NAME or its uid), as JSON"),
    ("devices", "devices behind this node and their values"),
    ("images", "images on this node"),
    ("doctor", "what is wrong here, and what cures it"),
    ("top", "what the node, its pods and their containers use, again and again"),
    ("events", "what has happened here"),
    ("page", "show this node in a browser"),
    ("completion", "what makes a shell complete this command"),
    ("upgrade", "run another version of these programs, on trial"),
    ("confirm", "say yes to a job that waits for it"),
    ("first-boot", "join as a file on the boot partition says"),
];

/// Becomes that program; comes back only where it cannot.
pub(super) fn run(args: &[OsString]) -> CliError {
    let own = std::env::current_exe().unwrap_or_default();
    let program = own.with_file_name(PROGRAM);
    // Errors begin with what was typed.
    let error = Command::new(&program).arg0("edge-runtime").args(args).exec();
    CliError::Failed(format!("{}: {error}; it comes with the package of edge-runtime", program.display()))
}
