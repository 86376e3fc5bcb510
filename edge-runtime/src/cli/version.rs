//! `edge-runtime version`; with `-o` it is `edge-admin`'s.

use edge_protocol::build;

use super::stdio::print;
use super::verb::{Operands, Verb};

pub(super) const VERB: Verb = Verb {
    name: "version",
    about: "Print version, commit and Kubernetes API level",
    operands: Operands::None,
    flags: &[],
    run: |_| print(&build::line("edge-runtime")),
};
