//! `edge-runtime version`.

use super::verb::{Given, Operands, Verb};
use super::{CliError, print};

/// Version of this build.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) const VERB: Verb =
    Verb { name: "version", about: "Print the version", operands: Operands::None, flags: &[], run };

fn run(_: Given) -> Result<(), CliError> {
    print(&format!("edge-runtime {VERSION} (link protocol {})", edge_protocol::message::PROTOCOL))
}
