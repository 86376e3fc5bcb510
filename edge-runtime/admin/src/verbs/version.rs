//! `edge-runtime version` with `-o`; without it the daemon's program answers by itself.

use edge_protocol::message::PROTOCOL;
use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::node_status::node::kubelet_version;
use serde_json::json;

use crate::output::{Form, JSON, OUTPUT};

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) const VERB: Verb =
    Verb { name: "version", about: "Print the version", operands: Operands::None, flags: &[OUTPUT, JSON], run };

fn run(given: Given) -> Result<(), CliError> {
    let value = json!({"version": VERSION, "linkProtocol": PROTOCOL, "kubeletVersion": kubelet_version()});
    // The second word is read by programs.
    let text = |wide: bool| {
        let more = if wide { format!(", kubelet {}", kubelet_version()) } else { String::new() };
        format!("edge-runtime {VERSION} (link protocol {PROTOCOL}{more})")
    };
    Form::of(&given)?.print(&value, text, || vec![VERSION.to_owned()])
}
