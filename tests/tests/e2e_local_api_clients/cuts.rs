//! Cuts of the link beside the work of a test: of many lengths, closed and silent in turn.

use std::time::{Duration, Instant};

use sampan_tests::{FaultProxy, Faults};

/// Lengths of the cuts in turn, as hundredths of the longest one.
const LENGTHS: [u32; 6] = [0, 10, 50, 20, 100, 30];
const SHORTEST: Duration = Duration::from_secs(1);
/// Between two cuts, and beside it half of the last one: a node waits that long before it dials again.
const BETWEEN: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(90);

/// A link that is cut whenever it is time.
pub(crate) struct Cuts<'a> {
    proxy: &'a FaultProxy,
    longest: Duration,
    /// Cuts that have begun.
    count: usize,
    is_down: bool,
    until: Instant,
}

/// Length of the cut of this number.
fn length(number: usize, longest: Duration) -> Duration {
    (longest * LENGTHS[number % LENGTHS.len()] / 100).max(SHORTEST)
}

/// Time until the next cut, after one of this length.
fn pause(length: Duration) -> Duration {
    (BETWEEN + length / 2).min(LONGEST_PAUSE)
}

impl<'a> Cuts<'a> {
    pub(crate) fn new(proxy: &'a FaultProxy, longest: Duration) -> Self {
        Self { proxy, longest, count: 0, is_down: false, until: Instant::now() + BETWEEN }
    }

    /// Begins or ends a cut if it is time.
    pub(crate) fn step(&mut self) {
        if Instant::now() < self.until {
            return;
        }
        let length = length(self.count, self.longest);
        if self.is_down {
            self.proxy.set(Faults::default());
            self.count += 1;
            self.until = Instant::now() + pause(length);
        } else if self.count.is_multiple_of(2) {
            self.proxy.set(Faults { refuse: true, ..Faults::default() });
            self.proxy.cut();
            self.until = Instant::now() + length;
        } else {
            self.proxy.set(Faults::silence());
            self.until = Instant::now() + length;
        }
        self.is_down = !self.is_down;
    }

    /// Ends the cuts; returns how many there were.
    pub(crate) fn end(self) -> usize {
        self.proxy.set(Faults::default());
        self.count + usize::from(self.is_down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_from_a_second_to_the_longest() {
        let longest = Duration::from_secs(600);
        let all: Vec<Duration> = (0..LENGTHS.len()).map(|number| length(number, longest)).collect();
        assert_eq!(all.iter().min(), Some(&SHORTEST));
        assert_eq!(all.iter().max(), Some(&longest));
        assert_eq!(length(LENGTHS.len(), longest), all[0], "they begin again");
        assert_eq!(pause(SHORTEST), Duration::from_millis(3_500));
        assert_eq!(pause(longest), LONGEST_PAUSE);
    }
}
