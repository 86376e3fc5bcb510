//! Rate of the writes that the controllers of workloads do for one namespace: 20 ReplicaSets of a million pods, or 500
//! autoscalers of one Deployment, must not keep the thread from other users. Pure: the caller passes the monotonic time.
//!
//! kube-controller-manager limits all its writes together (`--kube-api-qps`, 20, and `--kube-api-burst`, 30).

use std::collections::BTreeMap;
use std::time::Duration;

use super::world::{Kind, Task};

/// Time that one write takes of a namespace in the long run.
const EACH: Duration = Duration::from_millis(20);
/// Number of writes that a namespace may do at once.
const BURST: u32 = 256;
/// Number of namespaces above which those without debt are removed.
const KEPT: usize = 1000;

/// When the debt of each namespace is paid (generic cell rate algorithm, ITU-T I.371).
#[derive(Debug, Default)]
pub(crate) struct Rate {
    paid: BTreeMap<String, Duration>,
}

impl Rate {
    /// When this key may be evaluated, if that is later than now.
    pub(crate) fn until(&self, (kind, key): &Task, now: Duration) -> Option<Duration> {
        let due = self.paid.get(&key.namespace).filter(|_| makes_pods(*kind))?.saturating_sub(EACH * BURST);
        (due > now).then_some(due)
    }

    /// Counts the writes of an evaluation.
    pub(crate) fn spend(&mut self, (kind, key): &Task, writes: usize, now: Duration) {
        if writes == 0 || !makes_pods(*kind) {
            return;
        }
        if self.paid.len() >= KEPT {
            self.paid.retain(|_, paid| *paid > now);
        }
        let cost = EACH.saturating_mul(u32::try_from(writes).unwrap_or(u32::MAX));
        let paid = self.paid.entry(key.namespace.clone()).or_default();
        *paid = (*paid).max(now).saturating_add(cost);
    }
}

/// Whether users decide how many writes a key causes. Endpoints have a pace of their own, and what pods and nodes need is
/// never late.
fn makes_pods(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::CronJob
            | Kind::DaemonSet
            | Kind::Deployment
            | Kind::Job
            | Kind::ReplicaSet
            | Kind::ReplicationController
            | Kind::StatefulSet
    )
}

#[cfg(test)]
mod tests {
    use apimachinery::key::ObjectKey;

    use super::*;

    fn task(kind: Kind, namespace: &str) -> Task {
        (kind, ObjectKey { namespace: namespace.to_owned(), name: "x".to_owned() })
    }

    #[test]
    fn namespace_with_many_writes_waits_alone_and_less_and_less() {
        let (mut rate, second) = (Rate::default(), Duration::from_secs(1));
        let (busy, other) = (task(Kind::ReplicaSet, "busy"), task(Kind::ReplicaSet, "other"));
        rate.spend(&busy, 256, second);
        assert_eq!(rate.until(&busy, second), None, "that many at once");
        rate.spend(&busy, 128, second);
        let until = rate.until(&busy, second).unwrap();
        assert_eq!(until, second + EACH * 128);
        assert_eq!((rate.until(&busy, until), rate.until(&other, second)), (None, None));
        // At rest it gets all of it back.
        rate.spend(&busy, 256, 60 * second);
        assert_eq!(rate.until(&busy, 60 * second), None);
    }

    #[test]
    fn endpoints_and_budgets_of_a_busy_namespace_do_not_wait() {
        let mut rate = Rate::default();
        rate.spend(&task(Kind::Job, "busy"), 100_000, Duration::ZERO);
        for kind in [Kind::Service, Kind::Endpoints, Kind::PodDisruptionBudget, Kind::Pod, Kind::Node] {
            assert_eq!(rate.until(&task(kind, "busy"), Duration::ZERO), None, "{kind:?}");
        }
        rate.spend(&task(Kind::Service, "served"), 100_000, Duration::ZERO);
        assert_eq!(rate.until(&task(Kind::Job, "served"), Duration::ZERO), None);
    }

    #[test]
    fn namespaces_without_debt_are_forgotten() {
        let mut rate = Rate::default();
        (0..3 * KEPT).for_each(|index| {
            let now = Duration::from_secs(index as u64);
            rate.spend(&task(Kind::Job, &format!("n{index}")), 1, now);
        });
        assert!(rate.paid.len() <= KEPT, "{}", rate.paid.len());
    }
}
