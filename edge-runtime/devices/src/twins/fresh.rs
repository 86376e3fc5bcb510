//! Devices that were added while messages were already received: their earlier and retained messages came when they
//! were unknown. These are requested once: at a broker by separate subscriptions, which make it send retained messages
//! (MQTT 3.1.1, 3.8.4), and at the node's own listener. Knows no connection.

use std::collections::{BTreeMap, BTreeSet};

use sampan_devices_control::Named;

use super::topics;

/// Lifetime of the subscription of one device, in milliseconds: it overlaps with that of all devices, and some brokers
/// send a message that matches both twice.
const LASTS: u64 = 10_000;
/// Devices with one at the same time; others wait.
const AT_ONCE: usize = 128;
/// Topics of a device whose retained message counts.
const RETAINED: [&str; 2] = ["twin/update", "state/update"];

#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// Until when their subscriptions last.
    asked: BTreeMap<Named, u64>,
    waiting: BTreeSet<Named>,
    /// Not looked for at the listener yet.
    unheard: Vec<Named>,
    changed: bool,
}

fn topics_of(id: &Named) -> impl Iterator<Item = String> {
    RETAINED.iter().map(|rest| topics::device(id, rest)).filter(|topic| !topic.contains(['+', '#']))
}

impl Fresh {
    /// A device came. `broker`: it is connected. `listens`: clients may connect to the node itself.
    pub(super) fn came(&mut self, id: &Named, broker: bool, listens: bool) {
        if broker {
            self.waiting.insert(id.clone());
        }
        if listens {
            self.unheard.push(id.clone());
        }
    }

    /// A device went.
    pub(super) fn went(&mut self, id: &Named) {
        self.waiting.remove(id);
        self.changed |= self.asked.remove(id).is_some();
    }

    /// The broker has connected, and sends its retained messages for all devices; or it has disconnected.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.changed |= !self.asked.is_empty();
        self.asked.clear();
    }

    pub(super) fn tick(&mut self, now: u64) {
        let before = self.asked.len();
        self.asked.retain(|_, until| *until > now);
        self.changed |= self.asked.len() < before;
        while self.asked.len() < AT_ONCE
            && let Some(id) = self.waiting.pop_first()
        {
            self.asked.insert(id, now + LASTS);
            self.changed = true;
        }
    }

    pub(super) fn wake(&self) -> Option<u64> {
        self.asked.values().min().copied()
    }

    /// Whether [`filters`](Self::filters) are others than when this was last asked.
    pub(super) const fn is_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// Topics to subscribe to at the broker now.
    pub(super) fn filters(&self) -> impl Iterator<Item = String> {
        self.asked.keys().flat_map(topics_of)
    }

    /// Topics whose retained message must be looked up at the listener, once.
    pub(super) fn unheard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unheard).iter().flat_map(topics_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_asked_for_once_and_few_at_a_time() {
        let id = |n: usize| Named { namespace: "default".into(), name: format!("t{n:03}").into() };
        let mut fresh = Fresh::default();
        (0..200).for_each(|n| fresh.came(&id(n), true, n == 0));
        fresh.tick(1_000);
        assert!(fresh.is_changed() && !fresh.is_changed());
        assert_eq!((fresh.filters().count(), fresh.wake()), (2 * AT_ONCE, Some(11_000)));
        assert_eq!(fresh.filters().next().as_deref(), Some("$hw/events/device/default/t000/twin/update"));
        assert_eq!(fresh.unheard().len(), 2);
        assert!(fresh.unheard().is_empty());
        fresh.went(&id(199));
        fresh.went(&id(0));
        fresh.tick(11_000);
        assert_eq!(fresh.filters().count(), 2 * (200 - AT_ONCE - 1));
        fresh.tick(21_000);
        assert!(fresh.is_changed() && fresh.wake().is_none() && fresh.filters().next().is_none());
        fresh.came(&id(1), true, false);
        fresh.tick(22_000);
        fresh.forget();
        assert!(fresh.is_changed() && fresh.filters().next().is_none());
        fresh.came(&Named { namespace: "a".into(), name: "#".into() }, true, false);
        fresh.tick(23_000);
        assert_eq!(fresh.filters().count(), 0);
    }
}
