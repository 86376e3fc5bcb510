//! Rate of tainting nodes for eviction: one for each zone, by the number of its offline nodes (K8s
//! pkg/controller/nodelifecycle/node_lifecycle_controller.go, `handleDisruption`, `setLimiterInZone`). Pure; times are
//! of a monotonic clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Between two nodes of a zone: `--node-eviction-rate` 0.1.
const NORMAL: Duration = Duration::from_secs(10);
/// The same if many are offline: `--secondary-node-eviction-rate` 0.01.
const SECONDARY: Duration = Duration::from_secs(100);
/// Share of offline nodes from which a zone is disrupted, in percent: `--unhealthy-zone-threshold`.
const UNHEALTHY: usize = 55;
/// Up to this number of nodes a disrupted zone has no evictions: `--large-cluster-size-threshold`.
const LARGE: usize = 50;

/// State of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    zone: String,
    ready: bool,
    /// Whether it counts for the state of its zone.
    counts: bool,
}

#[derive(Debug, Default)]
struct Zone {
    nodes: usize,
    ready: usize,
    away: usize,
    /// Nodes that are to have a taint that evicts.
    waiting: BTreeSet<String>,
    /// Earliest time of the next one.
    next: Duration,
}

impl Zone {
    fn is_full(&self) -> bool {
        self.ready == 0 && self.away > 0
    }

    /// The time between two nodes; `None` if no pod is evicted.
    fn interval(&self) -> Option<Duration> {
        let all = self.ready.saturating_add(self.away);
        // K8s `ComputeZoneState`. For a zone that is completely offline Kubernetes uses the normal rate too.
        let partial =
            !self.is_full() && self.away > 2 && self.away.saturating_mul(100) >= all.saturating_mul(UNHEALTHY);
        match partial {
            false => Some(NORMAL),
            true if all > LARGE => Some(SECONDARY),
            true => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Zones {
    nodes: HashMap<String, Place>,
    zones: BTreeMap<String, Zone>,
}

impl Zones {
    /// Adds or changes a node. `counts`: whether its state counts for its zone.
    pub(super) fn node(&mut self, name: &str, zone: &str, ready: bool, counts: bool) {
        let place = Place { zone: zone.to_owned(), ready, counts };
        if self.nodes.get(name) == Some(&place) {
            return;
        }
        self.forget(name);
        let zone = self.zones.entry(place.zone.clone()).or_default();
        zone.nodes += 1;
        zone.ready += usize::from(counts && ready);
        zone.away += usize::from(counts && !ready);
        self.nodes.insert(name.to_owned(), place);
    }

    pub(super) fn forget(&mut self, name: &str) {
        let Some(place) = self.nodes.remove(name) else { return };
        let Some(zone) = self.zones.get_mut(&place.zone) else { return };
        zone.nodes -= 1;
        zone.ready -= usize::from(place.counts && place.ready);
        zone.away -= usize::from(place.counts && !place.ready);
        zone.waiting.remove(name);
        if zone.nodes == 0 {
            self.zones.remove(&place.zone);
        }
    }

    /// No zone has a node that is ready: the fault is more likely here or in between than in the nodes.
    pub(super) fn all_away(&self) -> bool {
        let mut counted = self.zones.values().filter(|zone| zone.ready + zone.away > 0).peekable();
        counted.peek().is_some() && counted.all(Zone::is_full)
    }

    /// A node is to have a taint that evicts, as soon as its zone's rate allows it.
    pub(super) fn enqueue(&mut self, name: &str) {
        let zone = self.nodes.get(name).and_then(|place| self.zones.get_mut(&place.zone));
        if let Some(zone) = zone.filter(|zone| !zone.waiting.contains(name)) {
            zone.waiting.insert(name.to_owned());
        }
    }

    /// A node has that taint, or is to have none.
    pub(super) fn dequeue(&mut self, name: &str) {
        let zone = self.nodes.get(name).and_then(|place| self.zones.get_mut(&place.zone));
        if let Some(zone) = zone {
            zone.waiting.remove(name);
        }
    }

    /// When the next node gets its taint.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let moving = self.zones.values().filter(|zone| !zone.waiting.is_empty() && zone.interval().is_some());
        moving.map(|zone| zone.next).min()
    }

    /// The next node that gets its taint now.
    pub(super) fn next(&mut self, now: Duration) -> Option<String> {
        self.zones.values_mut().find_map(|zone| {
            let interval = zone.interval().filter(|_| zone.next <= now)?;
            let name = zone.waiting.pop_first()?;
            zone.next = now.saturating_add(interval);
            Some(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Adds a zone with this many ready nodes and this many absent ones that wait.
    fn add(zones: &mut Zones, zone: &str, ready: usize, away: usize) {
        for at in 0..ready + away {
            let name = format!("{zone}{at:04}");
            zones.node(&name, zone, at < ready, true);
            if at >= ready {
                zones.enqueue(&name);
            }
        }
    }

    fn evicted(zones: &mut Zones, until: u64) -> usize {
        let mut count = 0;
        while let Some(at) = zones.deadline().filter(|at| *at <= s(until)) {
            count += usize::from(zones.next(at).is_some());
        }
        count
    }

    #[test]
    fn nodes_of_a_zone_are_evicted_at_its_rate() {
        let cases = [
            // Ready, offline, evicted within 1000 s.
            (90, 10, 10),
            (900, 300, 101),
            (45, 55, 11),
            (20, 30, 0),
            (1, 2, 2),
            (0, 0, 0),
        ];
        for (ready, away, count) in cases {
            let mut zones = Zones::default();
            add(&mut zones, "a", ready, away);
            add(&mut zones, "other", 3, 0);
            assert_eq!(evicted(&mut zones, 1000), count, "{ready} ready, {away} away");
        }
    }

    #[test]
    fn zones_have_rates_of_their_own_and_all_of_them_away_is_told() {
        let mut zones = Zones::default();
        assert!(!zones.all_away());
        add(&mut zones, "a", 0, 200);
        assert!(zones.all_away());
        add(&mut zones, "b", 800, 5);
        assert!(!zones.all_away(), "one site has lost its uplink");
        assert_eq!(evicted(&mut zones, 0), 2, "the first of each at once");
        assert_eq!(evicted(&mut zones, 40), 8);
        // It is back before its turn.
        zones.node("a0199", "a", true, true);
        zones.dequeue("a0199");
        assert_eq!(evicted(&mut zones, 100_000), 194);
    }

    #[test]
    fn node_that_moves_or_goes_is_counted_once() {
        let mut zones = Zones::default();
        add(&mut zones, "a", 1, 2);
        zones.node("a0001", "b", false, true);
        zones.forget("a0002");
        assert!(!zones.all_away());
        zones.node("a0000", "a", false, true);
        zones.node("stranger", "c", false, false);
        assert!(zones.all_away(), "one that does not count is no sign");
        assert_eq!(zones.deadline(), None, "nobody waits in the zone it has left");
    }
}
