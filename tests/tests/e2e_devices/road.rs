//! The path of a value, up and down, and the life of a Device.

use sampan_tests::can_run;
use serde_json::json;

use super::{SOON, Site, device, model};

/// D1, D8; T2, T3.
#[test]
fn d01_values_meet_in_the_middle() {
    if !can_run() {
        return;
    }
    let site = Site::start("devices-road");
    let (kubectl, node) = (site.kubectl(), site.node.name.as_str());
    let heard = site.broker.listen("$hw/events/#");
    // The Device comes first: its model may be created later.
    kubectl.apply(&device("t1", node, "ON").to_string());
    kubectl.apply(&model().to_string());
    let delta = heard.next_that("t1/twin/update/delta", |text| text["delta"]["led"] == "ON");
    assert_eq!(delta["twin"]["led"]["expected"]["value"], "ON");

    site.report("t1", "temp", "21.5");
    assert_eq!(heard.next("t1/twin/update/result")["twin"]["temp"]["actual"]["value"], "21.5");
    assert_eq!(heard.next("t1/twin/update/document")["twin"]["temp"]["current"]["actual"]["value"], "21.5");
    let took = site.wait_reported("t1", "temp", "21.5");
    assert!(took < SOON, "{took:?}");
    let temp = site.wait_twin("t1", "temp", |twin| twin["reported"]["metadata"]["type"] == "float");
    assert!(temp["reported"]["metadata"]["timestamp"].as_str().is_some_and(|at| at.parse::<u64>().is_ok()), "{temp}");

    // The actuator applies the desired value, and reports it.
    site.report("t1", "led", "ON");
    site.wait_twin("t1", "led", |twin| twin["observedDesired"]["value"] == "ON");
    let patch = json!({"spec": {"properties": [
        {"name": "temp", "reportToCloud": true}, {"name": "led", "reportToCloud": true, "desired": {"value": "OFF"}},
    ]}});
    let _ = kubectl.ok(&["patch", "device", "t1", "--type", "merge", "-p", &patch.to_string()]);
    let delta = heard.next_that("t1/twin/update/delta", |text| text["delta"]["led"] == "OFF");
    assert_eq!(delta["twin"]["led"]["actual"]["value"], "ON");

    site.broker.publish(&site.topic("t1", "state/update"), r#"{"event_id":"9","timestamp":0,"state":"ONLINE"}"#);
    assert_eq!(heard.next("t1/state/update/result")["device"]["state"], "online");
    sampan_tests::wait::until(SOON, "its state", || {
        let status = kubectl.get("devicestatus", "t1")?;
        let online = status["status"]["state"] == "online" && status["status"]["lastOnlineTime"].is_string();
        if online { Ok(()) } else { Err(status["status"].to_string()) }
    });
    let owner = &kubectl.get("devicestatus", "t1").expect("is there")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"], &owner["controller"]), (&json!("Device"), &json!("t1"), &json!(true)));
}

/// D3.
#[test]
fn d03_recreated_device_shows_nothing_of_the_old_one() {
    if !can_run() {
        return;
    }
    let site = Site::start("devices-again");
    let (kubectl, node) = (site.kubectl(), site.node.name.as_str());
    let heard = site.broker.listen("$hw/events/#");
    kubectl.apply_all(&[model(), device("t1", node, "ON")]);
    heard.next("t1/twin/update/delta");
    site.report("t1", "temp", "21.5");
    site.wait_reported("t1", "temp", "21.5");

    let _ = kubectl.ok(&["delete", "device", "t1"]);
    let removed = heard.next_that("/membership/updated", |text| text["removed_devices"].is_array());
    let id = format!("{}/t1", kubectl.namespace);
    assert_eq!(removed["removed_devices"][0]["id"], json!(id));
    kubectl.wait_gone("devicestatus", "t1", 10);
    site.report("t1", "temp", "1");
    let refused = heard.next_that("t1/twin/update/result", |text| !text["code"].is_null());
    assert_eq!(refused["code"], 404);

    kubectl.apply(&device("t1", node, "ON").to_string());
    heard.next("t1/twin/update/delta");
    site.report("t1", "led", "ON");
    site.wait_reported("t1", "led", "ON");
    let status = kubectl.get("devicestatus", "t1").expect("is there");
    assert!(super::twin(&status, "temp")["reported"].is_null(), "{status}");
}

/// D10: any UTF-8 up to 4 KiB, in any namespace.
#[test]
fn d10_any_text_arrives_unchanged() {
    if !can_run() {
        return;
    }
    let site = Site::start("devices-text");
    let (kubectl, node) = (site.kubectl(), site.node.name.as_str());
    let heard = site.broker.listen("$hw/events/#");
    let property = json!({"name": "text", "type": "STRING", "accessMode": "ReadOnly"});
    kubectl.apply(
        &json!({"apiVersion": "devices.kubeedge.io/v1beta1", "kind": "DeviceModel", "metadata": {"name": "m"},
        "spec": {"properties": [property]}})
        .to_string(),
    );
    kubectl.apply(
        &json!({"apiVersion": "devices.kubeedge.io/v1beta1", "kind": "Device", "metadata": {"name": "d"},
        "spec": {"deviceModelRef": {"name": "m"}, "nodeName": node, "properties": [{"name": "text"}]}})
        .to_string(),
    );
    heard.next_that("/membership/updated", |text| text["added_devices"].is_array());
    for value in ["a b = {\"c\": [1]}", "Grüße, 世界 🌡", "\t\u{1}\n\"\\", &"x".repeat(4096)] {
        site.report("d", "text", value);
        site.wait_reported("d", "text", value);
    }
    site.report("d", "text", &"x".repeat(4097));
    let refused = heard.next_that("d/twin/update/result", |text| !text["code"].is_null());
    assert_eq!(refused["code"], 413);
    assert_eq!(refused["event_id"], "7");
}
