//! Deletes pods that no other component deletes (K8s pkg/controller/podgc): those of deleted or out-of-service nodes,
//! those that were deleted before they had a node, and terminated ones, when there are too many. Decisions only. An
//! offline or silent node is not deleted: its pods are left alone.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::key::ObjectKey;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use super::now::Now;
use super::plan::{Action, Check, Deletion, Plan, Write};
use super::pod::Pod;
use super::store::{Cached as _, key_of, uid};
use super::world::{Kind, Task, World};

/// A node that is missing may be about to be heard of (K8s `quarantineTime`).
const QUARANTINE: Duration = Duration::from_secs(40);
/// How often the pods that ended are counted, while some end (K8s `gcCheckPeriod`).
pub(crate) const CHECK: Duration = Duration::from_secs(20);
/// Taint set by an administrator: the node is off and does not come back by itself.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// State between two evaluations.
#[derive(Debug)]
pub(crate) struct PodGc {
    /// Maximum number of terminated pods to keep; 0 keeps all.
    pub(crate) terminated_max: usize,
    /// Since when nodes are missing of which there are pods.
    missing: BTreeMap<String, Duration>,
}

impl PodGc {
    pub(crate) fn new(terminated_max: usize) -> Self {
        Self { terminated_max, missing: BTreeMap::new() }
    }

    /// Starts the evaluation of a node: notes since when it is missing.
    pub(crate) fn look(&mut self, world: &World, node: &ObjectKey, now: Now) {
        if world.nodes.get(node).is_some() || world.pods.on_node(&node.name).next().is_none() {
            self.missing.remove(&node.name);
        } else {
            self.missing.entry(node.name.clone()).or_insert(now.passed);
        }
    }
}

/// The evaluation of all ended pods: the key of a pod without a name.
fn all_terminated() -> Task {
    (Kind::Pod, ObjectKey { namespace: String::new(), name: String::new() })
}

/// The evaluations that a change of a pod requests.
pub(crate) fn tasks_of_pod(world: &World, key: &ObjectKey) -> Vec<Task> {
    let Some(pod) = world.pods.get(key) else { return Vec::new() };
    let mut tasks = Vec::new();
    if pod.is_terminal() {
        tasks.push(all_terminated());
    }
    match pod.node() {
        Some(name) => {
            let node = node_key(name);
            let wants = |node: &super::node::Node| pod.is_deleting() && is_out_of_service(node);
            if world.nodes.get(&node).is_none_or(wants) {
                tasks.push((Kind::Node, node));
            }
        }
        None if pod.is_deleting() => tasks.push((Kind::Pod, key.clone())),
        None => {}
    }
    tasks
}

/// The next step for the pods of a node.
pub(crate) fn of_node(world: &World, gc: &PodGc, key: &ObjectKey, now: Now) -> Plan {
    let name = &key.name;
    if let Some(node) = world.nodes.get(key) {
        if !is_out_of_service(node) {
            return Plan::default();
        }
        let going: Vec<&Pod> = world.pods.on_node(name).filter(|pod| pod.is_deleting()).collect();
        return force_delete(&going, None, None);
    }
    let Some(since) = gc.missing.get(name) else { return Plan::default() };
    let left = QUARANTINE.saturating_sub(now.passed.saturating_sub(*since));
    if !left.is_zero() {
        return Plan::default().again(Some(left));
    }
    let pods: Vec<&Pod> = world.pods.on_node(name).collect();
    let gone = Check { kind: Kind::Node, key: key.clone(), uid: None };
    force_delete(&pods, Some(&gone), Some(now))
}

/// The next step for a pod without a node: once it is deleted, no node has to stop it.
pub(crate) fn of_pod(world: &World, key: &ObjectKey) -> Plan {
    let pod = world.pods.get(key).filter(|pod| pod.is_deleting() && pod.node().is_none());
    force_delete(&pod.into_iter().collect::<Vec<_>>(), None, None)
}

/// The next step for terminated pods: evicted ones go first, then the oldest.
pub(crate) fn of_terminated(world: &World, gc: &PodGc) -> Plan {
    if gc.terminated_max == 0 {
        return Plan::default();
    }
    let mut ended: Vec<&Pod> = world.pods.all().filter(|pod| pod.is_terminal()).collect();
    let surplus = ended.len().saturating_sub(gc.terminated_max);
    if surplus == 0 {
        return Plan::default();
    }
    ended.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!pod.is_evicted(), created, &pod.metadata.name)
    });
    ended.truncate(surplus);
    force_delete(&ended, None, None)
}

fn node_key(name: &str) -> ObjectKey {
    ObjectKey { namespace: String::new(), name: name.to_owned() }
}

fn is_out_of_service(node: &super::node::Node) -> bool {
    !node.is_ready() && node.taints().any(|taint| taint["key"] == OUT_OF_SERVICE)
}

/// Deletes pods without a grace period. A running pod is marked as failed first, so that its controller counts it.
/// `lost`: the node is gone, and the status says so. Other changes to the pod come first.
fn force_delete(pods: &[&Pod], check: Option<&Check>, lost: Option<Now>) -> Plan {
    let running: Vec<Action> = pods.iter().filter(|pod| !pod.is_terminal()).map(|pod| fail(pod, check, lost)).collect();
    if !running.is_empty() {
        return Plan::all_at_once(running);
    }
    // A pod that was deleted this way and still exists has a finalizer.
    let held = |meta: &ObjectMeta| meta.deletion_timestamp.is_some() && meta.deletion_grace_period_seconds == Some(0);
    let left = pods.iter().map(|pod| &pod.metadata).filter(|meta| !held(meta));
    let delete = |meta| Action { check: check.cloned(), ..Action::delete_by(Kind::Pod, meta, Deletion::Now) };
    Plan::all_at_once(left.map(delete).collect())
}

fn fail(pod: &Pod, check: Option<&Check>, lost: Option<Now>) -> Action {
    let meta = &pod.metadata;
    let status = match lost {
        Some(now) => json!({"phase": "Failed", "conditions": [disruption(pod, now)]}),
        None => json!({"phase": "Failed"}),
    };
    let patch = json!({
        "metadata": {"uid": uid(meta), "resourceVersion": meta.resource_version}, "status": status,
    });
    let write = Write::Strategic { subresource: Some("status"), patch };
    Action { kind: Kind::Pod, key: key_of(meta), write, check: check.cloned(), done: None, failed: None }
}

fn disruption(pod: &Pod, now: Now) -> PodCondition {
    let before = pod.status.conditions.iter().find(|one| one.type_ == DISRUPTION_TARGET && one.status == "True");
    let since = before.and_then(|before| before.last_transition_time.clone()).unwrap_or(Time(now.clock));
    PodCondition {
        type_: DISRUPTION_TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some("DeletionByPodGC".to_owned()),
        message: Some("PodGC: node no longer exists".to_owned()),
        last_transition_time: Some(since),
        ..PodCondition::default()
    }
}
