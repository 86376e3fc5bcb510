//! How often pods are measured: soon again while they grow, rarely when nothing moves, never so often that the
//! measuring itself is a load. Pure.

use std::time::Duration;

use super::walk::Answers;
use crate::pod::clock::Mono;

/// The kubelet's eviction interval.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(60);
/// A walk may take this part of the time at most ...
const SHARE: u32 = 100;
/// ... as long as the pause does not exceed this: a slow walk must not switch limits off.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// When to walk next.
#[derive(Debug, Default)]
pub struct Cadence {
    due: Option<Mono>,
    pause: Duration,
    last: Answers,
}

impl Cadence {
    pub fn is_due(&self, now: Mono) -> bool {
        self.due.is_none_or(|due| due <= now)
    }

    /// A walk from `began` to `now` found this.
    pub fn walked(&mut self, found: Answers, began: Mono, now: Mono) {
        self.pause = if found == self.last { (self.pause * 2).clamp(SHORTEST, LONGEST) } else { SHORTEST };
        self.pause = self.pause.max((now.since(began) * SHARE).min(LONGEST_PAUSE));
        self.last = found;
        self.due = Some(now.after(self.pause));
    }

    /// A pod came or went.
    pub fn changed(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{DiskUsage, Used};
    use super::*;

    #[test]
    fn still_pods_are_measured_once_a_minute() {
        let at = |seconds: u64| Mono(seconds * 1000);
        let found = |inodes| {
            let files = Used { bytes: 0, inodes };
            Answers::from([("u".to_owned(), DiskUsage { files, ..DiskUsage::default() })])
        };
        let mut cadence = Cadence::default();
        assert!(cadence.is_due(at(0)));
        let mut now = 0;
        let mut pauses = Vec::new();
        for inodes in [1, 1, 1, 1, 1, 2] {
            cadence.walked(found(inodes), at(now), at(now));
            let pause = (1..).find(|pause| cadence.is_due(at(now + pause))).unwrap();
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses, [10, 20, 40, 60, 60, 10]);
        cadence.walked(found(2), at(now), at(now + 3));
        assert!(!cadence.is_due(at(now + 3 + 299)) && cadence.is_due(at(now + 3 + 300)));
    }

    #[test]
    fn a_slow_walk_pauses_ten_minutes_at_most() {
        let at = |seconds: u64| Mono(seconds * 1000);
        let mut cadence = Cadence::default();
        cadence.walked(Answers::new(), at(0), at(3600));
        assert!(!cadence.is_due(at(3600 + 599)) && cadence.is_due(at(3600 + 600)));
    }
}
