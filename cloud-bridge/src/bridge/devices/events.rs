//! Creates events about problems of Devices, in the name of their nodes. `problems` finds them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use sampan_json::SetField;
use sampan_log::printable::printable;

use super::index::Index;
use super::problems::{Told, problems};
use crate::bridge::clients::Clients;
use crate::bridge::followed::known::{Known, lock};
use crate::bridge::reports::refusal_event;
use crate::bridge::told::kinds::Kind;

/// Interval of checks.
const LOOK: Duration = Duration::from_secs(5);

/// Whether a node takes Devices; `None` if it is not connected here.
pub(in crate::bridge) type Takes = dyn Fn(&str) -> Option<bool> + Send + Sync;

/// Checks until aborted.
pub(super) async fn tell(clients: Clients, takes: Arc<Takes>, known: Arc<Mutex<Known<Index>>>) {
    let mut told = Told::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let due = {
            let known = lock(&known);
            let present = problems(&known.index, |node| takes(node));
            told.due(&known.index, present)
        };
        for problem in due {
            let (namespace, name) = problem.name;
            let key = Kind::Device.key(namespace, name);
            let mut event = refusal_event(&problem.node, &key, &problem.uid, "", Timestamp::now());
            event.set("reason", problem.reason.into());
            event.set("message", problem.message.as_str().into());
            let what = printable(format_args!("{}/{}", key.namespace, key.name)).to_string();
            log::warn!("node {}: Device {what}: {}", problem.node, printable(&problem.message));
            let list = format!("/api/v1/namespaces/{}/events", key.namespace);
            // The names come from the API, so they are valid here.
            if let Err(error) = clients.requests_as(&problem.node).create(&list, &event).await {
                log::warn!("an event about Device {what} was lost: {error}");
            }
        }
    }
}
