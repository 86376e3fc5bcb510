//! How long to wait before the next dial: exponential with full jitter, so that a thousand nodes that lost
//! the same bridge do not come back in the same second. Pure: randomness and time are handed in.
//!
//! A wait is also at most half of the time already spent without the bridge: a short outage is followed by a quick
//! return (no node is called NotReady for twenty seconds without a network), and only a long one by patience.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// A connection that lasted this long was a good one: the next failure starts again at the shortest wait.
pub const GOOD: Duration = Duration::from_secs(10);

/// Failures at which waits are the longest: 2^6 s is above [`LONGEST`].
const MOST: u32 = 6;
/// Failures counted against a bridge that takes us in and then loses us: waits of up to 8 s.
const BRIEF: u32 = 3;

/// Failed attempts in a row.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
    refused: bool,
    /// When the last good connection ended; `None` before the first failure after it.
    lost: Option<Duration>,
}

impl Backoff {
    /// The last connection was a good one, or the network is another: all starts again.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The bridge let us in, but not for long.
    pub fn brief(&mut self) {
        self.failures = self.failures.min(BRIEF);
        self.refused = false;
    }

    /// Uses nearly the longest delay from now on: the bridge refused, and will refuse again.
    pub fn refused(&mut self) {
        self.failures = self.failures.max(MOST);
        self.refused = true;
    }

    /// Wait before the next attempt; `random` is uniform, `now` of a clock that does not jump. Between a tenth of a
    /// second and a minute.
    pub fn next(&mut self, random: u32, now: Duration) -> Duration {
        let offline = now.saturating_sub(*self.lost.get_or_insert(now));
        let patience = if self.refused { LONGEST } else { (offline / 2).max(FIRST) };
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(MOST)).min(LONGEST).min(patience);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(f64::from(random) / f64::from(u32::MAX)).max(FIRST / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g14_doubles_to_a_minute_and_starts_again() {
        let mut backoff = Backoff::default();
        let mut now = Duration::from_secs(500);
        let mut longest = Vec::new();
        for _ in 0..12 {
            let wait = backoff.next(u32::MAX, now);
            longest.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(longest, [1, 1, 1, 1, 2, 3, 5, 7, 11, 17, 25, 38], "as long as half of the outage");
        assert_eq!(backoff.next(u32::MAX, now + LONGEST).as_secs(), 60, "never longer");
        assert_eq!(backoff.next(0, now), Duration::from_millis(100), "never a busy loop");
        assert_eq!(backoff.next(u32::MAX / 2, now + LONGEST * 2).as_secs(), 29, "jitter is full");
        backoff.reset();
        assert_eq!(backoff.next(u32::MAX, now).as_secs(), 1);
        backoff.refused();
        assert_eq!(backoff.next(u32::MAX, now).as_secs(), 60, "a bridge that says no is left alone at once");
        backoff.brief();
        assert_eq!(backoff.next(u32::MAX, now + LONGEST).as_secs(), 8, "one that loses us is not");
    }

    /// However the dice fall: after an outage of `seconds` a node is back before one and a half times that.
    #[test]
    fn g14_short_outages_end_soon() {
        let mut random = 1u32;
        for _ in 0..1000 {
            let (mut backoff, mut now) = (Backoff::default(), Duration::ZERO);
            let outage = Duration::from_secs(20);
            while now < outage {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                now += backoff.next(random, now);
            }
            assert!(now <= outage * 3 / 2 + FIRST, "{now:?}");
        }
    }
}
