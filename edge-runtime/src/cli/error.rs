//! How a verb ends: its error, what is said of it, and the exit code.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The program beside this one that has the verbs for people.
pub(super) const ADMIN: &str = "edge-admin";

/// Why a verb could not do its job. No [`std::error::Error`], so that any of those can become one.
#[derive(Debug)]
pub enum CliError {
    /// It was called wrongly.
    Usage(String),
    Failed(String),
    /// What there is to say has been said: this is how the process ends.
    Exit(u8),
}

impl<E: std::error::Error> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// How the process ends, for either program of the node; a failure is said on standard error.
pub fn exit_code(done: Result<(), CliError>) -> ExitCode {
    let (why, code) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CliError::Exit(code)) => return code.into(),
        Err(CliError::Usage(why)) => (why, 2),
        Err(CliError::Failed(why)) => (with_hint(why, nix::unistd::geteuid().is_root()), 1),
    };
    // Nothing is left to do when even stderr is gone.
    let _ = writeln!(std::io::stderr(), "{}: {why}", program());
    ExitCode::from(code)
}

/// What this program was called as: `edge-runtime` also when it became `edge-admin` for a verb.
pub fn program() -> &'static str {
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name().is_some_and(|name| name == ADMIN) { ADMIN } else { "edge-runtime" }
}

/// Adds what to do to an error about a file or process that only root may touch: nearly all of a node are.
fn with_hint(why: String, is_root: bool) -> String {
    let is_denied = ["Permission denied", "Operation not permitted"].iter().any(|words| why.contains(words));
    if is_denied && !is_root { why + "; this command needs root: put sudo before it" } else { why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_without_root_says_so() {
        let denied = std::io::Error::from_raw_os_error(nix::libc::EACCES).to_string();
        assert!(with_hint(denied.clone(), false).contains("needs root: put sudo"), "{denied}");
        assert_eq!(with_hint(denied.clone(), true), denied);
        let forbidden = nix::errno::Errno::EPERM.to_string();
        assert!(with_hint(forbidden.clone(), false).contains("needs root"), "{forbidden}");
        assert_eq!(with_hint("no such pod".to_owned(), false), "no such pod");
    }
}
