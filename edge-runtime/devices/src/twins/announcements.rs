//! Which devices have something to announce, and when: at most once a second for each device.

use std::collections::{BTreeMap, BTreeSet};

use sampan_devices_control::{Named, Text};

use super::documents::Twin;
use super::waiting::Pending;

/// Between two deltas of one device, milliseconds.
const PAUSE: u64 = 1_000;
/// Until a delta is said again that nothing else is reason for: a listener may not have been connected. Doubled each time.
const AGAIN: u64 = 10_000;
const AGAIN_AT_MOST: u64 = 600_000;

/// Devices in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    pub(super) next: BTreeSet<(u64, Named)>,
    /// The queue was full.
    pub(super) retry: Option<u64>,
}

impl Announcements {
    pub(super) fn wake(&self) -> Option<u64> {
        let next = self.next.first().map(|(at, _)| *at)?;
        Some(self.retry.map_or(next, |retry| next.max(retry)))
    }

    fn put<'a>(&mut self, id: &Named, pending: &'a mut Option<Box<Pending>>, now: u64) -> &'a mut Pending {
        let pending = pending.get_or_insert_default();
        pending.by_time = false;
        let at = now.max(pending.last.map_or(0, |last| last + PAUSE));
        self.set(id, pending, at);
        pending
    }

    /// Sets the time, unless an earlier one is set.
    fn set(&mut self, id: &Named, pending: &mut Pending, at: u64) {
        match pending.at {
            Some(before) if before <= at => return,
            Some(before) => drop(self.next.remove(&(before, id.clone()))),
            None => {}
        }
        pending.at = Some(at);
        self.next.insert((at, id.clone()));
    }

    /// A delta was published; it is repeated later.
    pub(super) fn said(&mut self, id: &Named, pending: &mut Pending, now: u64, by_time: bool) {
        pending.again = if by_time { (pending.again * 2).min(AGAIN_AT_MOST) } else { AGAIN };
        pending.by_time = true;
        self.set(id, pending, now + pending.again);
    }

    /// The device is there since now.
    pub(super) fn added(&mut self, id: &Named, pending: &mut Option<Box<Pending>>, now: u64) {
        self.put(id, pending, now).added = true;
    }

    /// The wanted value of these properties has changed.
    pub(super) fn changed(
        &mut self,
        id: &Named,
        pending: &mut Option<Box<Pending>>,
        now: u64,
        how: BTreeMap<Text, Twin>,
    ) {
        let pending = self.put(id, pending, now);
        for (name, last) in how {
            pending.changed.entry(name).or_insert(Some(last));
        }
    }

    /// No client knows the desired state of the device.
    pub(super) fn all(&mut self, id: &Named, pending: &mut Option<Box<Pending>>, now: u64) {
        self.put(id, pending, now).all = true;
    }

    /// The device has reported, and differs from its desired state.
    pub(super) fn delta(&mut self, id: &Named, pending: &mut Option<Box<Pending>>, now: u64) {
        self.put(id, pending, now);
    }

    /// Nothing more about it.
    pub(super) fn forget(&mut self, id: &Named, pending: &mut Option<Box<Pending>>) {
        let Some(forgotten) = pending.take() else { return };
        if let Some(at) = forgotten.at {
            self.next.remove(&(at, id.clone()));
        }
    }
}
