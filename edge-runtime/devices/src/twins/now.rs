//! Time, as an input of the core, and values with their time. Does not read a clock.

use sampan_devices_control::Text;
use serde::{Deserialize, Serialize};

/// The clocks while one event is processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of running: what everything waits by.
    pub mono: u64,
    /// Milliseconds since 1970: what is shown.
    pub wall: u64,
}

/// One minute in milliseconds.
pub(super) const MINUTE: u64 = 60_000;

/// A value and when it came to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamped {
    pub(super) value: Text,
    /// Wall clock; not yet set if `unsynchronized`.
    pub(super) at: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unsynchronized: bool,
}

/// Returns how values are stamped now. A function, so that a device may be borrowed meanwhile.
pub(super) fn stamper(now: Now, clock_set: bool) -> impl Fn(Text) -> Stamped {
    move |value| Stamped { value, at: now.wall, unsynchronized: !clock_set }
}

/// Formats a time in seconds and UTC; empty for 0, which means never.
pub(super) fn rfc3339(wall: u64) -> String {
    let seconds = i64::try_from(wall / 1_000).ok().filter(|_| wall > 0);
    seconds.and_then(|at| jiff::Timestamp::from_second(at).ok()).map(|at| at.to_string()).unwrap_or_default()
}

/// Formats a time in milliseconds and UTC.
pub(super) fn rfc3339_millis(wall: u64) -> String {
    let at = i64::try_from(wall).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map(|at| format!("{at:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_seconds() {
        assert_eq!(rfc3339(1_700_000_000_999), "2023-11-14T22:13:20Z");
        assert_eq!(rfc3339(0), "");
        assert_eq!(rfc3339(u64::MAX), "");
        assert_eq!(rfc3339_millis(1_700_000_000_020), "2023-11-14T22:13:20.020Z");
        assert_eq!(rfc3339_millis(u64::MAX), "");
    }
}
