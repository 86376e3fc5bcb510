//! Stored state of holds: of the first start of a pod, and of its stop.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Mono;

/// Hold of the first start of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartHold {
    /// The pod was never held.
    #[default]
    Open,
    Held,
    /// The pod was held, and may start.
    Released,
}

impl StartHold {
    // serde hands over a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn is_open(&self) -> bool {
        *self == Self::Open
    }
}

/// A stop that waits for the pod's stop lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopHold {
    /// Begin, by the wall clock: for display only, as `until`.
    pub since: Timestamp,
    /// Latest end.
    pub until: Timestamp,
    /// Begin, by boot time.
    pub from: Mono,
}

impl StopHold {
    /// Message of the condition and event `StopHeld`.
    pub fn message(&self) -> String {
        let until = self.until.strftime("%Y-%m-%dT%H:%M:%SZ");
        format!(
            "a process holds the pod's stop lock: the stop begins when the lock is free, at the latest at {until}; \
             the grace period counts from then"
        )
    }
}
