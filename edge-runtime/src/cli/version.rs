//! `edge-runtime version`.

use edge_protocol::build;

use super::verb::{Given, JSON, OUTPUT, Operands, Verb};
use super::{CliError, print, program};

/// The daemon's verb, which leaves flags to `edge-admin`.
pub(super) const VERB: Verb = Verb {
    name: "version",
    about: "Print version, commit and Kubernetes API level",
    operands: Operands::None,
    flags: &[OUTPUT, JSON],
    run: |_| print(&build::line("edge-runtime")),
};

/// The same verb of `edge-admin`, which prints JSON, too.
pub(super) const WITH_JSON: Verb = Verb { run, ..VERB };

fn run(given: Given) -> Result<(), CliError> {
    let text = if given.wants_json()? { build::json(program()) } else { build::line(program()) };
    print(&text)
}
