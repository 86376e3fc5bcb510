//! `edge-admin pods`: lists the pods and whether they are ready, for the judge of a trial. Other versions read its
//! output, so it may only be extended.

use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use serde_json::{Value, json};

use crate::pods;

pub(super) const VERB: Verb = Verb::helper("pods", Operands::None, &[], run);

fn run(given: Given) -> Result<(), CliError> {
    let pods = pods::all(&given.paths()?)?;
    let pods = pods.into_iter().map(|(uid, ready)| json!({"uid": uid, "ready": ready})).collect();
    print(&Value::Array(pods).to_string())
}
