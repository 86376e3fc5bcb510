//! `edge-runtime version`.

use std::io::Write;
use std::process::ExitCode;

use super::CliError;
use super::verb::{Given, Operands, Verb};

/// Version of this build.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) const VERB: Verb =
    Verb { name: "version", about: "which build this is", operands: Operands::None, flags: &[], run };

fn run(_: Given) -> Result<ExitCode, CliError> {
    print(&format!("edge-runtime {VERSION} (link protocol {})", edge_protocol::message::PROTOCOL))
}

pub(super) fn print(text: &str) -> Result<ExitCode, CliError> {
    writeln!(std::io::stdout(), "{text}").map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
