//! `edge-runtime sweep`: deletes what pods left, as a helper of the daemon. Ends when nothing is left.

use std::process::ExitCode;

use super::{CliError, paths};
use crate::sys::trash;

pub(super) fn run(mut parser: lexopt::Parser) -> Result<ExitCode, CliError> {
    let mut root = None;
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("root") => root = Some(parser.value()?.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    trash::sweep(&paths(root)?.trash()).map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
