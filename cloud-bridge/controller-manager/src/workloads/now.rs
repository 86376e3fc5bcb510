//! The time, as decisions take it in.

use std::time::Duration;

use jiff::Timestamp;

/// The time, twice: as it passes, and as it stands in objects.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Now {
    /// Since a start that nobody knows.
    pub(crate) passed: Duration,
    /// In whole seconds.
    pub(crate) clock: Timestamp,
}

impl Now {
    /// How long ago something was: by the time that an object tells, or by when this program saw it, if that is longer. A
    /// clock that is set back, or one that was ahead, so ends no wait later than it would end from what was seen.
    pub(crate) fn since(self, told: Option<Timestamp>, seen: Option<Duration>) -> Option<Duration> {
        let told = told.and_then(|told| Duration::try_from(self.clock.duration_since(told)).ok());
        told.max(seen.map(|seen| self.passed.saturating_sub(seen)))
    }
}
