//! Exponential back-off on boot time, as a value that is stored with the container.
//!
//! Follows the kubelet: 10 s, doubled on every failure, at most 300 s, forgotten after 10 minutes without one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::Mono;

const FIRST: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(300);
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Upper bound of [`pause_after`].
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the kernel or the disk refuses for now (a mount in use, a medium that takes nothing) is tried again after this: 1 s
/// at first, doubled with each of the `failures` before, at most 30 s.
#[must_use]
pub fn pause_after(failures: u32) -> Duration {
    Duration::from_secs(1u64.checked_shl(failures).unwrap_or(u64::MAX)).min(LONGEST_PAUSE)
}

/// The delay now in force and when it last grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub delay_s: u32,
    pub updated: Mono,
}

impl Backoff {
    /// The next longer delay, or the first one when `old` is missing or was left alone long enough
    /// before `event` (the failure that asks).
    #[must_use]
    pub fn next(old: Option<Self>, event: Mono, now: Mono) -> Self {
        let delay_s = match old {
            Some(b) if !b.expired(event) => b.delay_s.saturating_mul(2).min(secs(MAX)),
            _ => secs(FIRST),
        };
        Self { delay_s, updated: now }
    }

    /// When the next try may be made after a failure at `event`; `None` when it may be made at once.
    pub fn until(self, event: Mono, now: Mono) -> Option<Mono> {
        if self.expired(event) {
            return None;
        }
        let at = event.after(Duration::from_secs(self.delay_s.into()));
        (now < at).then_some(at)
    }

    fn expired(self, event: Mono) -> bool {
        event.since(self.updated) > FORGET_AFTER
    }

    /// The delay as Go prints a duration (`10s`, `1m20s`, `5m0s`): messages are compared by users' tools.
    pub fn text(self) -> String {
        match self.delay_s {
            s if s < 60 => format!("{s}s"),
            s => format!("{}m{}s", s / 60, s % 60),
        }
    }
}

fn secs(d: Duration) -> u32 {
    u32::try_from(d.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(s * 1000)
    }

    #[test]
    fn doubles_to_the_cap_and_is_forgotten() {
        let mut b = Backoff::next(None, at(0), at(0));
        let mut seen = vec![b.delay_s];
        for _ in 0..6 {
            b = Backoff::next(Some(b), b.updated, b.updated);
            seen.push(b.delay_s);
        }
        assert_eq!(seen, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(Backoff::next(Some(b), b.updated.after(Duration::from_secs(601)), at(9999)).delay_s, 10);
        assert_eq!(Backoff::next(Some(b), b.updated.after(Duration::from_secs(600)), at(9999)).delay_s, 300);
    }

    #[test]
    fn window_counts_from_the_failure() {
        let b = Backoff { delay_s: 20, updated: at(100) };
        assert_eq!(b.until(at(110), at(115)), Some(at(130)));
        assert_eq!(b.until(at(110), at(130)), None);
        assert_eq!(b.until(at(701), at(702)), None);
    }

    #[test]
    fn what_is_refused_is_tried_less_and_less_often() {
        let pauses = [0, 1, 2, 4, 5, 63, 64, u32::MAX].map(|failures| pause_after(failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 16, 30, 30, 30, 30]);
    }

    #[test]
    fn reads_like_go() {
        let text = |delay_s| Backoff { delay_s, updated: Mono(0) }.text();
        assert_eq!([text(10), text(80), text(300)], ["10s", "1m20s", "5m0s"]);
    }
}
