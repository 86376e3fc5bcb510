//! The `edge-admin` program: what a person runs on a node, and what no daemon needs. `edge-runtime VERB` becomes it for these
//! verbs.

mod columns;
mod completion;
mod doctor;
mod events;
mod find;
mod join;
mod man;
mod order;
mod page;
mod pods;
mod program;
mod top;
mod upgrade;
mod verbs;

use std::process::ExitCode;

use edge_runtime::cli::{dispatch_among, exit_code};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    exit_code(dispatch_among(verbs::VERBS, &args))
}
