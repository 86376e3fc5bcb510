//! Parses Device and DeviceModel objects. Reads what it can and skips the rest: an unvalidated object must not block
//! others.

use std::collections::BTreeMap;

use sampan_devices_control::{Named, Text};
use serde_json::Value;

use super::value::Rule;

/// The properties of a DeviceModel.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) uid: String,
    pub(super) rules: BTreeMap<Text, Rule>,
    /// JSON, for mappers.
    pub(super) spec: Option<Box<str>>,
    /// Named in the present round of the daemon's objects.
    pub(super) said: bool,
}

/// Name of a device's model, which is in the device's namespace.
pub(super) fn model_of(device: &Named, model: &Text) -> Named {
    Named { namespace: device.namespace.clone(), name: model.clone() }
}

/// The needed fields of a Device.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) model: Text,
    pub(super) description: Text,
    pub(super) properties: BTreeMap<Text, Wanted>,
}

/// Desired value of one property, set by the cloud.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Empty for nothing: clients of the API write it so.
    pub(super) value: Text,
    /// The type that its metadata names, in lower case.
    pub(super) kind: Text,
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value["spec"][key].as_array().into_iter().flatten().filter(|one| !text(one, "name").is_empty())
}

/// The properties of a DeviceModel; of two with one name the first.
pub(super) fn model(uid: String, body: &Value) -> Model {
    let mut rules = BTreeMap::new();
    for property in list(body, "properties") {
        let rule = || Rule {
            kind: text(property, "type").to_lowercase(),
            access: text(property, "accessMode").to_owned(),
            min: text(property, "minimum").to_owned(),
            max: text(property, "maximum").to_owned(),
        };
        rules.entry(text(property, "name").into()).or_insert_with(rule);
    }
    Model { uid, rules, spec: None, said: true }
}

/// The properties of a Device; of two with one name the first.
pub(super) fn device(body: &Value) -> Body {
    let mut properties = BTreeMap::new();
    for property in list(body, "properties") {
        let desired = &property["desired"];
        let wanted = || Wanted {
            value: text(desired, "value").into(),
            kind: text(&desired["metadata"], "type").to_lowercase().into(),
        };
        properties.entry(text(property, "name").into()).or_insert_with(wanted);
    }
    Body {
        model: text(&body["spec"]["deviceModelRef"], "name").into(),
        description: text(&body["metadata"]["labels"], "description").into(),
        properties,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unreadable_parts_are_skipped() {
        let body = json!({
            "metadata": {"labels": {"description": "bench"}},
            "spec": {"deviceModelRef": {"name": "lab"}, "properties": [
                {"name": "led", "desired": {"value": "ON", "metadata": {"type": "String"}}},
                {"name": "led", "desired": {"value": "OFF"}},
                {"name": "temp", "desired": {"value": 7}}, {"name": ""}, "x", null, {"desired": {}},
            ]},
        });
        let read = device(&body);
        assert_eq!((read.model.as_str(), read.description.as_str()), ("lab", "bench"));
        assert_eq!(read.properties["led"], Wanted { value: "ON".into(), kind: "string".into() });
        assert_eq!(read.properties["temp"], Wanted::default());
        assert_eq!(read.properties.len(), 2);
        for broken in [json!(null), json!([]), json!({"spec": 1}), json!({"spec": {"properties": {"a": 1}}})] {
            assert_eq!(device(&broken), Body::default());
            assert!(model("u".into(), &broken).rules.is_empty());
        }
    }
}
