//! `edge-runtime inspect POD`: all that is known of a pod, as JSON.

use std::process::ExitCode;

use super::CliError;
use super::verb::{Given, Operands, Verb};

pub(super) const VERB: Verb = Verb {
    name: "inspect",
    about: "all that is known of a pod (NAME, NAMESPACE/NAME or its uid), as JSON",
    operands: Operands::One("POD"),
    flags: &[],
    run,
};

fn run(given: Given) -> Result<ExitCode, CliError> {
    let wanted = given.operand()?;
    let pods = super::ps::stored_pods(&given.paths()?)?;
    let matches = |record: &&crate::pod::record::PodRecord| {
        record.uid == wanted || record.name == wanted || format!("{}/{}", record.namespace, record.name) == wanted
    };
    let found: Vec<_> = pods.iter().filter(matches).collect();
    match found.as_slice() {
        [] => Err(CliError::Failed(format!("no pod {wanted} on this node"))),
        [one] => super::version::print(&serde_json::to_string_pretty(one).map_err(CliError::failed)?),
        many => Err(CliError::Failed(format!("{} pods are called {wanted}: give NAMESPACE/NAME", many.len()))),
    }
}
