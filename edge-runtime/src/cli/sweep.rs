//! `edge-runtime sweep`: deletes what pods left, as a helper of the daemon. Ends when nothing is left.

use std::process::ExitCode;

use super::CliError;
use super::verb::{Given, Operands, Verb};
use crate::sys::trash;

pub(super) const VERB: Verb = Verb { name: "sweep", about: "", operands: Operands::None, flags: &[], run };

fn run(given: Given) -> Result<ExitCode, CliError> {
    trash::sweep(&given.paths()?.trash()).map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
