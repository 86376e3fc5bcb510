//! `edge-runtime version`.

use std::io::Write;
use std::process::ExitCode;

use super::CliError;

/// Version of this build.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) fn run() -> Result<ExitCode, CliError> {
    print(&format!("edge-runtime {VERSION} (link protocol {})", edge_protocol::message::PROTOCOL))
}

pub(super) fn print(text: &str) -> Result<ExitCode, CliError> {
    writeln!(std::io::stdout(), "{text}").map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
