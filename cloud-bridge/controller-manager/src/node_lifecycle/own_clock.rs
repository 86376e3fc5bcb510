//! A clock that stops while its own thread is blocked. Pure.

use std::time::Duration;

/// How often it has to be asked.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// A gap between two checks from which the thread counts as late.
const LATE: Duration = Duration::from_secs(2);

/// Measures the time in which nodes could be heard. While the thread was late, their messages waited to be read: that
/// time does not count as silence.
#[derive(Debug, Default)]
pub(super) struct OwnClock {
    last: Duration,
    lost: Duration,
}

impl OwnClock {
    /// The time, `elapsed` after the start.
    pub(super) fn now(&mut self, elapsed: Duration) -> Duration {
        let gap = elapsed.saturating_sub(self.last);
        if gap > LATE {
            self.lost = self.lost.saturating_add(gap.saturating_sub(TICK));
        }
        self.last = self.last.max(elapsed);
        self.last.saturating_sub(self.lost)
    }

    /// How long after the start it is this time, if nothing more is lost.
    pub(super) fn elapsed_at(&self, time: Duration) -> Duration {
        time.saturating_add(self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_thread_was_late_does_not_count() {
        let s = Duration::from_secs;
        let mut clock = OwnClock::default();
        assert_eq!([1, 2, 3].map(|at| clock.now(s(at))), [s(1), s(2), s(3)]);
        assert_eq!((clock.now(s(63)), clock.now(s(64))), (s(4), s(5)));
        assert_eq!(clock.elapsed_at(s(10)), s(69));
        assert_eq!(clock.now(s(60)), s(5), "it does not go back");
    }
}
