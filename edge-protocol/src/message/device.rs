//! Reports of a node about its devices, and their results. Values only; nothing here is checked.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most devices in one batch.
pub const MAX_DEVICES: usize = 64;

/// Everything that is known of one device, newest only. A later report of the same device takes the place of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceReport {
    pub namespace: String,
    pub name: String,
    /// Uid of the Device object that the node holds.
    pub uid: String,
    /// Increases with each report of the device; starts over when the node has lost its store.
    pub seq: u64,
    /// `None` before the device has reported its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DeviceState>,
    /// Properties of which there is something to tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub twins: Vec<TwinReport>,
}

impl From<&DeviceReport> for Value {
    fn from(report: &DeviceReport) -> Self {
        // Cannot fail: a report does not have maps with keys other than strings, or values that refuse serialization.
        serde_json::to_value(report).unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceState {
    /// `ok`, `online`, `offline`, `unhealthy`, `unknown`.
    pub state: String,
    /// RFC 3339; empty if it never was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_online: String,
    /// Time since which it is so, by the node's clock: milliseconds since 1970; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_ms: u64,
    /// Same as that of a value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TwinReport {
    pub property: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<TwinValue>,
    /// Desired value that the device has observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<TwinValue>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TwinValue {
    pub value: String,
    /// When it came to be, by the node's clock: milliseconds since 1970.
    pub at_ms: u64,
    /// Type from the model, in lower case; empty if unknown.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Kept over a restart. Newer values may have been reported since, so it counts only if its time is later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// `seq` of the last report before it was kept: a later report is newer, whatever the clock was. 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_seq: u64,
    /// The node's clock was not set when it came to be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsynchronized: bool,
}

/// Something of a report that will never be in the API. Nothing else of the report is held back by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRefusal {
    /// Uid of the Device.
    pub uid: String,
    pub reason: String,
}
