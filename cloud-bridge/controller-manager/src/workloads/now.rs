//! The time, as input of decisions.

use std::time::Duration;

use jiff::Timestamp;

/// The time by the monotonic clock, and as written in objects.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Now {
    /// Monotonic time since an arbitrary start.
    pub(crate) passed: Duration,
    /// Wall clock, in whole seconds.
    pub(crate) clock: Timestamp,
}

/// A clock before 2024-01-01 is not set, and times by it are ignored.
const CLOCK_FLOOR: i64 = 1_704_067_200;

/// Since when something lasts: how old it was when this program first saw it, and when that was. A clock that is set later
/// does not change its age, one that was wrong ends nothing early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    at: Duration,
    age: Duration,
}

impl Now {
    /// Whether the clock can be right.
    pub(crate) fn is_known(self) -> bool {
        is_known(self.clock)
    }

    /// An event that is first seen now and happened at this time, according to an object.
    pub(crate) fn sight(self, told: Timestamp) -> Sight {
        let age = Duration::try_from(self.clock.duration_since(told)).ok();
        let age = age.filter(|_| self.is_known() && is_known(told)).unwrap_or_default();
        Sight { at: self.passed, age }
    }

    /// How long it has lasted.
    pub(crate) fn age(self, sight: Sight) -> Duration {
        sight.age.saturating_add(self.passed.saturating_sub(sight.at))
    }

    /// Time since an event: by the time in an object, or since this program saw it, if that is longer. So a clock that
    /// was set back, or was ahead once, does not extend a wait beyond that.
    pub(crate) fn since(self, told: Option<Timestamp>, seen: Option<Duration>) -> Option<Duration> {
        let told = told.filter(|told| self.is_known() && is_known(*told));
        let told = told.and_then(|told| Duration::try_from(self.clock.duration_since(told)).ok());
        told.max(seen.map(|seen| self.passed.saturating_sub(seen)))
    }
}

fn is_known(time: Timestamp) -> bool {
    time.as_second() >= CLOCK_FLOOR
}
