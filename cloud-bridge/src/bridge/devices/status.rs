//! Computes what to write, from a report, its Device and the present DeviceStatus. Pure.
//!
//! A merge patch replaces the whole list of twins, so the new list has the values of the report and, for properties
//! that the report omits, the present ones, as long as the Device has the property. Nothing of an earlier Device of the
//! same name stays. Other clients' entries in `extensions` stay.

use edge_protocol::message::{DeviceReport, TwinReport, TwinValue};
use sampan_json::SetField;
use serde_json::{Map, Value, json};

use super::checked::{Checked, check};
use super::stale::{OURS, STALE, STATE_WAS};
use super::view::Device;
use crate::bridge::told::kinds::{DEVICES_API, Kind};

pub(super) const KIND: &str = "DeviceStatus";

/// The node that reports.
#[derive(Clone, Copy)]
pub struct Speaker<'a> {
    pub node: &'a str,
    /// Fencing number of its connection; for one node, the higher number is newer.
    pub session: u64,
    /// The present time at the bridge, for users.
    pub now: &'a str,
}

/// What to write.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// The report, or a newer one, is in the API already.
    Nothing,
    /// A new object, complete.
    Create(Value),
    Patch {
        /// Patch of the status, on the version that was read.
        status: Value,
        /// Patch of the object itself, after that of the status: it does not have an owner yet.
        owner: Option<Value>,
    },
    /// Another node has written the status. The caller must check that the Device is still this node's.
    Confirm,
    /// The status belongs to an earlier Device, and will be deleted with it.
    Earlier,
}

/// Returns what to write for a report, and which parts of the report are refused. `confirmed`: the Device is known to
/// be assigned to the speaker at a time after `existing` was read.
pub fn plan(
    existing: Option<&Value>,
    device: &Device,
    report: &DeviceReport,
    speaker: Speaker<'_>,
    confirmed: bool,
) -> (Plan, Vec<String>) {
    let checked = check(report, &device.properties);
    let plan = decide(existing, device, report, &checked, speaker, confirmed);
    (plan, checked.refused)
}

fn decide(
    existing: Option<&Value>,
    device: &Device,
    report: &DeviceReport,
    checked: &Checked<'_>,
    speaker: Speaker<'_>,
    confirmed: bool,
) -> Plan {
    let owner = owner(report, device);
    let Some(existing) = existing else {
        let metadata = json!({"namespace": report.namespace, "name": report.name, "ownerReferences": [owner]});
        let status = wanted(&Value::Null, device, report, checked, speaker);
        return Plan::Create(
            json!({"apiVersion": DEVICES_API, "kind": KIND, "metadata": metadata, "spec": {}, "status": status}),
        );
    };
    let owners = existing["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_device = || owners.iter().filter(|owner| owner["kind"] == Kind::Device.name());
    let owned = of_device().any(|owner| owner["uid"] == *device.uid);
    if !owned && of_device().next().is_some() {
        return Plan::Earlier;
    }
    // Without an owner it may belong to an earlier Device that has been deleted.
    let before = if owned { &existing["status"] } else { &Value::Null };
    let said = &before["extensions"][OURS];
    let by_other = said["node"].as_str().is_some_and(|node| node != speaker.node);
    if by_other && !confirmed {
        return Plan::Confirm;
    }
    let (session, seq) = (said["session"].as_u64().unwrap_or_default(), said["seq"].as_u64().unwrap_or_default());
    if !by_other && (session > speaker.session || (session == speaker.session && seq > report.seq)) {
        return Plan::Nothing;
    }
    let status = wanted(before, device, report, checked, speaker);
    // The first report of a session is always written: a late write of an older connection then fails by its version.
    let says_nothing = checked.twins.is_empty() && checked.state.is_none();
    if owned && !by_other && (session == speaker.session || says_nothing) && !changes(&existing["status"], &status) {
        return Plan::Nothing;
    }
    let version = &existing["metadata"]["resourceVersion"];
    let mut body = status;
    leave_out(&mut body, &existing["status"]);
    let owner = (!owned).then(|| {
        let owners: Vec<&Value> = owners.iter().chain([&owner]).collect();
        json!({"metadata": {"ownerReferences": owners}})
    });
    Plan::Patch { status: json!({"metadata": {"resourceVersion": version}, "status": body}), owner }
}

/// The status as it should be, without the entries of other clients.
fn wanted(
    before: &Value,
    device: &Device,
    report: &DeviceReport,
    checked: &Checked<'_>,
    speaker: Speaker<'_>,
) -> Value {
    // Counts of another node are not comparable.
    let of_speaker = &before["extensions"][OURS];
    let written = of_speaker["seq"].as_u64().filter(|_| of_speaker["node"] == speaker.node).unwrap_or_default();
    let twins: Vec<Value> = device
        .properties
        .iter()
        .filter_map(|property| twin(property, before, written, checked.twins.get(&**property)))
        .collect();
    let mut status = json!({ "twins": twins });
    let mut ours = json!({"node": speaker.node, "session": speaker.session, "seq": report.seq});
    let old = &before["extensions"][OURS];
    let stated =
        checked.state.filter(|state| !(state.kept && old["stateAt"].as_u64().is_some_and(|at| at > state.at_ms)));
    let said = stated.map(|state| (state.state.as_str(), state.last_online.as_str()));
    let (state, last_online) = said.unwrap_or_default();
    // The report ends the mark that the status is stale.
    let state_was = old[STATE_WAS].as_str().or_else(|| before["state"].as_str());
    let or_before = |said: &str, field: &str| match (said, field) {
        ("", "state") => state_was.map(Value::from),
        ("", _) => before[field].as_str().map(Value::from),
        (said, _) => Some(said.into()),
    };
    let now = [("state", state), ("lastOnlineTime", last_online)];
    now.into_iter()
        .for_each(|(field, said)| or_before(said, field).into_iter().for_each(|text| status.set(field, text)));
    let state_at = stated.map(|state| state.at_ms).filter(|at| *at > 0).or_else(|| old["stateAt"].as_u64());
    if let Some(at) = state_at {
        ours.set("stateAt", at.into());
    }
    // While the state is the same, its time stays.
    let since = old["since"].as_str();
    let since = since.filter(|_| state.is_empty() || state_was == Some(state));
    if let Some(since) = since.or_else(|| said.map(|_| speaker.now)) {
        ours.set("since", since.into());
    }
    if !checked.refused.is_empty() {
        ours.set("refused", json!(checked.refused));
    }
    status.set("extensions", json!({ OURS: ours }));
    status
}

/// One property, if anything is known of it. `written`: `seq` of the report that is in the API.
fn twin(property: &str, before: &Value, written: u64, report: Option<&&TwinReport>) -> Option<Value> {
    let twins = before["twins"].as_array().into_iter().flatten();
    let old = twins.into_iter().find(|twin| twin["propertyName"] == *property).unwrap_or(&Value::Null);
    let mut twin = json!({ "propertyName": property });
    let said = |side: fn(&TwinReport) -> &Option<TwinValue>| report.and_then(|report| side(report).as_ref());
    for (field, said) in [("reported", said(|twin| &twin.reported)), ("observedDesired", said(|twin| &twin.observed))] {
        match said.filter(|value| !(value.kept && is_later(&old[field], written, value))) {
            Some(value) => twin.set(field, told(value)),
            None if old[field]["value"].is_string() => twin.set(field, old[field].clone()),
            None => {}
        }
    }
    twin.as_object().is_some_and(|fields| fields.len() > 1).then_some(twin)
}

/// Whether the value in the API is newer than this one, which the node kept. A clock that is not set decides nothing.
fn is_later(there: &Value, written: u64, value: &TwinValue) -> bool {
    if value.kept_seq > 0 && written > value.kept_seq && there["value"].is_string() {
        return true;
    }
    if value.unsynchronized || there["metadata"]["clock"] == "unsynchronized" {
        return false;
    }
    let at = there["metadata"]["timestamp"].as_str().and_then(|at| at.parse().ok());
    at.is_some_and(|at: u64| at > value.at_ms)
}

fn told(value: &TwinValue) -> Value {
    let mut metadata = json!({"timestamp": value.at_ms.to_string()});
    if !value.kind.is_empty() {
        metadata.set("type", value.kind.as_str().into());
    }
    if value.unsynchronized {
        metadata.set("clock", "unsynchronized".into());
    }
    json!({"value": value.value, "metadata": metadata})
}

fn owner(report: &DeviceReport, device: &Device) -> Value {
    json!({"apiVersion": DEVICES_API, "kind": Kind::Device.name(), "name": report.name, "uid": device.uid, "controller": true,
        "blockOwnerDeletion": true})
}

/// Whether the change is worth a write: a change of only the reporting node or the counters is not.
fn changes(there: &Value, wanted: &Value) -> bool {
    let differs = |field: &str| {
        let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty) || *value == "";
        there[field] != wanted[field] && !(empty(&there[field]) && empty(&wanted[field]))
    };
    let refused = |status: &Value| status["extensions"][OURS]["refused"].clone();
    let is_stale = there["extensions"][OURS][STALE] == true;
    is_stale || ["twins", "state", "lastOnlineTime"].into_iter().any(differs) || refused(there) != refused(wanted)
}

/// Sets fields to null that should not be there: a merge patch leaves fields alone that it does not name.
fn leave_out(wanted: &mut Value, there: &Value) {
    for field in ["state", "lastOnlineTime"] {
        if wanted.get(field).is_none() && there.get(field).is_some() {
            wanted.set(field, Value::Null);
        }
    }
    let stale: Map<String, Value> = there["extensions"][OURS].as_object().cloned().unwrap_or_default();
    for field in stale.keys() {
        if wanted["extensions"][OURS].get(field).is_none() {
            wanted.set_at(&["extensions", OURS, field], Value::Null);
        }
    }
}

#[cfg(test)]
mod tests;
