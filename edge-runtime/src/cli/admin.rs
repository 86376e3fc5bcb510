//! The program `edge-admin`, which is installed beside this one. It has the verbs, flags and help for people, so the daemon's
//! binary does not.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::CliError;

/// Its name.
pub(super) const PROGRAM: &str = "edge-admin";

/// Becomes that program; comes back only where it cannot.
pub(super) fn run(args: &[OsString]) -> CliError {
    let own = std::env::current_exe().unwrap_or_default();
    let program = own.with_file_name(PROGRAM);
    // Errors begin with what was typed.
    let error = Command::new(&program).arg0("edge-runtime").args(args).exec();
    CliError::Failed(format!("{}: {error}; it comes with the package of edge-runtime", program.display()))
}
