//! `edge-runtime confirm`: confirms a job that waits for a user on the node.

use edge_protocol::message::ORDER;
use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::store::{Store, StoreError};

use crate::find;
use crate::order::kept::Kept;

pub(super) const VERB: Verb = Verb {
    name: "confirm",
    about: "Approve a job that waits for confirmation",
    operands: Operands::Words("[JOB]"),
    flags: &[],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    if given.operands.len() > 1 {
        return Err(CliError::Usage("confirm takes one JOB".to_owned()));
    }
    let paths = given.paths()?;
    let waiting = waiting(Kept::all(&paths)?, &find::store(&paths)?)?;
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

/// Returns the orders that wait for a confirmation. The file of an order outlives its job, the object in the store does not.
fn waiting(kept: Vec<Kept>, store: &Store) -> Result<Vec<Kept>, StoreError> {
    let mut waiting = Vec::new();
    for kept in kept.into_iter().filter(|kept| kept.status.waits_for_confirmation()) {
        if store.object(ORDER, "", &kept.job.uid)?.is_some() {
            waiting.push(kept);
        }
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::{ActionStep, Job, Object, ObjectDigest, ObjectKey, WAITING_CONFIRMATION};
    use edge_runtime::paths::Paths;
    use serde_json::json;

    use super::*;

    #[test]
    fn second_job_is_not_ignored() {
        let root = tempfile::tempdir().unwrap();
        let words = ["a", "b", "--root", root.path().to_str().unwrap()];
        assert!(matches!(run(VERB.parse(lexopt::Parser::from_args(words)).unwrap()), Err(CliError::Usage(_))));
    }

    #[test]
    fn deleted_job_waits_for_no_confirmation() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        let mut store = Store::in_memory().unwrap();
        for (uid, action, held) in
            [("waits", WAITING_CONFIRMATION, true), ("works", "Check", true), ("deleted", WAITING_CONFIRMATION, false)]
        {
            let job = Job { kind: "NodeUpgradeJob".into(), name: uid.into(), uid: uid.into() };
            let mut kept = Kept::load(&paths, &job);
            kept.status.action_flow = vec![ActionStep { action: action.into(), ..ActionStep::default() }];
            kept.save(&paths).unwrap();
            if held {
                let key = ObjectKey { kind: ORDER.into(), namespace: String::new(), name: uid.into() };
                let digest = ObjectDigest { key, uid: uid.into(), digest: "1".into() };
                let object = Object { digest, body: json!({"job": uid}) };
                store.write(|writer| writer.put_object(&object)).unwrap();
            }
        }
        let waiting = waiting(Kept::all(&paths).unwrap(), &store).unwrap();
        assert_eq!(waiting.iter().map(|kept| &*kept.job.name).collect::<Vec<_>>(), ["waits"]);
    }
}
