//! The `edge-launcher` program, installed as `edge-runtime`: arguments in, another program out. What it decides is in the library.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use edge_protocol::build;
use sampan_launcher::start;
use sampan_launcher::trial;
use sampan_launcher::versions::Versions;
use sampan_sys::words::verb_first;

/// Verb that prints which build the launcher is: `version` is answered by the programs that it starts.
const OWN_VERSION: &str = "launcher-version";

fn main() -> ExitCode {
    let args = verb_first(std::env::args_os().skip(1).collect());
    let versions = Versions::of_this_program(&root(&args));
    let launcher = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let done = match args.first().and_then(|verb| verb.to_str()) {
        Some("run") if start::starts_daemon(&args) => Err(start::daemon(&versions, &launcher, &args, &say)),
        Some(trial::VERB) if args.iter().any(|word| word == trial::BEGIN) => trial::begin(&launcher, versions.root()),
        Some(trial::VERB) => trial::watch(&versions),
        // For the package: what it brings is in force again, whatever came in between.
        Some("use-packaged") => start::use_packaged(&versions),
        Some(OWN_VERSION) => own_version(&args[1..]),
        _ => Err(start::other(&versions, &args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn own_version(flags: &[OsString]) -> io::Result<()> {
    match build::answer("edge-launcher", flags) {
        Some(text) => writeln!(io::stdout(), "{text}"),
        None => Err(io::Error::other(format!("{OWN_VERSION}: the only flag is -o json"))),
    }
}

/// `--root`, as all programs of the node take it.
fn root(args: &[OsString]) -> PathBuf {
    let given = args.iter().enumerate().find_map(|(at, word)| match word.to_str()? {
        "--root" => args.get(at + 1).map(PathBuf::from),
        // What follows is another program's.
        "--" => Some(PathBuf::from("/")),
        word => word.strip_prefix("--root=").map(PathBuf::from),
    });
    let root = given.unwrap_or_else(|| PathBuf::from("/"));
    std::path::absolute(&root).unwrap_or_else(|_| Path::new("/").to_path_buf())
}

fn say(what: &str) {
    // Nothing is left to do when even stderr is gone.
    let _ = writeln!(io::stderr(), "edge-runtime: {what}");
}
