//! The program `edge-admin`, which is installed beside this one. It has the verbs, flags and help for people, so the daemon's
//! binary does not.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::error::{ADMIN, CliError};
use crate::paths::Paths;

/// Becomes that program; comes back only where it cannot.
pub(super) fn run(args: &[OsString]) -> CliError {
    let mut command = command(args);
    let error = command.exec();
    let program = command.get_program().display();
    CliError::Failed(format!("{program}: {error}; it comes with the package of edge-runtime"))
}

fn command(args: &[OsString]) -> Command {
    let own = std::env::current_exe().unwrap_or_default();
    let mut command = Command::new(own.with_file_name(ADMIN));
    // Errors begin with what was typed.
    command.arg0("edge-runtime").args(args);
    command
}

/// That program beside this one: it shows how far a pull or import is, until this is dropped.
pub(super) struct Progress(Option<Child>);

impl Progress {
    /// Where it cannot run there is only the result.
    pub(super) fn show(paths: &Paths, what: &OsStr) -> Self {
        let mut command = command(&["progress".into(), "--root".into(), paths.root().into(), "--".into(), what.into()]);
        // It ends with its input, also if this process is killed.
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().ok())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Closes its input first.
        let _ = self.0.as_mut().map(Child::wait);
    }
}
