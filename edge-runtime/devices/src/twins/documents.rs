//! Documents on MQTT: KubeEdge's JSON texts, with keys in KubeEdge's order. Values only.

use std::collections::BTreeMap;

use sampan_devices_control::Text;
use serde::Serialize;

/// The text of any of them.
pub(super) fn text(document: &impl Serialize) -> Vec<u8> {
    // All of their values exist in JSON.
    serde_json::to_vec(document).unwrap_or_default()
}

/// One property, as far as there is anything of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Twin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expected: Option<Valued>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) actual: Option<Valued>,
    pub(super) optional: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Kind>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Valued {
    pub(super) value: Text,
    pub(super) metadata: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Time {
    pub(super) timestamp: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Kind {
    #[serde(rename = "type")]
    pub(super) kind: Text,
}

/// Twins by property; `None` for a removed one.
pub(super) type TwinMap = BTreeMap<Text, Option<Twin>>;

/// `twin/update/result` and `twin/get/result`.
#[derive(Serialize)]
pub(super) struct TwinResult<'a> {
    pub(super) event_id: &'a str,
    pub(super) timestamp: u64,
    pub(super) twin: &'a TwinMap,
}

/// The answer to what cannot be done.
#[derive(Serialize)]
pub(super) struct Refusal<'a> {
    pub(super) event_id: &'a str,
    pub(super) timestamp: u64,
    pub(super) code: u16,
    pub(super) reason: &'a str,
}

/// `twin/update/delta`.
#[derive(Serialize)]
pub(super) struct Delta<'a> {
    pub(super) event_id: &'a str,
    pub(super) timestamp: u64,
    pub(super) twin: &'a TwinMap,
    pub(super) delta: &'a BTreeMap<Text, Text>,
}

/// `twin/update/document`.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    pub(super) event_id: &'a str,
    pub(super) timestamp: u64,
    pub(super) twin: &'a BTreeMap<Text, Step>,
}

/// How a property was and is.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    pub(super) last: Option<Twin>,
    pub(super) current: Option<Twin>,
}

/// `state/update/result`.
#[derive(Serialize)]
pub(super) struct StateResult<'a> {
    pub(super) event_id: &'a str,
    pub(super) timestamp: u64,
    pub(super) device: DeviceState<'a>,
}

#[derive(Serialize)]
pub(super) struct DeviceState<'a> {
    pub(super) name: &'a str,
    pub(super) state: &'a str,
    #[serde(rename = "lastOnlineTime", skip_serializing_if = "String::is_empty")]
    pub(super) last_online: String,
}

/// `membership/get/result`.
#[derive(Serialize)]
pub(super) struct Membership<'a> {
    pub(super) event_id: &'a str,
    pub(super) timestamp: u64,
    pub(super) devices: Vec<Member>,
}

/// `membership/updated`.
#[derive(Serialize)]
pub(super) struct MembershipUpdated<'a> {
    pub(super) event_id: &'a str,
    pub(super) timestamp: u64,
    pub(super) added_devices: Option<[Member; 1]>,
    pub(super) removed_devices: Option<[Member; 1]>,
}

/// A device in membership documents; empty fields are omitted.
#[derive(Default, Serialize)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) name: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(super) description: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(super) state: Text,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) last_online: String,
}
