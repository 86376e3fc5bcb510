//! Devices and models as messages of DMI.

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
