//! `edge-runtime completion`: prints the completion script of a shell.

use edge_runtime::cli::verb::{Given, Operands, Shown, Verb};
use edge_runtime::cli::{CliError, print};

use crate::completion::script;
use crate::groups::GROUPS;

pub(super) const VERB: Verb = Verb {
    name: "completion",
    about: "Print the completion script of a shell",
    operands: Operands::One("bash|zsh|fish"),
    flags: &[],
    run,
};

/// Verbs in the order of `--help`, without those that only services call.
pub(crate) fn shown() -> Vec<Shown> {
    GROUPS.iter().flat_map(|(_, names)| names.iter()).filter_map(|name| super::find(name)).collect()
}

fn run(given: Given) -> Result<(), CliError> {
    let shell = given.operand()?;
    let script = script(&shell, &shown())
        .ok_or_else(|| CliError::Usage(format!("completion knows bash, zsh and fish, not {shell:?}")))?;
    print(script.trim_end())
}
