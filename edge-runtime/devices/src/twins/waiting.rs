//! What one device waits for: to be reported, and to be announced to MQTT listeners.

use std::collections::BTreeMap;

use sampan_devices_control::Text;

use super::documents::Twin;

/// How one device waits for its report.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// It has changed, and waits since.
    pub(super) since: Option<u64>,
    /// A state or an observed desired value has changed.
    pub(super) urgent: bool,
    /// The device has repeated a value.
    pub(super) again: bool,
    /// When it was last put into a batch.
    pub(super) last: Option<u64>,
}

/// Pending messages about one device.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// When; none if there is nothing.
    pub(super) at: Option<u64>,
    pub(super) last: Option<u64>,
    /// Pause before the delta is repeated.
    pub(super) again: u64,
    /// That is all the reason there is for [`at`](Self::at).
    pub(super) by_time: bool,
    pub(super) added: bool,
    /// All that the device is not as it is wanted.
    pub(super) all: bool,
    /// The properties of which another value is wanted, and how they were.
    pub(super) changed: BTreeMap<Text, Option<Twin>>,
}
