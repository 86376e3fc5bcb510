//! Observed changes of one node: the last ones, in twelve bytes each. Pure.

use std::collections::VecDeque;

use serde::Serialize;

/// Changes that are kept of each node.
const MOST: usize = 100;
/// Seconds within which changes of one kind are merged: a rollout must not fill thirty rows.
const TOGETHER: u32 = 5;

/// Kind of a change. The page's scripts use the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// 0 down, 1 up, 2 at another bridge.
    Link = 0,
    /// The Ready condition: 0 unknown, 1 true, 2 false.
    Ready = 1,
    /// Ready ones in the upper half of the value, wanted ones in the lower.
    Pods = 2,
    /// Restarts of containers.
    Restarts = 3,
    /// 1 in force, 2 gone back.
    Upgrade = 4,
    /// Bits: memory, disk, processes, voltage, heat, clock.
    Troubles = 5,
    /// 1 healthy, 2 in trouble.
    Storage = 6,
    /// Another version of the programs.
    Version = 7,
}

impl Kind {
    /// Value of [`Kind::Pods`]; a larger count than 65,535 is shown as that.
    #[must_use]
    pub fn pods(ready: u32, wanted: u32) -> u32 {
        (ready.min(0xffff) << 16) | wanted.min(0xffff)
    }
}

/// When (seconds since 1970), which kind, and the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Change(pub u32, pub u8, pub u32);

/// The last changes of one node.
#[derive(Clone, Debug, Default)]
pub struct Timeline(VecDeque<Change>);

impl Timeline {
    /// Something is different since `at`, in seconds since 1970.
    pub fn note(&mut self, at: u32, kind: Kind, value: u32) {
        if let Some(last) = self.0.back_mut()
            && last.1 == kind as u8
            && at.saturating_sub(last.0) <= TOGETHER
        {
            match kind {
                Kind::Restarts => last.2 = last.2.saturating_add(value),
                Kind::Pods => last.2 = value,
                _ => return self.push(at, kind, value),
            }
            return;
        }
        self.push(at, kind, value);
    }

    fn push(&mut self, at: u32, kind: Kind, value: u32) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(Change(at, kind as u8, value));
    }

    /// The oldest first.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        self.0.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_stay_and_those_of_a_moment_are_one() {
        let mut line = Timeline::default();
        line.note(10, Kind::Restarts, 1);
        line.note(12, Kind::Restarts, 2);
        line.note(13, Kind::Pods, Kind::pods(1, 3));
        line.note(14, Kind::Pods, Kind::pods(3, 3));
        line.note(15, Kind::Link, 0);
        line.note(15, Kind::Link, 1);
        let all = line.changes();
        assert_eq!(all, [Change(10, 3, 3), Change(13, 2, 3 << 16 | 3), Change(15, 0, 0), Change(15, 0, 1)]);
        for at in 0..500 {
            line.note(100 + at * 10, Kind::Link, at % 2);
        }
        assert_eq!((line.changes().len(), line.changes()[MOST - 1].0), (MOST, 100 + 4990));
        assert_eq!(size_of::<Change>(), 12);
    }

    #[test]
    fn many_pods_are_shown_as_many() {
        assert_eq!(Kind::pods(0, 1), 1);
        assert_eq!(Kind::pods(65_535, 65_535), u32::MAX);
        assert_eq!(Kind::pods(65_536, 65_536), u32::MAX);
        assert_eq!(Kind::pods(u32::MAX, 0), 0xffff_0000);
    }
}
