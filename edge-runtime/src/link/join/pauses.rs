//! Waits of a device between its attempts to join. Pure: random numbers are passed in.

use std::time::Duration;

/// Seconds after each failed attempt: a network that comes up is there within seconds, one that has to be plugged in is not.
const SECONDS: [u64; 5] = [1, 2, 5, 10, 30];

/// Waits of one device, which get longer with each attempt.
#[derive(Debug, Default)]
pub struct Pauses {
    attempts: usize,
}

impl Pauses {
    /// Returns the wait before the next attempt. `named` is the number of seconds after which the bridge
    /// wants it; `random` is uniform.
    pub fn next(&mut self, named: Option<u64>, random: u32) -> Duration {
        let own = SECONDS[self.attempts.min(SECONDS.len() - 1)];
        self.attempts = self.attempts.saturating_add(1);
        pause(named.unwrap_or(own), random)
    }
}

/// Between one and one and a half times as long: boards that are switched on together do not ask together.
fn pause(seconds: u64, random: u32) -> Duration {
    Duration::from_millis(seconds * 1000 + ((seconds * 500 * u64::from(random)) >> 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e5_boards_ask_apart() {
        assert_eq!(pause(30, 0), Duration::from_secs(30));
        let longest = pause(3600, u32::MAX);
        assert!(longest < Duration::from_secs(5400) && longest > Duration::from_secs(5399), "{longest:?}");
    }

    #[test]
    fn waits_get_longer_unless_the_bridge_names_one() {
        let mut pauses = Pauses::default();
        let mut next = |named| pauses.next(named, 0).as_secs();
        assert_eq!([(); 4].map(|()| next(None)), [1, 2, 5, 10]);
        assert_eq!((next(Some(300)), next(None), next(None)), (300, 30, 30));
    }
}
