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
mod tests {
    use sampan_dmi::PushMethodMqtt;
    use serde_json::json;

    use super::super::super::merge::merged;
    use super::*;

    fn id() -> Named {
        Named { namespace: "dev".into(), name: "t1".into() }
    }

    #[test]
    fn a_device_is_given_whole() {
        let model = json!({"spec": {"protocol": "lab", "protocolConfigData": {"baud": 9600}, "properties": [
            {"name": "temp", "type": "FLOAT"},
            {"name": "led", "visitors": {"protocolName": "lab", "configData": {"register": 1}}},
        ]}});
        let body = json!({"spec": {
            "protocol": {"protocolName": "lab", "configData": {"port": "/dev/ttyS0", "big": 4_294_967_295_u64, "on": true,
                "deep": {"a": [1]}, "none": null, "half": 0.5}},
            "stateReport": {"reportToCloud": true, "reportCycle": 10_000},
            "methods": [{"name": "m", "propertyNames": ["led", 7]}],
            "properties": [
                {"name": "temp", "collectCycle": 1_000, "reportToCloud": true, "visitors": {"configData": {"register": 7}},
                 "pushMethod": {"mqtt": {"address": "tcp://127.0.0.1:1883", "topic": "t", "qos": 1, "retained": true}}},
                {"name": "led", "desired": {"value": "ON", "metadata": {"type": "string"}}},
                {"name": "led", "desired": {"value": "twice"}},
                {"name": "stranger"},
            ],
        }});
        let (merged, mut notes) = (merged(body["spec"].clone(), &model), Notes::default());
        let wanted = |name: &str| if name == "led" { "DIM".to_owned() } else { String::new() };
        let device = device(&id(), "lab", &merged, |name| name != "stranger", wanted, &mut notes);
        assert_eq!(
            notes.text().as_deref(),
            Some(
                "property \"stranger\" is not in the model, and is kept from the mapper; configData of the protocol holds \
                 more than one value at \"deep\": the mapper is given its JSON text"
            )
        );
        let spec = device.spec.expect("a spec");
        let protocol = spec.protocol.expect("a protocol");
        let data = protocol.config_data.expect("its configuration").data;
        let expected = [
            ("baud", Any::float(9_600.0)),
            ("big", Any::int64(4_294_967_295)),
            ("deep", Any::string("{\"a\":[1]}".into())),
            ("half", Any::float(0.5)),
            ("on", Any::boolean(true)),
            ("port", Any::string("/dev/ttyS0".into())),
        ];
        assert_eq!(data, expected.map(|(key, value)| (key.to_owned(), value)).into());
        let [temp, led] = spec.properties.try_into().expect("two properties");
        assert_eq!(temp.desired, Some(TwinProperty::default()));
        assert_eq!((temp.collect_cycle, temp.report_to_cloud), (1_000, true));
        let mqtt = PushMethodMqtt { address: "tcp://127.0.0.1:1883".into(), topic: "t".into(), qos: 1, retained: true };
        assert_eq!(temp.push_method.and_then(|push| push.mqtt), Some(mqtt));
        let wanted = led.desired.expect("a desired value");
        assert_eq!((wanted.value.as_str(), wanted.metadata["type"].as_str()), ("DIM", "string"));
        let visitors = led.visitors.expect("visitors");
        assert_eq!(visitors.config_data.map(|held| held.data.len()), Some(1));
        assert_eq!(spec.methods.first().map(|method| method.property_names.as_slice()), Some(&["led".to_owned()][..]));
        let status = device.status.expect("a status");
        assert_eq!((status.report_to_cloud, status.report_cycle), (true, 10_000));
    }

    #[test]
    fn any_object_converts_to_a_device() {
        for broken in
            [json!(null), json!([]), json!({"properties": {}, "protocol": 7, "methods": [null, 1], "stateReport": []})]
        {
            let device = device(&id(), "", &broken, |_| true, |_| String::new(), &mut Notes::default());
            assert!(device.spec.is_some_and(|spec| spec.protocol.is_some() && spec.properties.is_empty()));
            assert!(model(&id(), &broken).spec.is_some_and(|spec| spec.properties.is_empty()));
        }
        let broken = json!({"properties": [{"name": "a", "desired": 1, "visitors": 7, "pushMethod": {"http": 1, "mqtt": {"qos": "x"},
            "dbMethod": {"redis": {"redisClientConfig": []}, "influxdb2": {"influxdb2DataConfig": {"tag": {"a": 1, "b": "c"}}}}}}]});
        let device = device(&id(), "", &broken, |_| true, |_| String::new(), &mut Notes::default());
        let property = device.spec.and_then(|spec| spec.properties.into_iter().next()).expect("a property");
        assert!(property.visitors.is_some_and(|visitors| visitors.config_data.is_some()) && property.desired.is_some());
        let database = property.push_method.and_then(|push| push.db_method).expect("a database");
        let tag = database.influxdb2.and_then(|influx| influx.influxdb2_data_config).map(|data| data.tag);
        assert_eq!(tag, Some([("b".to_owned(), "c".to_owned())].into()));
    }
}
