//! How long a failed pod of a DaemonSet stays before it makes room for the next one: 1 s, then twice as long each time, up
//! to 15 min (K8s client-go util/flowcontrol `Backoff`). Pure; forgotten at a restart, as in Kubernetes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;

use crate::workloads::plan::Action;
use crate::workloads::pod::Pod;
use crate::workloads::store::{controller_of, key_of, uid};
use crate::workloads::world::{Kind, World};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(15);

/// A set as it was last looked at, by uid and generation, and a node.
type Place = (String, i64, String);

#[derive(Debug, Default)]
pub(crate) struct BackOff {
    /// How long the next one waits, and when the last one went.
    places: BTreeMap<Place, (Duration, Duration)>,
}

impl BackOff {
    /// How long a failed pod of the set still stays on the node.
    pub(super) fn wait(&self, set: &DaemonSet, node: &str, now: Duration) -> Duration {
        let Some((wait, last)) = self.places.get(&place(set, node)) else { return Duration::ZERO };
        (*last + *wait).saturating_sub(now)
    }

    /// Takes in a write: the deletion of a failed pod makes the next one wait longer.
    pub(crate) fn written(&mut self, world: &World, action: &Action, now: Duration) {
        let removed = action.removes().filter(|_| action.kind == Kind::Pod);
        let pod = world.pods.get(&action.key).filter(|pod| pod.phase() == "Failed");
        let Some(pod) = pod.filter(|pod| removed == Some(uid(&pod.metadata))) else { return };
        if let Some(place) = place_of(world, pod) {
            self.failed(place, now);
        }
    }

    fn failed(&mut self, place: Place, now: Duration) {
        self.places.retain(|_, (_, last)| now.saturating_sub(*last) <= LONGEST * 2);
        let wait = self.places.get(&place).map_or(FIRST, |(wait, _)| (*wait * 2).min(LONGEST));
        self.places.insert(place, (wait, now));
    }
}

fn place(set: &DaemonSet, node: &str) -> Place {
    let generation = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    (uid(&set.metadata).to_owned(), generation, node.to_owned())
}

fn place_of(world: &World, pod: &Pod) -> Option<Place> {
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "DaemonSet")?;
    let mut key = key_of(&pod.metadata);
    key.name.clone_from(&owner.name);
    let set = world.daemon_sets.get(&key).filter(|set| uid(&set.metadata) == owner.uid)?;
    Some(place(set, pod.target_node()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_pod_waits_twice_as_long_each_time_and_from_the_start_after_a_quiet_half_hour() {
        let set = DaemonSet::default();
        let (mut back_off, mut now) = (BackOff::default(), Duration::from_secs(100));
        assert_eq!(back_off.wait(&set, "a", now), Duration::ZERO);
        for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
            back_off.failed(place(&set, "a"), now);
            assert_eq!(back_off.wait(&set, "a", now), Duration::from_secs(wait));
            assert_eq!(back_off.wait(&set, "b", now), Duration::ZERO);
            now += Duration::from_secs(wait);
        }
        back_off.failed(place(&set, "b"), now + LONGEST * 2);
        assert_eq!(back_off.places.len(), 1, "what is over is forgotten");
    }
}
