//! Devices: sent to their node, and the node's reports of them in the API.

mod definitions;
mod events;
mod hostile;
mod lab;
mod rights;
mod stale;
mod told;
mod trouble;

use serde_json::json;

use crate::support::fixture::{TestBridge, unique};
use lab::{Lab, MODEL, report, reported};

/// The whole path: a Device down, a report up, and its result.
#[tokio::test]
async fn d01_a_device_is_told_and_what_it_reports_is_in_the_api() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let node = unique("gate");
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    let (name, model) = (unique("t"), unique("lab"));
    lab.model(&model).await;
    let device = lab.device(&name, &node, &model).await;
    edge.until("the device and its model", |edge| edge.held() == 2).await;
    let told = edge.object("Device", "default", &name).unwrap();
    assert_eq!(told.body["spec"]["nodeName"], node.as_str());
    assert_eq!(told.body.get("status"), None);
    assert_eq!(edge.object(MODEL, "default", &model).unwrap().body["spec"]["properties"][0]["name"], "temp");

    // The first report of every property shows.
    let first = report(&name, &device, 1, &[("temp", "21.5"), ("led", "ON")]);
    assert!(edge.report_devices(vec![first.clone()]).await.is_empty());
    let status = lab.status(&name).await.unwrap();
    assert_eq!((reported(&status, "temp"), reported(&status, "led")), ("21.5", "ON"));
    let metadata = json!({"timestamp": "1700000000001", "type": "float"});
    assert_eq!(status["status"]["twins"][0]["reported"]["metadata"], metadata);
    assert_eq!(status["status"]["twins"][0].get("observedDesired"), None);
    let owner = &status["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"], &owner["uid"]), (&json!("Device"), &json!(name), &json!(device)));
    assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));

    // The same report with a higher number causes no write.
    let again = edge_protocol::message::DeviceReport { seq: 2, ..first };
    assert!(edge.report_devices(vec![again]).await.is_empty());
    let after = lab.status(&name).await.unwrap();
    assert_eq!(after["metadata"]["resourceVersion"], status["metadata"]["resourceVersion"]);

    // Writing it sends nothing over the link; and it is deleted with its Device.
    let puts = edge.puts;
    assert!(edge.report_devices(vec![report(&name, &device, 3, &[("temp", "22")])]).await.is_empty());
    let status = lab.status(&name).await.unwrap();
    assert_eq!((reported(&status, "temp"), reported(&status, "led")), ("22", "ON"));
    edge.linger(std::time::Duration::from_millis(500)).await;
    assert_eq!(edge.puts, puts);
    lab.delete(&name).await;
    edge.until("the end of both", |edge| edge.held() == 0).await;
    lab.until_collected(&name).await;
}
