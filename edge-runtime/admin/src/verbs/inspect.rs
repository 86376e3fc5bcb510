//! `edge-runtime inspect POD`: all that is known of a pod, as JSON.

use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use sampan_pod::record::PodRecord;

use crate::find::stored_pods;

pub(super) const VERB: Verb = Verb {
    name: "inspect",
    about: "Print the stored record of a pod (NAME, NAMESPACE/NAME or uid) as JSON",
    operands: Operands::One("POD"),
    flags: &[],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let wanted = given.operand()?;
    let pods = stored_pods(&given.paths()?)?;
    let matches = |record: &&PodRecord| {
        record.uid == wanted || record.name == wanted || format!("{}/{}", record.namespace, record.name) == wanted
    };
    let found: Vec<_> = pods.iter().filter(matches).collect();
    match found.as_slice() {
        [] => Err(CliError::Failed(format!("no pod {wanted} on this node"))),
        [one] => print(&serde_json::to_string_pretty(one)?),
        many => Err(CliError::Failed(format!("{} pods are called {wanted}: give NAMESPACE/NAME", many.len()))),
    }
}
