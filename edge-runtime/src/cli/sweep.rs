//! `edge-runtime sweep`: deletes what pods left, as a helper of the daemon. Ends when nothing is left.

use std::process::ExitCode;

use super::{CliError, lone_root, paths};
use crate::sys::trash;

pub(super) fn run(parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    trash::sweep(&paths(lone_root(parser)?)?.trash()).map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
