//! A merged Device, and a DeviceModel, from JSON to DMI's messages. What a mapper could not do with is left out, and noted.

use std::collections::BTreeMap;

use sampan_devices_control::Named;
use sampan_dmi::{
    Any, CustomizedValue, Device, DeviceMethod, DeviceModel, DeviceModelSpec, DeviceProperty, DeviceSpec, DeviceStatus,
    ModelProperty, ProtocolConfig, TwinProperty, VisitorConfig,
};
use sampan_sys::gather::Gather;
use serde_json::Value;

use super::push;

/// A float32, as mappers are given numbers, holds every integer up to here.
const EXACT: u64 = 1 << 24;
/// Maximum number of properties named in a warning.
const NOTES: usize = 3;

/// Problems of a Device, for an event on it.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<String>);

impl Notes {
    fn add(&mut self, note: impl FnOnce() -> String) {
        if self.0.len() < NOTES {
            self.0.push(note());
        }
    }

    pub(super) fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("; "))
    }
}

pub(super) fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

pub(super) fn whole(value: &Value, key: &str) -> i64 {
    value[key].as_i64().unwrap_or_default()
}

pub(super) fn short(value: &Value, key: &str) -> i32 {
    value[key].as_i64().and_then(|number| number.try_into().ok()).unwrap_or_default()
}

pub(super) fn text_map(value: &Value) -> BTreeMap<String, String> {
    let texts = value.as_object().into_iter().flatten();
    texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).into_map()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// Wraps values like KubeEdge; a value that it cannot wrap becomes the text of its JSON, and `nested` gets its key.
pub(super) fn any_map(value: &Value, nested: &mut dyn FnMut(&str)) -> BTreeMap<String, Any> {
    let mut map = BTreeMap::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let any = match value {
            Value::Null => continue,
            Value::Bool(value) => Any::boolean(*value),
            Value::String(value) => Any::string(value.clone()),
            Value::Number(number) => match number.as_i64() {
                Some(number) if number.unsigned_abs() > EXACT => Any::int64(number),
                _ => Any::float(float(number.as_f64().unwrap_or_default())),
            },
            Value::Array(_) | Value::Object(_) => {
                nested(key);
                Any::string(value.to_string())
            }
        };
        map.insert(key.clone(), any);
    }
    map
}

#[expect(clippy::cast_possible_truncation, reason = "a float32 is what the mapper is given")]
const fn float(number: f64) -> f32 {
    number as f32
}

/// `merged`: the result of [`merged`](super::super::merge::merged). `known`: whether the model has a property of this
/// name. `wanted`: the desired value of a property.
pub(super) fn device(
    id: &Named,
    model: &str,
    merged: &Value,
    known: impl Fn(&str) -> bool,
    wanted: impl Fn(&str) -> String,
    notes: &mut Notes,
) -> Device {
    let mut properties: Vec<DeviceProperty> = Vec::new();
    for property in list(merged, "properties") {
        let name = property["name"].as_str().unwrap_or_default();
        if name.is_empty() || properties.iter().any(|other| other.name == name) {
            continue;
        }
        // KubeEdge's framework crashes on a property that its model does not have.
        if !known(name) {
            notes.add(|| format!("property {name:?} is not in the model, and is kept from the mapper"));
            continue;
        }
        let visitors = config(&property["visitors"], &format!("visitors of {name:?}"), notes);
        let [report_cycle, collect_cycle] = ["reportCycle", "collectCycle"].map(|key| whole(property, key));
        properties.push(DeviceProperty {
            name: name.to_owned(),
            desired: Some(TwinProperty { value: wanted(name), metadata: text_map(&property["desired"]["metadata"]) }),
            visitors: Some(VisitorConfig { protocol_name: visitors.0, config_data: Some(visitors.1) }),
            report_cycle,
            collect_cycle,
            report_to_cloud: property["reportToCloud"].as_bool().unwrap_or_default(),
            push_method: push::method(&property["pushMethod"]),
        });
    }
    let (protocol_name, config_data) = config(&merged["protocol"], "the protocol", notes);
    let methods = list(merged, "methods").map(|method| DeviceMethod {
        name: text(method, "name"),
        description: text(method, "description"),
        property_names: list(method, "propertyNames").filter_map(Value::as_str).map(str::to_owned).collect(),
    });
    let spec = DeviceSpec {
        device_model_reference: model.to_owned(),
        protocol: Some(ProtocolConfig { protocol_name, config_data: Some(config_data) }),
        properties,
        methods: methods.collect(),
    };
    let state = &merged["stateReport"];
    let status = DeviceStatus {
        twins: Vec::new(),
        report_to_cloud: state["reportToCloud"].as_bool().unwrap_or_default(),
        report_cycle: whole(state, "reportCycle"),
    };
    Device { name: id.name.to_string(), spec: Some(spec), status: Some(status), namespace: id.namespace.to_string() }
}

fn config(held: &Value, of: &str, notes: &mut Notes) -> (String, CustomizedValue) {
    let mut nested = |key: &str| {
        notes.add(|| {
            format!("configData of {of} holds more than one value at {key:?}: the mapper is given its JSON text")
        });
    };
    let data = any_map(&held["configData"], &mut nested);
    (text(held, "protocolName"), CustomizedValue { data })
}

/// Converts a model. Of two properties with one name the first counts.
pub(super) fn model(id: &Named, spec: &Value) -> DeviceModel {
    let mut properties: Vec<ModelProperty> = Vec::new();
    for property in list(spec, "properties") {
        let name = text(property, "name");
        if name.is_empty() || properties.iter().any(|other| other.name == name) {
            continue;
        }
        properties.push(ModelProperty {
            name,
            description: text(property, "description"),
            r#type: text(property, "type"),
            access_mode: text(property, "accessMode"),
            minimum: text(property, "minimum"),
            maximum: text(property, "maximum"),
            unit: text(property, "unit"),
        });
    }
    let spec = DeviceModelSpec { properties, commands: Vec::new() };
    DeviceModel { name: id.name.to_string(), spec: Some(spec), namespace: id.namespace.to_string() }
}

#[cfg(test)]
mod tests;
