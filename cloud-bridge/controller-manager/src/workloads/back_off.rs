//! Back-off of a workload whose pods fail because a node refuses or evicts them: none after the first failure, then 1
//! s, then twice as long each time (K8s client-go util/flowcontrol `Backoff`, which Kubernetes uses only for
//! DaemonSets). Pure; lost at a restart, as in Kubernetes.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::key::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::index::controller_of;
use super::plan::{Action, Write};
use super::pod::Pod;
use super::store::{key_of, uid};
use super::world::{Change, Kind, World};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(15);

/// The uid of a workload, and which of its pods: by node for a DaemonSet, by name for a StatefulSet, all of them for others.
type Place = (String, String);

/// Failures at one place, none of them longer ago than twice [`LONGEST`].
#[derive(Debug, Default)]
struct Failures {
    /// Generation of the workload: a changed workload is tried at once.
    generation: i64,
    count: u32,
    /// When the wait began.
    since: Duration,
    /// A pod was made since the last failure that counts.
    tried: bool,
    /// The pod that failed last.
    last: String,
}

impl Failures {
    fn wait(&self, now: Duration) -> Duration {
        let Some(doublings) = self.count.checked_sub(2) else { return Duration::ZERO };
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST);
        (self.since + wait).saturating_sub(now)
    }
}

/// Failures of all workloads.
#[derive(Debug, Default)]
pub(crate) struct BackOff {
    places: BTreeMap<Place, Failures>,
}

impl BackOff {
    /// How long the next pod of the workload still waits. `slot`: the node of a DaemonSet's pod, the name of a StatefulSet's.
    pub(super) fn wait(&self, workload: &ObjectMeta, slot: &str, now: Duration) -> Duration {
        self.known(workload, slot).map_or(Duration::ZERO, |failures| failures.wait(now))
    }

    /// Whether pods of the workload are made one at a time, until one is ready.
    pub(super) fn is_trying(&self, workload: &ObjectMeta) -> bool {
        self.known(workload, "").is_some_and(|failures| failures.count > 1)
    }

    fn known(&self, workload: &ObjectMeta, slot: &str) -> Option<&Failures> {
        let failures = self.places.get(&(uid(workload).to_owned(), slot.to_owned()))?;
        (failures.generation == workload.generation.unwrap_or_default()).then_some(failures)
    }

    /// Handles a change of a pod: a failure starts the back-off, readiness ends it. For a pod that was evicted soon
    /// after it was ready, the back-off continues, as for Kubernetes' DaemonSets.
    pub(crate) fn seen(&mut self, world: &World, change: &Change, now: Duration) {
        if change.kind != Kind::Pod {
            return;
        }
        let Some(pod) = world.pods.get(&change.seen.key) else { return };
        let failed = pod.phase() == "Failed" && pod.ended_at() == Some(now);
        let ready = pod.ready_at() == Some(now);
        if (failed || ready)
            && let Some((place, kind, generation)) = place_of(world, pod)
        {
            if failed {
                self.failed(place, generation, uid(&pod.metadata), now);
            } else if kind != Kind::DaemonSet {
                self.places.remove(&place);
            }
        }
    }

    /// Handles a write: a pod that is created during the back-off is an attempt.
    pub(crate) fn written(&mut self, action: &Action, now: Duration) {
        let Write::Create(object) = &action.write else { return };
        if action.kind != Kind::Pod || self.places.is_empty() {
            return;
        }
        let owners = object.own()["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        for owner in owners.filter_map(|owner| owner["uid"].as_str()) {
            if let Some(failures) = self.places.get_mut(&(owner.to_owned(), String::new())) {
                (failures.tried, failures.since) = (true, now);
            }
        }
    }

    /// Pods that fail together, or that were made before the last failure, are one failure.
    fn failed(&mut self, place: Place, generation: i64, pod: &str, now: Duration) {
        self.places.retain(|_, failures| now.saturating_sub(failures.since) <= LONGEST * 2);
        let failures = self.places.entry(place).or_default();
        if failures.generation != generation {
            *failures = Failures { generation, ..Failures::default() };
        }
        if failures.last == pod || !failures.tried && !failures.wait(now).is_zero() {
            return;
        }
        *failures = Failures {
            generation,
            count: failures.count.saturating_add(1),
            since: now,
            tried: false,
            last: pod.to_owned(),
        };
    }
}

/// Where a pod of a workload belongs, the kind of that workload, and its generation.
fn place_of(world: &World, pod: &Pod) -> Option<(Place, Kind, i64)> {
    let owner = controller_of(&pod.metadata)?;
    let key = ObjectKey { name: owner.name.clone(), ..key_of(&pod.metadata) };
    let (kind, meta, slot) = match owner.kind.as_str() {
        "ReplicaSet" => (Kind::ReplicaSet, &world.replica_sets.get(&key)?.metadata, ""),
        "ReplicationController" => {
            (Kind::ReplicationController, &world.replication_controllers.get(&key)?.metadata, "")
        }
        "DaemonSet" => (Kind::DaemonSet, &world.daemon_sets.get(&key)?.metadata, pod.target_node()?),
        "StatefulSet" => (Kind::StatefulSet, &world.stateful_sets.get(&key)?.metadata, pod.metadata.name.as_deref()?),
        _ => return None,
    };
    let place = (owner.uid.clone(), slot.to_owned());
    (uid(meta) == owner.uid).then(|| (place, kind, meta.generation.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(generation: i64) -> ObjectMeta {
        ObjectMeta { uid: Some("u".to_owned()), generation: Some(generation), ..ObjectMeta::default() }
    }

    fn place(slot: &str) -> Place {
        ("u".to_owned(), slot.to_owned())
    }

    #[test]
    fn each_failure_doubles_the_wait_until_a_quiet_half_hour() {
        let (mut back_off, mut now) = (BackOff::default(), Duration::from_secs(100));
        for (number, wait) in [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900].into_iter().enumerate() {
            back_off.failed(place("a"), 1, &number.to_string(), now);
            assert_eq!(back_off.wait(&workload(1), "a", now), Duration::from_secs(wait));
            assert_eq!(back_off.wait(&workload(1), "b", now), Duration::ZERO);
            now += Duration::from_secs(wait);
        }
        assert_eq!(back_off.wait(&workload(2), "a", now), Duration::ZERO, "a changed workload is tried at once");
        back_off.failed(place("b"), 1, "x", now + LONGEST * 3);
        assert_eq!(back_off.places.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn pods_that_fail_together_are_one_failure() {
        let (mut back_off, now) = (BackOff::default(), Duration::from_secs(100));
        for pod in 0..50 {
            back_off.failed(place(""), 1, &pod.to_string(), now);
        }
        assert_eq!(back_off.wait(&workload(1), "", now), FIRST);
        // The attempt is made after the back-off, and fails before another one would have ended.
        let later = now + FIRST;
        let owner = serde_json::json!({"metadata": {"ownerReferences": [{"uid": "u", "controller": true}]}});
        back_off.written(&Action::create(Kind::Pod, "ns", owner), later);
        assert_eq!(back_off.wait(&workload(1), "", later), FIRST, "one at a time");
        back_off.failed(place(""), 1, "attempt", later);
        assert_eq!(back_off.wait(&workload(1), "", later), FIRST * 2);
        back_off.failed(place(""), 1, "attempt", later + LONGEST);
        assert_eq!(back_off.wait(&workload(1), "", later), FIRST * 2, "a pod fails once");
    }
}
