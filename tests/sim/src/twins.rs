//! Devices in the API: objects, their model, their statuses and the invariants of those; and a bridge's watch of them.

use std::collections::{BTreeMap, HashMap};

use cloud_bridge::bridge::devices::{Device, Index, Model, Plan, Speaker, plan};
use cloud_bridge::bridge::world::Group;
use edge_protocol::message::{DeviceRefusal, DeviceReport, ObjectKey};
use serde_json::{Value, json};

use crate::api::NODE;
use crate::rng::Rng;

/// Kind of the group, as in `cloud_bridge::bridge::told::kinds`.
pub const GROUP: &str = "DeviceViews";
/// Annotation with the version of an object.
pub const VERSION: &str = "sampan.dev/version";
pub const NAMES: [&str; 3] = ["x", "y", "z"];

/// A Device of the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub uid: String,
    /// Desired value of its `led`.
    pub desired: u64,
    /// Whether it is bound to another node.
    pub elsewhere: bool,
    version: u64,
}

/// Objects by name, and the version of the one model.
pub type Objects = (BTreeMap<&'static str, Object>, Option<u64>);

#[derive(Debug, Default)]
pub struct Devices {
    pub on: bool,
    pub objects: Objects,
    /// DeviceStatuses by name.
    statuses: BTreeMap<&'static str, Value>,
    /// The newest value that the API has shown, by uid of the device and property.
    shown: HashMap<(String, String), u64>,
    counter: u64,
    pub writes: u64,
}

impl Devices {
    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// One random change by a user, or the consequence of an earlier one.
    pub fn change(&mut self, rng: &mut Rng) {
        let number = self.next();
        let name = NAMES[rng.below(NAMES.len())];
        let (objects, model) = &mut self.objects;
        match objects.get_mut(name) {
            _ if rng.once_in(6) => *model = if rng.once_in(3) { None } else { Some(number) },
            _ if rng.once_in(4) => self.collect(),
            None => {
                let (uid, elsewhere) = (format!("d{number}"), rng.once_in(8));
                let object = Object { uid, desired: number, elsewhere, version: number };
                objects.insert(name, object);
            }
            Some(_) if rng.once_in(5) => drop(objects.remove(name)),
            Some(object) => {
                object.version = number;
                match rng.once_in(5) {
                    true => object.elsewhere = !object.elsewhere,
                    false => object.desired = number,
                }
            }
        }
    }

    /// Deletes the statuses of deleted devices.
    pub fn collect(&mut self) {
        let objects = &self.objects.0;
        self.statuses.retain(|name, status| {
            let owner = &status["metadata"]["ownerReferences"][0]["uid"];
            objects.get(name).is_some_and(|object| *owner == *object.uid)
        });
    }

    fn device(&self, name: &str) -> Option<Device> {
        let object = self.objects.0.get(name)?;
        read_device(name, object)
    }

    /// Whether a Device or the model of this name has this uid.
    pub fn has(&self, name: &str, uid: &str) -> bool {
        let (objects, model) = &self.objects;
        objects.get(name).is_some_and(|object| object.uid == uid) || (name == "m" && uid == "m" && model.is_some())
    }

    pub fn status(&self, name: &str) -> Option<&Value> {
        self.statuses.get(name)
    }

    /// The value of a property in the API.
    pub fn value(&self, name: &str, property: &str, side: &str) -> Option<u64> {
        let twins = self.statuses.get(name)?["status"]["twins"].as_array()?;
        let twin = twins.iter().find(|twin| twin["propertyName"] == property)?;
        twin[side]["value"].as_str()?.parse().ok()
    }

    /// What to write for a report, from the present state.
    pub fn plan(&self, report: &DeviceReport, session: u64, refused: &mut Vec<DeviceRefusal>) -> Plan {
        let mut refuse = |reason: String| refused.push(DeviceRefusal { uid: report.uid.clone(), reason });
        match self.device(&report.name) {
            Some(device) if *device.uid == *report.uid && &*device.node == NODE => {
                let speaker = Speaker { node: NODE, session, now: "2026-01-01T00:00:00Z" };
                let (plan, reasons) = plan(self.status(&report.name), &device, report, speaker, false);
                reasons.into_iter().for_each(&mut refuse);
                plan
            }
            _ => {
                refuse("is not of this node".to_owned());
                Plan::Nothing
            }
        }
    }

    /// Executes the plan if the API is still as it was when it was planned. False if it is not.
    pub fn write(&mut self, report: &DeviceReport, plan: Plan) -> bool {
        let Some(name) = NAMES.into_iter().find(|name| *name == report.name) else { return true };
        let version = self.next().to_string();
        self.writes += 1;
        match plan {
            Plan::Nothing => return true,
            Plan::Confirm | Plan::Earlier => return false,
            Plan::Create(mut object) => {
                if self.statuses.contains_key(name) {
                    return false;
                }
                object["metadata"]["resourceVersion"] = version.into();
                self.statuses.insert(name, object);
            }
            Plan::Patch { status, owner } => {
                let Some(there) = self.statuses.get_mut(name) else { return false };
                if there["metadata"]["resourceVersion"] != status["metadata"]["resourceVersion"] {
                    return false;
                }
                merge(there, status);
                owner.into_iter().for_each(|owner| merge(there, owner));
                there["metadata"]["resourceVersion"] = version.into();
            }
        }
        self.check(name);
        true
    }

    /// Nothing older is shown after something newer (D4), and nothing of an earlier device (D3).
    fn check(&mut self, name: &str) {
        let status = &self.statuses[name];
        let uid = status["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default().to_owned();
        for twin in status["status"]["twins"].as_array().into_iter().flatten() {
            let property = twin["propertyName"].as_str().unwrap_or_default().to_owned();
            let Some(value) = twin["reported"]["value"].as_str().and_then(|value| value.parse().ok()) else { continue };
            let newest = self.shown.entry((uid.clone(), property.clone())).or_default();
            assert!(property != "temp" || value >= *newest, "{name} {uid}: {value} is shown after {newest}");
            *newest = value;
        }
    }
}

/// Whether the key is of either kind.
pub fn is_of_devices(key: &ObjectKey) -> bool {
    matches!(key.kind.as_str(), "Device" | "DeviceModel")
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

fn read_device(name: &str, object: &Object) -> Option<Device> {
    let node = if object.elsewhere { "elsewhere" } else { NODE };
    Device::read(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": object.uid,
            "annotations": {VERSION: object.version.to_string()}},
        "spec": {"nodeName": node, "deviceModelRef": {"name": "m"}, "properties": [
            {"name": "led", "desired": {"value": object.desired.to_string()}}, {"name": "temp"},
        ]},
    }))
}

fn index((objects, version): &Objects) -> Index {
    let mut index = Index::default();
    let of = |name: &str| ("ns".to_owned(), name.to_owned());
    for (name, object) in objects {
        index.set_device(of(name), read_device(name, object));
    }
    let text = version.map(|version| {
        let metadata =
            json!({"namespace": "ns", "name": "m", "uid": "m", "annotations": {VERSION: version.to_string()}});
        json!({"metadata": metadata, "spec": {
            "properties": [{"name": "led", "type": "INT"}, {"name": "temp", "type": "INT"}]}})
    });
    index.set_model(of("m"), text.and_then(Model::read));
    index
}

/// The objects that the node should hold.
pub fn group(objects: &Objects) -> Group {
    index(objects).group(NODE)
}

/// The watch of a bridge: what it has delivered.
#[derive(Debug, Default)]
pub struct Watched {
    told: Option<Objects>,
}

impl Watched {
    /// Whether the watch lacks changes. `stalled` watches have delivered nothing since their first list.
    pub fn is_behind(&self, devices: &Devices, stalled: bool) -> bool {
        !(stalled && self.told.is_some()) && self.told.as_ref() != Some(&devices.objects)
    }

    pub fn step(&mut self, devices: &Devices) -> Group {
        self.told = Some(devices.objects.clone());
        group(&devices.objects)
    }

    pub fn is_idle(&self, devices: &Devices) -> bool {
        self.told.as_ref() == Some(&devices.objects)
    }
}
