//! Rate of the requests of a node's pods: each costs the API a connection or a turn, also one that its pod cancels at
//! once. Pure.

use std::time::Duration;

/// Interval of requests in the long run: 50 in a second.
const EACH: Duration = Duration::from_millis(20);
/// Time for which requests may come at once, which is 200: pods list again when the link is back.
const BURST: Duration = Duration::from_secs(4);

/// Rate of one connection. Times are of its clock.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Rate {
    /// Time at which all requests so far have been earned.
    paid: Duration,
}

impl Rate {
    /// Counts a request; false if it comes too early.
    pub(in crate::bridge) fn take(&mut self, now: Duration) -> bool {
        let paid = self.paid.max(now).saturating_add(EACH);
        let fits = paid <= now.saturating_add(BURST);
        if fits {
            self.paid = paid;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_burst_and_a_rate() {
        let (mut rate, start) = (Rate::default(), Duration::from_secs(100));
        let passed = |rate: &mut Rate, now| (0..10_000).filter(|_| rate.take(now)).count();
        assert_eq!(passed(&mut rate, start), 200);
        assert_eq!(passed(&mut rate, start + Duration::from_secs(1)), 50);
        assert_eq!(passed(&mut rate, start + Duration::from_secs(1)), 0, "a refused one costs nothing");
        assert_eq!(passed(&mut rate, start + Duration::from_secs(60)), 200);
    }
}
