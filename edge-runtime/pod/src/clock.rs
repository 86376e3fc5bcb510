//! Time as the pod logic sees it: one reading of both clocks, handed in by the caller.
//!
//! Wall time is only ever shown (status, events); every timer runs on boot time, so a clock that jumps from 1970
//! to today moves no back-off and no grace period. Boot times are void after a reboot, which the boot id shows.

use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Milliseconds of CLOCK_BOOTTIME. Comparable only with readings of the same boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mono(pub u64);

impl Mono {
    pub fn from_duration(since_boot: Duration) -> Self {
        Self(u64::try_from(since_boot.as_millis()).unwrap_or(u64::MAX))
    }

    pub fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// This moment plus `d`, at the latest the end of time.
    #[must_use]
    pub fn after(self, d: Duration) -> Self {
        Self(self.0.saturating_add(Self::from_duration(d).0))
    }

    /// Time passed from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// One reading of the clocks, taken by the node loop once per turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Now {
    pub wall: Timestamp,
    pub mono: Mono,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Rc<str>,
}
