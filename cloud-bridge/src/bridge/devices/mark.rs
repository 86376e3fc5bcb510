//! Marks the statuses of a silent node's devices as stale, and removes the mark after the node has reconnected.
//! `silence` decides when, `stale` what is written.
//!
//! An annotation on the Node says that there are such statuses; it is written first and removed last. So no bridge has
//! to read the statuses of healthy nodes, and another bridge completes the work of one that stops. Bridges do not undo
//! each other's work: a status is marked on the version that was read, and only right after the API has answered that
//! the node is still silent. Only the bridge to which the node is connected removes the mark, a while after the node
//! connected, and until no mark is left.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::silence::{Here, Step};
use super::stale::{self, OURS};
use crate::bridge::name::Name;
use crate::bridge::nodes::Nodes;
use crate::bridge::requests::{Patch, Requests, code, is_refusal};
use crate::bridge::shared::Shared;
use crate::bridge::slim::SlimNode;
use crate::bridge::told::kinds::DEVICES_API;
use crate::bridge::well_known::STALE_DEVICES;

/// Number of checks within the pause; then the longest interval of checks after failures.
const LOOK: u32 = 12;
const AGAIN: Duration = Duration::from_secs(60);
/// Maximum number of statuses of one page, and of nodes at the same time.
const PAGE: usize = 250;
const AT_ONCE: usize = 16;
/// Maximum number of writes of one status in one pass.
const STEPS: usize = 3;

/// Checks until the bridge ends.
pub(in crate::bridge) async fn run(shared: Weak<Shared>) {
    let mut pause = Duration::ZERO;
    loop {
        sleep(pause).await;
        let Some(shared) = shared.upgrade() else { return };
        let after = shared.settings.devices_stale_after;
        let steps = {
            let now = shared.devices.silent.begun.elapsed();
            let mut silence = shared.devices.silent.silence();
            if silence.is_empty() { HashMap::new() } else { silence.due(now, after, |node| here(&shared.nodes, node)) }
        };
        let done = steps.is_empty() || pass(&shared, &steps).await;
        pause = if done { after / LOOK } else { (pause * 2).clamp(after / LOOK, AGAIN) };
    }
}

fn here(nodes: &Nodes, node: &str) -> Here {
    match nodes.get(node).and_then(|node| node.link()) {
        Some(_) => Here::Connected,
        None if nodes.was_here_last(node) => Here::Last,
        None => Here::No,
    }
}

/// Whether all of it is done.
async fn pass(shared: &Arc<Shared>, steps: &HashMap<Box<str>, Step>) -> bool {
    let requests = Requests::new(shared.clients.own().clone());
    let mut found = match list(shared, &requests, steps).await {
        Ok(found) => found,
        // The cluster has no devices, or the bridge may not read them.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => HashMap::new(),
        Err(error) => {
            log::warn!("statuses of devices of silent nodes: {error}");
            return false;
        }
    };
    let each = steps.iter().map(|(node, step)| (node, *step, found.remove(node).unwrap_or_default()));
    let each: Vec<_> = each.map(|(node, step, statuses)| of_node(shared, &requests, node, step, statuses)).collect();
    stream::iter(each).buffer_unordered(AT_ONCE).fold(true, |all, done| async move { all && done }).await
}

/// Lists the statuses to write, by node: those of these nodes that are not yet in the wanted state.
async fn list(
    shared: &Shared,
    requests: &Requests,
    steps: &HashMap<Box<str>, Step>,
) -> kube::Result<HashMap<Box<str>, Vec<Value>>> {
    let mut found: HashMap<Box<str>, Vec<Value>> = HashMap::new();
    let watch = shared.devices.watch.get();
    let take = |object: Value| {
        let node = object["status"]["extensions"][OURS]["node"].as_str().unwrap_or_default();
        let Some((node, step)) = steps.get_key_value(node) else { return true };
        let bound = || Some(watch.as_ref()?.device(&name(&object)).0?.node);
        if stale::is_due(&object, node, *step, bound) {
            found.entry(node.clone()).or_default().push(trimmed(&object));
        }
        true
    };
    let _turn = shared.writes.acquire().await;
    requests.each(&format!("/apis/{DEVICES_API}/devicestatuses"), "", PAGE, take).await?;
    Ok(found)
}

fn name(object: &Value) -> Name {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// The object without values.
fn trimmed(object: &Value) -> Value {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    json!({
        "metadata": {"namespace": metadata["namespace"], "name": metadata["name"],
            "resourceVersion": metadata["resourceVersion"]},
        "status": {"state": status["state"], "extensions": {OURS: status["extensions"][OURS]}},
    })
}

/// Whether all of it is done.
async fn of_node(shared: &Shared, requests: &Requests, node: &str, step: Step, statuses: Vec<Value>) -> bool {
    let written = match (step, statuses.is_empty()) {
        (Step::Mark, true) => Ok(true),
        (Step::Mark, false) => match note(shared, node, "true".into()).await {
            Ok(()) => write_all(shared, requests, node, step, statuses).await,
            Err(error) => Err(error),
        },
        (Step::Clear, true) => note(shared, node, Value::Null).await.map(|()| true),
        // Checks again: another bridge may have written meanwhile.
        (Step::Clear, false) => write_all(shared, requests, node, step, statuses).await,
    };
    match written {
        Ok(all) => {
            if all && step == Step::Mark {
                shared.devices.silent.silence().marked(node);
            }
            true
        }
        Err(error) => {
            log::warn!("node {node}: statuses of its devices, which are to be called stale or not any more: {error}");
            false
        }
    }
}

/// Sets or removes the annotation of the Node.
async fn note(shared: &Shared, node: &str, value: Value) -> kube::Result<()> {
    let body = json!({"metadata": {"annotations": {STALE_DEVICES: value}}});
    let _turn = shared.writes.acquire().await;
    match shared.clients.requests_as(node).patch(&format!("/api/v1/nodes/{node}"), Patch::Merge, &body).await {
        // The node is deleted, and its devices have no node.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

/// False if the state of the node has changed since the step began.
async fn write_all(
    shared: &Shared,
    requests: &Requests,
    node: &str,
    step: Step,
    statuses: Vec<Value>,
) -> kube::Result<bool> {
    for status in statuses {
        if !write(shared, requests, node, step, status).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn write(shared: &Shared, requests: &Requests, node: &str, step: Step, mut status: Value) -> kube::Result<bool> {
    let (namespace, name) = name(&status);
    let path = format!("/apis/{DEVICES_API}/namespaces/{namespace}/devicestatuses/{name}");
    for _ in 0..STEPS {
        shared.devices.turns.write(node).await;
        // The semaphore is never closed: it lives as long as the bridge.
        let _turn = shared.writes.acquire().await;
        let Some(session) = still(shared, requests, node, step).await? else { return Ok(false) };
        let patch = match step {
            Step::Mark => stale::mark(&status, node, session, shared.settings.devices_unknown_when_silent),
            Step::Clear => stale::clear(&status, node),
        };
        let Some(patch) = patch else { return Ok(true) };
        let mut written = requests.patch(&format!("{path}/status"), Patch::Merge, &patch).await;
        let answered = |written: &kube::Result<_>| written.as_ref().err().and_then(code);
        if answered(&written) == Some(404) {
            // On this cluster statuses are not a subresource.
            written = requests.patch(&path, Patch::Merge, &patch).await;
        }
        match answered(&written) {
            Some(404) => return Ok(true),
            // Another client has written it meanwhile.
            Some(409) => match requests.get::<Value>(&path).await {
                Ok(found) => status = trimmed(&found),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(true),
                Err(error) => return Err(error),
            },
            _ => match written {
                // It would be refused again.
                Err(error) if is_refusal(&error) => {
                    log::warn!("node {node}: DeviceStatus {namespace}/{name} is not called stale: {error}");
                    return Ok(true);
                }
                written => return written.map(|_| true),
            },
        }
    }
    Ok(true)
}

/// Whether the node is still in the state that this step needs; then the fencing number of its newest connection.
async fn still(shared: &Shared, requests: &Requests, node: &str, step: Step) -> kube::Result<Option<u64>> {
    let connected = here(&shared.nodes, node) == Here::Connected;
    if step == Step::Clear {
        return Ok(connected.then_some(u64::MAX));
    }
    if connected {
        return Ok(None);
    }
    let found = match requests.get::<SlimNode>(&format!("/api/v1/nodes/{node}")).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        found => found?,
    };
    // A bridge that runs alone may write no number.
    Ok((found.ready() == "Unknown").then(|| found.session().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use futures::channel::mpsc::unbounded;

    use super::*;

    #[test]
    fn node_that_has_moved_is_the_other_bridges_to_mark_first() {
        let (nodes, epoch) = (Nodes::default(), SystemTime::UNIX_EPOCH);
        assert_eq!(here(&nodes, "a"), Here::No);
        let (node, _) = nodes.enter("a").unwrap();
        let session = node.attach(unbounded().0, epoch, 0, epoch).session;
        assert_eq!(here(&nodes, "a"), Here::Connected);
        node.detach(session, epoch);
        assert_eq!(here(&nodes, "a"), Here::Last);
        nodes.session_seen("a", session + 1);
        assert_eq!(here(&nodes, "a"), Here::No);
    }
}
