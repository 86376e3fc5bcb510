//! Which pods go first when there are too many (K8s `ActivePodsWithRanks`).

use std::cmp::Reverse;
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
        ordered.sort_by_cached_key(|pod| key(pod, rank(pod), now));
    }
    ordered.truncate(count);
    ordered
}

/// What sets the pod first that goes first. Times are compared by their magnitude, so that not always the newest goes (K8s
/// `logarithmicRankDiff`), and pods that are equal but for that go by uid, which favours none.
///
/// A key and not the comparison of Kubernetes: that one lets the uid decide between times of one magnitude, but the number of
/// restarts between equal times, so that of three pods each may come before another.
fn key(pod: &Pod, rank: usize, now: Now) -> impl Ord + use<> {
    let created = now.since(pod.metadata.creation_timestamp.as_ref().map(|time| time.0), None);
    (
        (pod.spec.node_name.is_some(), phase(pod.phase()), pod.is_ready(), deletion_cost(pod), Reverse(rank)),
        (magnitude(pod.ready_for(now)), Reverse(pod.restarts()), magnitude(created)),
        uid(&pod.metadata).to_owned(),
    )
}

/// The younger, the less.
fn magnitude(age: Option<Duration>) -> Option<u32> {
    age.and_then(|age| age.as_nanos().checked_ilog2())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Ready for these seconds.
    fn pod(uid: &str, seconds: i64, restarts: i32, now: Now) -> Pod {
        let since = jiff::Timestamp::from_second(now.clock.as_second() - seconds).unwrap();
        serde_json::from_value(json!({
            "metadata": {"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
                "containerStatuses": [{"name": "a", "restartCount": restarts}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn pods_are_chosen_alike_in_any_order() {
        let now = Now { clock: "2026-01-02T00:00:00Z".parse().unwrap(), ..Now::default() };
        // The first comes before the second by its restarts, the second before the third and that before the first by uid.
        let [a, b, c] = [pod("3", 3600, 3, now), pod("1", 3600, 0, now), pod("2", 3700, 0, now)];
        let orders = [[&a, &b, &c], [&a, &c, &b], [&b, &a, &c], [&b, &c, &a], [&c, &a, &b], [&c, &b, &a]];
        for order in orders {
            let chosen = choose(&order, &[], 2, now).into_iter().map(|pod| uid(&pod.metadata)).collect::<Vec<_>>();
            assert_eq!(chosen, ["3", "1"]);
        }
    }

    #[test]
    fn many_pods_of_few_ages_are_chosen() {
        let now = Now { clock: "2026-01-02T00:00:00Z".parse().unwrap(), ..Now::default() };
        let pods: Vec<Pod> = (0..200)
            .map(|number| {
                let mixed = number * 7919 % 200;
                pod(&format!("{mixed:03}"), 3600 + mixed % 3, i32::try_from(number % 4).unwrap(), now)
            })
            .collect();
        let all: Vec<&Pod> = pods.iter().collect();
        let chosen = choose(&all, &[], 50, now);
        assert!(chosen.len() == 50 && chosen.iter().all(|pod| pod.restarts().0 == 3));
    }
}
