//! Events about Devices with problems.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::lab::{Lab, MODEL};
use crate::support::Edge;
use crate::support::fixture::{TestBridge, eventually, unique};

/// Reasons of the events about a Device.
async fn reasons(lab: &Lab, uid: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(lab.cluster.client.clone(), "default");
    let all = events.list(&ListParams::default()).await.unwrap();
    let about = all.into_iter().filter(|event| event.involved_object.uid.as_deref() == Some(uid));
    about.filter_map(|event| event.reason).collect()
}

#[tokio::test]
async fn g09_what_is_wrong_with_a_device_is_told_once() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, plain, model) = (unique("wants"), unique("plain"), unique("m"));
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    let (_, mut without) = bridge.edge(&lab.cluster, &plain).await;
    lab.model(&model).await;
    let alone = lab.device(&unique("alone"), &node, "missing").await;
    let (named, good) = (unique("odd"), unique("good"));
    let odd = lab.device(&named, &node, &model).await;
    let extra = json!({"spec": {"properties": [{"name": "temp"}, {"name": "hum"}]}});
    lab.patch(&named, extra).await;
    let good = lab.device(&good, &node, &model).await;
    let mistaken = lab.device(&unique("mistaken"), &plain, &model).await;
    let of = |uid: &str| {
        let uid = uid.to_owned();
        let lab = &lab;
        async move { !reasons(lab, &uid).await.is_empty() }
    };
    let wait = async {
        eventually("the events", || async { of(&alone).await && of(&odd).await && of(&mistaken).await }).await;
    };
    let live = async {
        loop {
            let _ = edge.step(std::time::Duration::from_millis(20)).await;
            let _ = without.step(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = wait => {}
        () = live => {}
    }
    edge.linger(std::time::Duration::from_secs(6)).await;
    assert_eq!(reasons(&lab, &alone).await, ["DeviceModelNotFound"]);
    assert_eq!(reasons(&lab, &odd).await, ["PropertyNotInModel"]);
    assert_eq!(reasons(&lab, &mistaken).await, ["NodeTakesNoDevices"]);
    assert!(reasons(&lab, &good).await.is_empty());
}

/// Refusals of a Device by the node itself.
#[tokio::test]
async fn g09_a_device_that_a_node_refuses_has_an_event() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, model, name) = (unique("picky"), unique("m"), unique("t"));
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    edge.until("the device", |edge: &Edge| edge.held() == 2).await;
    let frame = json!({"nack": {"object": {"kind": "Device", "namespace": "default", "name": name, "uid": uid},
        "reason": "no such protocol"}});
    edge.send_raw(async_tungstenite::tungstenite::Message::text(frame.to_string())).await;
    edge.linger(std::time::Duration::from_secs(1)).await;
    let events: Api<Event> = Api::namespaced(lab.cluster.client.clone(), "default");
    let all = events.list(&ListParams::default()).await.unwrap();
    let about = all.into_iter().find(|event| event.involved_object.uid.as_deref() == Some(&uid)).unwrap();
    assert_eq!(about.involved_object.api_version.as_deref(), Some("devices.kubeedge.io/v1beta1"));
    assert!(about.message.unwrap().contains("no such protocol"));
    assert!(edge.object(MODEL, "default", &model).is_some());
}
