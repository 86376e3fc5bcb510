//! Schedules reports of devices: budgets, and one batch at a time. Does not know values.
//!
//! Values do not queue here. A changed device waits, and its state at its turn is reported. A batch that the bridge may
//! not have is void, and its devices wait again.

use std::collections::BTreeMap;

use edge_protocol::message::MAX_DEVICES;
use sampan_devices_control::{Named, Report};

use super::device::Device;
use super::uid::Uid;
use super::waiting::Waiting;

/// About how many bytes of reports one batch has.
const MAX_BYTES: usize = 64 << 10;
/// An urgent change is reported as if it had occurred this much earlier, in milliseconds.
const AHEAD: u64 = 5_000;
/// One report of the budget.
const TOKEN: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Due {
    budget: Report,
    /// Nothing is due before.
    look: Option<u64>,
    /// Remaining budget of a second, in thousandths of a report.
    tokens: u64,
    refilled: u64,
    batch: u64,
    flying: Option<Vec<Flying>>,
}

/// A device in the batch under way, and how it had waited.
#[derive(Debug)]
struct Flying {
    id: Named,
    uid: Uid,
    since: Option<u64>,
    urgent: bool,
    again: bool,
}

impl Due {
    pub(super) fn new(budget: Report) -> Self {
        let tokens = u64::from(budget.per_second) * TOKEN;
        Self { budget, look: None, tokens, refilled: 0, batch: 0, flying: None }
    }

    /// Milliseconds, as those of [`Self::unchanged`].
    const fn min_interval(&self) -> u64 {
        self.budget.min_interval_seconds.saturating_mul(1_000)
    }

    const fn unchanged(&self) -> u64 {
        self.budget.unchanged_seconds.saturating_mul(1_000)
    }

    /// Something of the device has changed.
    pub(super) fn changed(&mut self, waiting: &mut Waiting, now: u64, urgent: bool) {
        waiting.since.get_or_insert(now);
        waiting.urgent |= urgent;
        self.look_at(now.max(waiting.last.map_or(0, |last| last + self.min_interval())));
    }

    /// The device has repeated a value.
    pub(super) fn again(&mut self, waiting: &mut Waiting, now: u64) {
        waiting.again = true;
        self.look_at(now.max(waiting.last.map_or(0, |last| last + self.unchanged())));
    }

    fn look_at(&mut self, at: u64) {
        self.look = Some(self.look.map_or(at, |look| look.min(at)));
    }

    /// When the next look is worth it.
    pub(super) const fn wake(&self) -> Option<u64> {
        if self.flying.is_some() { None } else { self.look }
    }

    /// The devices of the next batch; none while one is under way.
    pub(super) fn choose<'a>(
        &mut self,
        now: u64,
        devices: impl Iterator<Item = (&'a Named, &'a Device)>,
    ) -> Vec<Named> {
        if self.flying.is_some() || self.look.is_none_or(|look| look > now) {
            return Vec::new();
        }
        let per_second = u64::from(self.budget.per_second).max(1);
        let earned = now.saturating_sub(self.refilled).saturating_mul(per_second);
        self.tokens = self.tokens.saturating_add(earned).min(per_second * TOKEN);
        self.refilled = now;
        if self.tokens < TOKEN {
            self.look = Some(now + (TOKEN - self.tokens).div_ceil(per_second));
            return Vec::new();
        }
        self.look = None;
        let mut ready = Vec::new();
        for (number, (id, device)) in devices.enumerate() {
            let waiting = &device.waiting;
            let since_last = |interval: u64| waiting.last.map_or(0, |last| last + interval);
            let at = match (waiting.since, waiting.again) {
                (Some(since), _) => since.max(since_last(self.min_interval())),
                (None, true) => since_last(self.unchanged()),
                (None, false) => continue,
            };
            if at <= now {
                // A limited advance: a device whose state flips all the time must not delay the reports of others.
                let ahead = if waiting.urgent { AHEAD } else { 0 };
                ready.push((waiting.since.unwrap_or(at).saturating_sub(ahead), number, id, device));
            } else {
                self.look_at(at);
            }
        }
        // Few of many waiting devices are chosen, so only these are sorted.
        let most = usize::try_from(self.tokens / TOKEN).unwrap_or(usize::MAX).min(MAX_DEVICES);
        let waiting = ready.len();
        if most < waiting {
            ready.select_nth_unstable_by_key(most, |(at, number, ..)| (*at, *number));
            ready.truncate(most);
        }
        ready.sort_unstable_by_key(|(at, number, ..)| (*at, *number));
        let (mut chosen, mut bytes) = (Vec::new(), 0);
        for (.., id, device) in &ready {
            let weight = device.weight();
            if self.tokens < TOKEN || chosen.len() == MAX_DEVICES || (bytes > 0 && bytes + weight > MAX_BYTES) {
                break;
            }
            self.tokens -= TOKEN;
            bytes += weight;
            chosen.push((*id).clone());
        }
        if chosen.len() < waiting {
            self.look_at(now);
        }
        chosen
    }

    /// The number of the batch that begins now. By the clock, so that no acknowledgement of an earlier process fits.
    pub(super) fn begin(&mut self, wall: u64) -> u64 {
        self.batch = (self.batch + 1).max(wall);
        self.flying = Some(Vec::new());
        self.batch
    }

    /// This device is in it.
    pub(super) fn take(&mut self, id: &Named, uid: &Uid, waiting: &mut Waiting, now: u64) {
        let Waiting { since, urgent, again, .. } =
            std::mem::replace(waiting, Waiting { last: Some(now), ..Waiting::default() });
        self.flying.get_or_insert_default().push(Flying { id: id.clone(), uid: uid.clone(), since, urgent, again });
    }

    /// Names and uids of the devices whose report has arrived.
    pub(super) fn acked(&mut self, batch: u64) -> impl Iterator<Item = (Named, Uid)> + use<> {
        let flying = if batch == self.batch { self.flying.take() } else { None };
        flying.into_iter().flatten().map(|Flying { id, uid, .. }| (id, uid))
    }

    /// The result of the batch in progress is unknown: its devices wait as before.
    pub(super) fn void(&mut self, devices: &mut BTreeMap<Named, Box<Device>>) {
        for Flying { id, uid, since, urgent, again } in self.flying.take().into_iter().flatten() {
            if let Some(device) = devices.get_mut(&id).filter(|device| device.uid == uid) {
                let waiting = &mut device.waiting;
                waiting.since = since.or(waiting.since);
                waiting.urgent |= urgent;
                waiting.again |= again;
                waiting.last = None;
            }
        }
        self.look_at(0);
    }
}
