//! A hostile node that reports about devices.

use async_tungstenite::tungstenite::Message;
use edge_protocol::message::{DeviceReport, DeviceState, ToCloud};
use serde_json::Value;
use serde_json::json;

use super::lab::{Lab, online, report, reported};
use crate::support::fixture::{TestBridge, unique};
use crate::support::{Edge, Store};

fn frame(batch: u64, devices: Vec<DeviceReport>) -> Message {
    Message::text(
        serde_json::to_string(&ToCloud::Devices { batch, devices: devices.iter().map(Value::from).collect() }).unwrap(),
    )
}

#[tokio::test]
async fn d15_a_node_writes_of_its_own_devices_and_of_their_properties_only() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (evil, victim, model) = (unique("evil"), unique("victim"), unique("m"));
    let (own, other, unbound) = (unique("own"), unique("theirs"), unique("nobodys"));
    lab.model(&model).await;
    let uid = lab.device(&own, &evil, &model).await;
    let their = lab.device(&other, &victim, &model).await;
    let nobodys = lab.device(&unbound, "", &model).await;
    let (identity, mut edge) = lab.edge(&bridge, &evil).await;
    assert_eq!(edge.held(), 2, "its own device and its model");
    let value = [("temp", "1")];
    let elsewhere = DeviceReport { namespace: "kube-system".into(), ..report(&own, &uid, 1, &value) };
    let path =
        |namespace: &str, name: &str| DeviceReport { namespace: namespace.into(), ..report(name, &uid, 1, &value) };
    let strange = [
        report(&other, &their, 1, &value),
        report(&other, &uid, 1, &value),
        report(&own, &their, 1, &value),
        report(&unbound, &nobodys, 1, &value),
        report("none", "none", 1, &value),
        elsewhere,
        path("default/devices/x", &own),
        path("..", &own),
        path("default", "../pods/x"),
        path("default", "x?force=true"),
        path("", ""),
    ];
    let count = strange.len();
    let good = online(report(&own, &uid, 2, &[("temp", "21"), ("hum", "1"), ("led", &"x".repeat(4096))]));
    let refused = edge.report_devices(strange.into_iter().chain([good]).collect()).await;
    assert_eq!(refused.len(), count + 1, "{refused:?}");
    let named = refused.iter().filter(|refusal| refusal.reason == "property hum is not in spec.properties");
    assert_eq!(named.map(|refusal| &refusal.uid).collect::<Vec<_>>(), [&uid]);
    for name in [&other, &unbound] {
        assert!(lab.status(name).await.is_none(), "{name}");
    }
    let status = lab.status(&own).await.unwrap();
    assert_eq!((reported(&status, "temp"), reported(&status, "led").len()), ("21", 4096));
    assert_eq!(
        (&status["status"]["state"], status["status"]["twins"].as_array().unwrap().len()),
        (&json!("online"), 2)
    );
    assert_eq!(
        status["status"]["extensions"]["sampan.dev"]["refused"],
        json!(["property hum is not in spec.properties"])
    );

    // Too large, with an unknown state, with absurd numbers: the valid parts are accepted.
    let mut odd = report(&own, &uid, u64::MAX, &[("temp", "22"), ("led", &"x".repeat(4097))]);
    odd.state = Some(DeviceState { state: "on fire".into(), last_online: "now".into(), ..DeviceState::default() });
    odd.twins[0].reported.as_mut().unwrap().at_ms = u64::MAX;
    let refused = edge.report_devices(vec![odd]).await;
    assert_eq!(refused.len(), 2, "{refused:?}");
    let status = lab.status(&own).await.unwrap();
    assert_eq!((reported(&status, "temp"), reported(&status, "led").len()), ("22", 4096));
    assert_eq!(status["status"]["state"], "online");
    // Every text arrives unchanged.
    let mut edge = Edge::connect_with_devices(bridge.address, &identity, std::mem::take(&mut edge.store)).await;
    edge.until("the welcome", |edge| edge.session.is_welcome()).await;
    for (seq, text) in (1..).zip(["", " ", "{\"a\":[1]}", "a=b&c", "ä\u{1F600}\n\t\u{7}", "null"]) {
        assert!(edge.report_devices(vec![report(&own, &uid, seq, &[("temp", text)])]).await.is_empty());
        assert_eq!(reported(&lab.status(&own).await.unwrap(), "temp"), text);
    }
}

#[tokio::test]
async fn d15_a_second_batch_before_the_answer_ends_the_connection() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, model, name) = (unique("hasty"), unique("m"), unique("t"));
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    let (identity, mut edge) = lab.edge(&bridge, &node).await;
    let batch = |number| frame(number, vec![report(&name, &uid, number, &[("temp", "1")])]);
    edge.send_raw(batch(1)).await;
    edge.send_raw(batch(2)).await;
    edge.until_ended().await;
    // A node that has not announced devices may not report any.
    let mut plain = bridge.connect(&identity, Store::default()).await;
    plain.until("the first list", |edge| edge.synced).await;
    plain.send_raw(batch(1)).await;
    plain.until_ended().await;
    // The honest node continues.
    let mut edge = Edge::connect_with_devices(bridge.address, &identity, Store::default()).await;
    edge.until("the list", |edge| edge.synced).await;
    assert!(edge.report_devices(vec![report(&name, &uid, 3, &[("temp", "3")])]).await.is_empty());
    assert_eq!(reported(&lab.status(&name).await.unwrap(), "temp"), "3");
}
