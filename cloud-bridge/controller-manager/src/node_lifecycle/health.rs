//! Time of the last sign of life of each node. Pure; times are of a monotonic clock.
//!
//! Like the node lifecycle controller, it measures with its own clock from the moment at which it saw a Lease change.
//! So a wrong clock or a restart does not make a live node look dead.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

/// Time from the last renewal of a Lease until the node is Unknown: `--node-monitor-grace-period` (K8s
/// pkg/controller/nodelifecycle/config/v1alpha1). Leases are valid for 40 s of it: a node that reconnects 20 s after a
/// cut never becomes NotReady, even if its last heartbeat before the cut was one interval old and reconnecting took ten
/// seconds.
const GRACE_PERIOD: Duration = Duration::from_secs(50);

/// Time that existing nodes get to reconnect after a start: `--node-startup-grace-period`, and the longest back-off of
/// a node.
const STARTUP_GRACE_PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct NodeHealthMap {
    nodes: HashMap<String, NodeHealth>,
    /// Not later than the time of any node: looking at all nodes for each sign of life would cost more than the
    /// sign. Renewals move times only back, so at worst it is looked at too early.
    next: Option<Duration>,
}

#[derive(Debug, Default)]
struct NodeHealth {
    renewed: Option<Timestamp>,
    /// When the newest renewal was seen.
    seen: Duration,
    /// Silence before this time does not count: the node could not report while this program was down, and reconnects
    /// when its back-off is over.
    from: Duration,
    /// Whether the API shows a state other than Unknown.
    believed: bool,
}

impl NodeHealth {
    /// When the node is silent for too long.
    fn deadline(&self) -> Duration {
        self.seen.max(self.from) + GRACE_PERIOD
    }
}

impl NodeHealthMap {
    /// It is in a list. In the first one are the nodes of before our start.
    pub(super) fn found(&mut self, name: &str) {
        self.nodes
            .entry(name.to_owned())
            .or_insert_with(|| NodeHealth { from: STARTUP_GRACE_PERIOD, ..NodeHealth::default() });
    }

    pub(super) fn renewed(&mut self, name: &str, renewed: Option<Timestamp>, now: Duration) {
        let health =
            self.nodes.entry(name.to_owned()).or_insert_with(|| NodeHealth { seen: now, ..NodeHealth::default() });
        if renewed.is_some() && health.renewed != renewed {
            if health.renewed.is_some() {
                // It is back.
                health.from = Duration::ZERO;
            }
            health.renewed = renewed;
            health.seen = now;
        }
        self.hurry(now);
    }

    fn hurry(&mut self, now: Duration) {
        let at = now + GRACE_PERIOD;
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    pub(super) fn node(&mut self, name: &str, believed: bool, now: Duration) {
        let health =
            self.nodes.entry(name.to_owned()).or_insert_with(|| NodeHealth { seen: now, ..NodeHealth::default() });
        if believed && !health.believed {
            health.seen = now;
        }
        health.believed = believed;
        self.hurry(now);
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Time of the next check for silent nodes.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Nodes whose time has run out. Each is returned again only after a sign of life, or after another such time if
    /// the API refused the write.
    pub(super) fn silent(&mut self, now: Duration) -> Vec<String> {
        let mut silent = Vec::new();
        for (name, health) in &mut self.nodes {
            if health.believed && now >= health.deadline() {
                health.seen = now;
                silent.push(name.clone());
            }
        }
        self.next = self.nodes.values().filter(|health| health.believed).map(NodeHealth::deadline).min();
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn g16_a_node_is_silent_when_its_lease_was_not_renewed() {
        let mut health = NodeHealthMap::default();
        health.node("a", true, s(0));
        health.renewed("a", at(100), s(10));
        health.renewed("a", at(100), s(30));
        assert_eq!(health.deadline(), Some(s(50)), "too early at worst");
        assert!(health.silent(s(59)).is_empty());
        assert_eq!(health.deadline(), Some(s(60)));
        assert_eq!(health.silent(s(60)), ["a"]);
        assert!(health.silent(s(61)).is_empty());
        health.node("a", false, s(61));
        assert!(health.silent(s(111)).is_empty());
        assert_eq!(health.deadline(), None);
        health.node("a", true, s(200));
        assert_eq!(health.deadline(), Some(s(250)), "back");
    }

    #[test]
    fn nodes_of_before_the_start_have_time_to_come_back() {
        let mut health = NodeHealthMap::default();
        for name in ["back", "gone"] {
            health.found(name);
            health.node(name, true, s(1));
            health.renewed(name, at(100), s(2));
        }
        assert!(health.silent(s(55)).is_empty(), "all of them may still be waiting to connect");
        health.renewed("back", at(150), s(55));
        assert_eq!(health.silent(s(105)), ["back"], "seen since, and silent again");
        assert_eq!(health.silent(s(110)), ["gone"]);
    }

    #[test]
    fn an_old_lease_counts_from_when_it_was_first_seen() {
        let mut health = NodeHealthMap::default();
        health.renewed("a", at(0), s(1000));
        health.node("a", true, s(1001));
        assert!(health.silent(s(1040)).is_empty());
        health.forget("a");
        assert!(health.silent(s(1045)).is_empty());
        assert_eq!(health.deadline(), None);
    }
}
