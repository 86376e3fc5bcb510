//! `edge-runtime as-container`: becomes a program with the `oom_score_adj` of a container and no signal blocked. Started by `run`, not by people.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use super::CliError;
use super::verb::{Given, Operands, Verb};
use crate::sys::{oom, signal};

/// `as-container BUNDLE PROGRAM [ARGUMENT]...`
pub(super) const VERB: Verb = Verb { name: "as-container", about: "", operands: Operands::Raw, flags: &[], run };

fn run(given: Given) -> Result<ExitCode, CliError> {
    let mut words = given.operands.into_iter();
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
