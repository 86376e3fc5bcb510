//! Writes statuses of rules, each at a limited rate and few at a time, in the bridge's own name.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apimachinery::meta::rfc3339;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::index::Index;
use super::tally::{Counts, Tally};
use crate::bridge::followed::known::{Known, lock};
use crate::bridge::name::Name;
use crate::bridge::requests::{Patch, Requests};
use crate::bridge::told::kinds::RULES_API;

/// Minimum interval between two writes of one status.
const EACH: Duration = Duration::from_secs(10);
/// Minimum interval between two writes of this bridge.
const BETWEEN: Duration = Duration::from_millis(50);

/// Writes until aborted.
pub(super) async fn write(client: Client, known: Arc<Mutex<Known<Index>>>, tally: Arc<Mutex<Tally>>) {
    let requests = Requests::new(client);
    loop {
        tokio::time::sleep(EACH).await;
        let due = {
            let known = lock(&known);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            let problems = known.index.problems().iter();
            tally.problems(&now(), problems.map(|problem| (&problem.name, &*problem.uid, &*problem.why)));
            tally.take()
        };
        for (name, counts) in due {
            if let Err(error) = one(&requests, &name, &counts).await {
                log::warn!("the status of rule {}/{} was not written: {error}", name.0, name.1);
                tally.lock().unwrap_or_else(PoisonError::into_inner).put_back(name, counts);
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }
}

/// Present time as text.
pub(super) fn now() -> String {
    rfc3339(Timestamp::now())
}

/// Writes one status. After an error it can be retried.
async fn one(requests: &Requests, (namespace, name): &Name, counts: &Counts) -> kube::Result<()> {
    // The names come from the API, so they are valid here.
    let path = format!("/apis/{RULES_API}/namespaces/{namespace}/rules/{name}");
    let rule: Value = match requests.get(&path).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        found => found?,
    };
    let Some(status) = counts.status(&rule) else { return Ok(()) };
    // KubeEdge's own definition has no subresource: then the object itself is patched.
    match requests.patch(&format!("{path}/status"), Patch::Merge, &status).await {
        Err(kube::Error::Api(error)) if error.code == 404 => {
            requests.patch(&path, Patch::Merge, &status).await.map(drop)
        }
        written => written.map(drop),
    }
}
