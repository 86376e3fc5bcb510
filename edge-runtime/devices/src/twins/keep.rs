//! When to store the state of devices. Every write wears out the medium, so reported values are written if they could
//! be lost permanently: without a link, seldom, and at the end. Knows no values.

use super::now::MINUTE;

/// Delay between a change that must last and its write, in milliseconds, in which changes are collected.
const GATHER: u64 = 1_000;
/// A page of the store.
const PAGE: u64 = 4_096;
const HOUR: u64 = 60 * MINUTE;

/// What of one device is not kept.
#[derive(Debug, Default)]
pub(super) struct Unkept {
    /// A desired value.
    pub(super) soon: bool,
    /// Any value.
    pub(super) any: bool,
    /// Only the time of the last report has changed, which does not justify a write.
    pub(super) times: bool,
    /// The stored state says that the bridge does not have the value.
    pub(super) spilled: bool,
}

#[derive(Debug)]
pub(super) struct Keep {
    per_hour: u64,
    /// When what must last is written.
    soon: Option<u64>,
    /// When reported values are written; none while there is a link.
    spill: Option<u64>,
    /// When to store that the bridge has the values.
    settle: Option<u64>,
    /// Before it neither: what was written has used up the part of the medium until then, link or no link.
    earliest: u64,
    /// Bytes that were written lately for what must last.
    level: u64,
    leaked: u64,
}

/// Cost of a row in bytes: the log of the store and the store itself, whole pages.
fn cost(bytes: usize) -> u64 {
    2 * (bytes as u64).div_ceil(PAGE) * PAGE
}

impl Keep {
    pub(super) const fn new(per_hour: u64) -> Self {
        let per_hour = if per_hour == 0 { 1 } else { per_hour };
        Self { per_hour, soon: None, spill: None, settle: None, earliest: 0, level: 0, leaked: 0 }
    }

    /// Something that must last has changed.
    pub(super) fn soon(&mut self, unkept: &mut Unkept, now: u64) {
        unkept.soon = true;
        unkept.any = true;
        self.soon_mappers(now);
    }

    /// Same for what mappers hold.
    pub(super) fn soon_mappers(&mut self, now: u64) {
        if self.soon.is_none() {
            // A client that changes its mind all day long gets no more than its part of the medium.
            self.leak(now);
            let over = self.level.saturating_sub(self.per_hour / 4);
            self.soon = Some(now + GATHER + over.saturating_mul(HOUR) / self.per_hour);
        }
    }

    /// What must last has used up its part of the medium for now.
    pub(super) fn is_spent(&mut self, now: u64) -> bool {
        self.leak(now);
        self.level > self.per_hour / 4
    }

    fn leak(&mut self, now: u64) {
        let leaked = now.saturating_sub(self.leaked).saturating_mul(self.per_hour) / HOUR;
        if leaked > 0 {
            self.level = self.level.saturating_sub(leaked);
            self.leaked = now;
        }
    }

    pub(super) const fn link_down(&mut self, now: u64) {
        if self.spill.is_none() {
            let at = now + MINUTE;
            self.spill = Some(if at < self.earliest { self.earliest } else { at });
        }
        self.settle = None;
    }

    pub(super) const fn link_up(&mut self) {
        self.spill = None;
    }

    /// The bridge has received a value that is stored as pending.
    pub(super) const fn settle(&mut self, now: u64) {
        if self.settle.is_none() {
            let at = now + GATHER;
            self.settle = Some(if at < self.earliest { self.earliest } else { at });
        }
    }

    pub(super) fn wake(&self) -> Option<u64> {
        [self.soon, self.spill, self.settle].into_iter().flatten().min()
    }

    /// The devices to write now.
    pub(super) fn due(&mut self, now: u64) -> Option<Which> {
        let reached = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if reached(self.soon) {
            self.soon = None;
            return Some(Which::Soon);
        }
        if reached(self.spill) {
            return Some(Which::Any);
        }
        if reached(self.settle) {
            self.settle = None;
            return Some(Which::Spilled);
        }
        None
    }

    fn spend(&mut self, bytes: usize, now: u64) {
        let pause = cost(bytes).saturating_mul(HOUR) / self.per_hour;
        self.earliest = self.earliest.max(now) + pause;
    }

    /// What [`due`](Self::due) asked for was this much.
    pub(super) fn written(&mut self, which: Which, bytes: usize, now: u64) {
        match which {
            Which::Soon | Which::Mappers => {
                self.leak(now);
                self.level += cost(bytes);
            }
            Which::Any => {
                self.spend(bytes, now);
                self.spill = Some(self.earliest.max(now + MINUTE));
            }
            Which::Spilled => self.spend(bytes, now),
            Which::End => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Devices with an urgent change.
    Soon,
    /// What mappers hold.
    Mappers,
    /// Devices with any change.
    Any,
    /// Devices stored as pending although the bridge has the values.
    Spilled,
    /// The last write: nothing follows it.
    End,
}

impl Which {
    pub(super) const fn has_mappers(self) -> bool {
        !matches!(self, Self::Spilled)
    }

    /// Changes of reported values are written where these are.
    pub(super) const fn has_histories(self) -> bool {
        matches!(self, Self::Any | Self::End)
    }

    pub(super) const fn fits(self, unkept: &Unkept) -> bool {
        match self {
            Self::Soon => unkept.soon,
            Self::Mappers => false,
            Self::Any => unkept.any,
            Self::Spilled => unkept.spilled,
            Self::End => unkept.any || unkept.times,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_values_are_written_seldom_and_only_without_a_link() {
        let mut keep = Keep::new(1 << 20);
        assert_eq!(keep.due(u64::MAX), None);
        keep.link_down(1_000);
        keep.link_down(30_000);
        assert_eq!((keep.due(60_999), keep.due(61_000)), (None, Some(Which::Any)));
        // 8 KiB as 2 × 2 pages: the limit permits 128 of them in an hour, but none within a minute.
        keep.written(Which::Any, 8_000, 61_000);
        assert_eq!(keep.wake(), Some(121_000));
        // 320 KiB: each 37 minutes.
        keep.written(Which::Any, 320 << 10, 121_000);
        assert_eq!(keep.wake(), Some(121_000 + 2 * 320 * HOUR / 1_024));
        keep.link_up();
        assert_eq!(keep.wake(), None);
    }

    #[test]
    fn desired_values_are_written_within_a_second_unless_they_flood() {
        let mut keep = Keep::new(1 << 20);
        let mut unkept = Unkept::default();
        keep.soon(&mut unkept, 5_000);
        keep.soon(&mut unkept, 5_900);
        assert_eq!((keep.due(5_999), keep.due(6_000)), (None, Some(Which::Soon)));
        let (mut now, mut bytes) = (6_000, 0);
        while now < 10 * HOUR {
            keep.written(Which::Soon, 300, now);
            bytes += cost(300);
            keep.soon(&mut unkept, now);
            now = keep.wake().unwrap_or_default();
            assert_eq!(keep.due(now), Some(Which::Soon));
        }
        assert!(bytes < 11 << 20, "{bytes}");
    }
}
