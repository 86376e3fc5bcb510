//! Which pods go first when there are too many (K8s `ActivePodsWithRanks`).

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;

use crate::workloads::annotations::DELETION_COST;
use crate::workloads::index::controller_of;
use crate::workloads::now::Now;
use crate::workloads::pod::Pod;
use crate::workloads::store::uid;
use crate::workloads::world::World;

/// The active pods of all ReplicaSets with the same controller: pods on nodes with many of them are deleted first.
pub(super) fn related<'a>(world: &'a World, set: &ReplicaSet) -> Vec<&'a Pod> {
    let own = uid(&set.metadata).to_owned();
    let siblings = controller_of(&set.metadata).into_iter().flat_map(|owner| world.replica_sets.owned_by(&owner.uid));
    let mut uids: Vec<String> = siblings.map(|sibling| uid(&sibling.metadata).to_owned()).collect();
    if !uids.contains(&own) {
        uids.push(own);
    }
    uids.iter().flat_map(|uid| world.pods.owned_by(uid)).filter(|pod| pod.is_active()).collect()
}

/// The `count` pods that go first.
pub(in crate::workloads) fn choose<'a>(pods: &[&'a Pod], related: &[&Pod], count: usize, now: Now) -> Vec<&'a Pod> {
    let mut beside: BTreeMap<&str, usize> = BTreeMap::new();
    for node in related.iter().filter_map(|pod| pod.spec.node_name.as_deref()) {
        *beside.entry(node).or_default() += 1;
    }
    let rank = |pod: &Pod| pod.spec.node_name.as_deref().and_then(|node| beside.get(node)).copied().unwrap_or_default();
    let mut ordered = pods.to_vec();
    if count < ordered.len() {
        ordered.sort_by(|a, b| order(a, b, &rank, now));
    }
    ordered.truncate(count);
    ordered
}

fn order(a: &Pod, b: &Pod, rank: &dyn Fn(&Pod) -> usize, now: Now) -> Ordering {
    let first = |pod: &Pod| {
        (pod.spec.node_name.is_some(), phase(pod.phase()), pod.is_ready(), deletion_cost(pod), Reverse(rank(pod)))
    };
    let created = |pod: &Pod| now.since(pod.metadata.creation_timestamp.as_ref().map(|time| time.0), None);
    let ready = |pod: &Pod| pod.ready_for(now);
    let by_age =
        |age: &dyn Fn(&Pod) -> Option<Duration>| younger(age(a), age(b)).then_with(|| tie(a, b, age(a) != age(b)));
    first(a)
        .cmp(&first(b))
        .then_with(|| by_age(&ready))
        .then_with(|| b.restarts().cmp(&a.restarts()))
        .then_with(|| by_age(&created))
}

/// Pods whose times are of one magnitude go in an order that favours none.
fn tie(a: &Pod, b: &Pod, differ: bool) -> Ordering {
    if differ { uid(&a.metadata).cmp(uid(&b.metadata)) } else { Ordering::Equal }
}

/// The younger one first; times are compared by their magnitude, so that not always the newest goes (K8s
/// `logarithmicRankDiff`).
fn younger(a: Option<Duration>, b: Option<Duration>) -> Ordering {
    let magnitude = |age: Option<Duration>| age.and_then(|age| age.as_nanos().checked_ilog2());
    magnitude(a).cmp(&magnitude(b))
}

fn phase(phase: &str) -> u8 {
    match phase {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(DELETION_COST));
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
