//! Merges a Device with its DeviceModel, in the form for a driver. Values only; malformed parts are skipped.

use sampan_json::SetField;
use serde_json::{Map, Value, json};

/// Merges the spec of a Device with its model: protocol and visitors of the model apply where the device does not set
/// them, key by key of `configData`, but no deeper. Each property has `desired` and `visitors.configData`, which may be
/// empty.
pub(super) fn merged(mut spec: Value, model: &Value) -> Value {
    let Some(map) = spec.as_object_mut() else { return json!({}) };
    let protocol = map.entry("protocol").or_insert_with(|| json!({}));
    if protocol["protocolName"].as_str().is_none_or(str::is_empty) && protocol.is_object() {
        protocol.set("protocolName", model["spec"]["protocol"].clone());
    }
    config(protocol, &model["spec"]["protocolConfigData"]);
    for property in map.get_mut("properties").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = property["name"].clone();
        let Some(property) = property.as_object_mut() else { continue };
        let visitors = property.entry("visitors").or_insert_with(|| json!({}));
        let of_model = model["spec"]["properties"].as_array().into_iter().flatten().find(|one| one["name"] == name);
        let of_model = of_model.map_or(&Value::Null, |one| &one["visitors"]);
        // Which protocol a property is read by is the model's to say.
        if of_model["protocolName"].as_str().is_some_and(|protocol| !protocol.is_empty()) && visitors.is_object() {
            visitors.set("protocolName", of_model["protocolName"].clone());
        }
        config(visitors, &of_model["configData"]);
        property.entry("desired").or_insert_with(|| json!({"value": ""}));
    }
    spec
}

/// Adds to `configData` of this what it does not have.
fn config(to: &mut Value, defaults: &Value) {
    if !to.is_object() {
        *to = json!({});
    }
    let mut all: Map<String, Value> = defaults.as_object().cloned().unwrap_or_default();
    if let Value::Object(own) = to.take_at(&["configData"]) {
        all.extend(own);
    }
    to.set("configData", Value::Object(all));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_s_keys_override_the_model_s_one_by_one() {
        let model = json!({"spec": {"protocol": "lab", "protocolConfigData": {"baud": 9600}, "properties": [
            {"name": "temp", "type": "FLOAT"},
            {"name": "led", "visitors": {"protocolName": "lab", "configData": {"register": 1, "deep": {"a": 1}}}},
        ]}});
        let device = json!({"spec": {
            "deviceModelRef": {"name": "lab"},
            "protocol": {"protocolName": "lab", "configData": {"port": "/dev/ttyS0"}},
            "properties": [
                {"name": "temp", "visitors": {"protocolName": "lab", "configData": {"register": 7}}},
                {"name": "led", "desired": {"value": "ON"}, "visitors": {"configData": {"deep": {"b": 2}}}},
            ],
        }});
        let merged = merged(device["spec"].clone(), &model);
        assert_eq!(
            merged["protocol"],
            json!({"protocolName": "lab", "configData": {"baud": 9600, "port": "/dev/ttyS0"}})
        );
        let [temp, led] = [&merged["properties"][0], &merged["properties"][1]];
        assert_eq!(temp["visitors"], json!({"protocolName": "lab", "configData": {"register": 7}}));
        assert_eq!(temp["desired"], json!({"value": ""}));
        assert_eq!(led["visitors"], json!({"protocolName": "lab", "configData": {"register": 1, "deep": {"b": 2}}}));
        assert_eq!(led["desired"], json!({"value": "ON"}));
    }

    #[test]
    fn malformed_parts_are_ignored() {
        for broken in
            [json!(null), json!(1), json!({"spec": []}), json!({"spec": {"properties": [1, null, {"visitors": 3}]}})]
        {
            let whole = json!({"spec": {"protocol": 7, "properties": [{"name": "a"}, "x", {"visitors": []}]}});
            for (device, model) in [(&broken, &whole), (&whole, &broken), (&broken, &broken)] {
                assert!(merged(device["spec"].clone(), model).is_object());
            }
        }
        let merged = merged(json!({"properties": [{"name": "a"}]}), &Value::Null);
        assert_eq!(
            merged["properties"][0],
            json!({"name": "a", "visitors": {"configData": {}}, "desired": {"value": ""}})
        );
    }
}
