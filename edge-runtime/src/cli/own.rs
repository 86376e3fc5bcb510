//! `edge-runtime own`: gives all of a volume to a pod's group, as a helper of the daemon.

use std::process::ExitCode;

use super::CliError;
use super::verb::{Flag, Given, Operands, Verb};
use crate::volume::Owning;

pub(super) const VERB: Verb = Verb {
    name: "own",
    about: "",
    operands: Operands::One("FOLDER"),
    flags: &[Flag::value("group", "GID", ""), Flag::value("mark", "FILE", "")],
    run,
};

fn run(given: Given) -> Result<ExitCode, CliError> {
    let (group, mark) = (given.one("group")?, given.path("mark"));
    let (Some(group), Some(mark), Some(path)) = (group, mark, given.operands.first().map(Into::into)) else {
        return Err(CliError::Usage("own needs --group, --mark and a folder".into()));
    };
    Owning { path, group, mark }.run().map_err(CliError::failed)?;
    Ok(ExitCode::SUCCESS)
}
