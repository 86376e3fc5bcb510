//! The time, as decisions take it in.

use std::time::Duration;

use jiff::Timestamp;

/// The time, twice: as it passes, and as it stands in objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Since a start that nobody knows.
    pub(crate) passed: Duration,
    /// In whole seconds.
    pub(crate) clock: Timestamp,
}
