//! How long to wait before the next dial: exponential with full jitter, so that a thousand nodes that lost
//! the same bridge do not come back in the same second. Pure: randomness is handed in.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// A connection that lasted this long was a good one: the next failure starts again at the shortest wait.
pub const GOOD: Duration = Duration::from_secs(30);

/// Failed attempts in a row.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Waits near the longest from now on: the bridge said no, and will say it again.
    pub fn refused(&mut self) {
        self.failures = self.failures.max(6);
    }

    /// Wait before the next attempt; `random` is uniform. Between a tenth of a second and a minute.
    pub fn next(&mut self, random: u32) -> Duration {
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(f64::from(random) / f64::from(u32::MAX)).max(FIRST / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_a_minute_and_starts_again() {
        let mut backoff = Backoff::default();
        let longest: Vec<u64> = (0..8).map(|_| backoff.next(u32::MAX).as_secs()).collect();
        assert_eq!(longest, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.next(0), Duration::from_millis(100), "never a busy loop");
        assert_eq!(backoff.next(u32::MAX / 2).as_secs(), 29, "jitter is full");
        backoff.reset();
        assert_eq!(backoff.next(u32::MAX).as_secs(), 1);
        backoff.refused();
        assert_eq!(backoff.next(u32::MAX).as_secs(), 60);
    }
}
