//! `edge-runtime as-container`: becomes a program with the `oom_score_adj` of a container and no signal blocked. Started by `run`, not by people.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use super::CliError;
use crate::sys::{oom, signal};

/// `as-container BUNDLE PROGRAM [ARGUMENT]...`
pub(super) fn run(mut parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let mut words = parser.raw_args()?;
    let (Some(bundle), Some(program)) = (words.next().map(PathBuf::from), words.next()) else {
        return Err(CliError::Usage("as-container: BUNDLE and PROGRAM are missing".into()));
    };
    if let Err(error) = oom::become_as_container(&bundle) {
        // Where the kernel does not let it, containers have no value below this either.
        log::debug!("{}: {error}", bundle.display());
        oom::give_up_protection();
    }
    signal::unmask_self().map_err(CliError::failed)?;
    let error = Command::new(&program).args(words).exec();
    Err(CliError::Failed(format!("{}: {error}", PathBuf::from(program).display())))
}
