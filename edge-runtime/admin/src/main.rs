//! The `edge-admin` program: what a person runs on a node, and what no daemon needs. `edge-runtime VERB` becomes it for these
//! verbs.

mod completion;
mod doctor;
mod events;
mod join;
mod man;
mod order;
mod pods;
mod program;
mod top;
mod upgrade;
mod verbs;

use std::io::Write;
use std::process::ExitCode;

use edge_runtime::cli::{CliError, dispatch_among};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match dispatch_among(verbs::VERBS, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliError::Exit(code)) => code.into(),
        Err(CliError::Usage(why)) => failed(&why, 2),
        Err(CliError::Failed(why)) => failed(&why, 1),
    }
}

fn failed(why: &str, code: u8) -> ExitCode {
    // Nothing is left to do when even stderr is gone.
    let _ = writeln!(std::io::stderr(), "edge-runtime: {why}");
    code.into()
}
