//! `edge-runtime confirm`: confirms a job that waits for a user on the node.

use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};

use crate::order::kept::Kept;

pub(super) const VERB: Verb = Verb {
    name: "confirm",
    about: "Approve a job that waits for confirmation",
    operands: Operands::Words("[JOB]"),
    flags: &[],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    let waiting: Vec<Kept> =
        Kept::all(&paths)?.into_iter().filter(|kept| kept.status.waits_for_confirmation()).collect();
    let wanted = given.operands.first().map(|name| name.to_string_lossy().into_owned());
    let is_it = |kept: &&Kept| wanted.as_ref().is_none_or(|name| *name == kept.job.name || *name == kept.job.uid);
    let found: Vec<&Kept> = waiting.iter().filter(is_it).collect();
    let names = |list: &[&Kept]| list.iter().map(|kept| kept.job.name.as_str()).collect::<Vec<_>>().join(", ");
    match found.as_slice() {
        [] => Err(CliError::Failed("no such job waits to be confirmed".to_owned())),
        [job] => {
            job.confirm(&paths)?;
            print(&format!("{} {} may go on", job.job.kind, job.job.name))
        }
        several => Err(CliError::Usage(format!("which job? one of: {}", names(several)))),
    }
}
