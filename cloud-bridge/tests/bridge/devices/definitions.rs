//! The definitions of devices in `deploy/`: accepted and refused objects.

use http::Request;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use super::lab::{Lab, MODEL};
use crate::support::fixture::unique;

async fn create(lab: &Lab, kind: &str, spec: Value) -> Result<DynamicObject, String> {
    let object = json!({"apiVersion": "devices.kubeedge.io/v1beta1", "kind": kind,
        "metadata": {"name": unique("d")}, "spec": spec});
    let api = if kind == MODEL { lab.models() } else { lab.devices() };
    let made = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
    made.map_err(|error| error.to_string())
}

#[tokio::test]
async fn d11_what_could_not_be_served_is_refused_by_the_api() {
    let lab = Lab::open().await;
    let property = |more: Value| {
        let mut property = json!({"name": "a"});
        property.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        property
    };
    let model = |more: Value| json!({"protocol": "p", "properties": [property(more)]});
    let device =
        |properties: Value| json!({"deviceModelRef": {"name": "m"}, "nodeName": "n", "properties": properties});
    for (kind, spec, why) in [
        (MODEL, model(json!({"type": "float"})), "Unsupported value"),
        (MODEL, model(json!({"accessMode": "WriteOnly"})), "Unsupported value"),
        (MODEL, model(json!({"minimum": "low"})), "should match"),
        (MODEL, model(json!({"minimum": "2", "maximum": "-1e3"})), "minimum is greater than maximum"),
        (MODEL, json!({"properties": [{"name": "a"}, {"name": "a"}]}), "Duplicate value"),
        ("Device", json!({"nodeName": "n"}), "spec.deviceModelRef: Required value"),
        ("Device", json!({"deviceModelRef": {"name": ""}}), "at least 1 char"),
        ("Device", device(json!([{"name": "a", "desired": {}}])), "desired.value: Required value"),
        ("Device", device(json!([{"name": "a"}, {"name": "a"}])), "Duplicate value"),
        ("Device", device(json!([{"name": "a", "collectCycle": -1}])), "greater than or equal to 0"),
        ("Device", device(json!([{"name": "a", "desired": {"value": "x".repeat(4097)}}])), "4096"),
    ] {
        let refused = create(&lab, kind, spec.clone()).await.expect_err("it is wrong");
        assert!(refused.contains(why), "{spec}: {refused}");
    }
    let nested = json!({"a": {"b": [1, "x", null]}});
    let visitors = json!({"protocolName": "p", "configData": nested});
    for (kind, spec) in [
        (
            MODEL,
            model(
                json!({"type": "FLOAT", "accessMode": "ReadOnly", "minimum": "-40", "maximum": "1.25e2", "unit": "C"}),
            ),
        ),
        (MODEL, model(json!({"minimum": "", "maximum": "-1", "visitors": visitors}))),
        (MODEL, json!({"protocolConfigData": nested})),
        ("Device", json!({"deviceModelRef": {"name": "m"}})),
        (
            "Device",
            device(
                json!([{"name": "a", "desired": {"value": "", "metadata": {"type": "string"}}, "visitors": visitors,
                "collectCycle": 1000, "reportCycle": 1000, "reportToCloud": true,
                "pushMethod": {"mqtt": {"address": "x", "topic": "t", "qos": 1, "retained": true},
                    "dbMethod": {"TDEngine": {"TDEngineClientConfig": {"addr": "a", "dbName": "b"}}}}}]),
            ),
        ),
    ] {
        let made = create(&lab, kind, spec.clone()).await.unwrap();
        assert_eq!(made.data["spec"], spec, "nothing of it is left out");
    }
}

#[tokio::test]
async fn both_versions_are_served_and_columns_say_what_matters() {
    let lab = Lab::open().await;
    let name = unique("t");
    lab.device(&name, "gate", "lab").await;
    let get = |path: &str, accept: &str| {
        let path = format!("/apis/devices.kubeedge.io/{path}");
        let request = Request::get(path).header("accept", accept).body(Vec::new()).unwrap();
        lab.cluster.client.request::<Value>(request)
    };
    let old = get(&format!("v1alpha2/namespaces/default/devices/{name}"), "application/json").await.unwrap();
    assert_eq!(
        (&old["apiVersion"], &old["spec"]["nodeName"]),
        (&json!("devices.kubeedge.io/v1alpha2"), &json!("gate"))
    );
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let columns = |table: Value| -> Vec<String> {
        let columns = table["columnDefinitions"].as_array().unwrap().clone();
        columns.iter().map(|column| column["name"].as_str().unwrap().to_owned()).collect()
    };
    let devices = get("v1beta1/namespaces/default/devices", table).await.unwrap();
    assert!(
        devices["rows"].as_array().unwrap().iter().any(
            |row| row["cells"].as_array().unwrap()[..4] == *json!([name, "gate", "lab", "lab"]).as_array().unwrap()
        )
    );
    assert_eq!(columns(devices), ["Name", "NODE", "MODEL", "PROTOCOL", "AGE"]);
    let statuses = get("v1beta1/namespaces/default/devicestatuses", table).await.unwrap();
    assert_eq!(columns(statuses), ["Name", "STATE", "LAST-ONLINE", "AGE"]);
}
