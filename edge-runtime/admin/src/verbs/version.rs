//! `edge-runtime version` with `-o`; without it the daemon's program answers by itself.

use edge_protocol::build;
use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::cli::{CliError, program};
use serde_json::Value;

use crate::output::{Form, JSON, OUTPUT};

pub(super) const VERB: Verb = Verb {
    name: "version",
    about: "Print version, commit and Kubernetes API level",
    operands: Operands::None,
    flags: &[OUTPUT, JSON],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let value: Value = serde_json::from_str(&build::json(program())).unwrap_or_default();
    Form::of(&given)?.print(&value, |_| build::line(program()), || vec![build::VERSION.to_owned()])
}
