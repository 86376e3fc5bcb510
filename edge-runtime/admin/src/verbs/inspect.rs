//! `edge-runtime inspect POD`: the stored record of a pod.

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Given, NAMESPACE, Operands, Verb};

use crate::find;
use crate::output::{Form, JSON, OUTPUT};

pub(super) const VERB: Verb = Verb {
    name: "inspect",
    about: "Print the stored record of a pod (NAME, NAMESPACE/NAME or uid) as JSON",
    operands: Operands::One("POD"),
    flags: &[NAMESPACE, OUTPUT, JSON],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let pod = find::pod(&given, &given.paths()?)?;
    let form = match Form::of(&given)? {
        Form::Table | Form::Wide => Form::Json,
        other => other,
    };
    form.print(&pod, |_| String::new(), || vec![format!("{}/{}", pod.namespace, pod.name)])
}
