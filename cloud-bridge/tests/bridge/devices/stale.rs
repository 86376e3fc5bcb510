//! The mark of the devices of a silent node, and who may set it.

use std::time::Duration;

use cloud_bridge::bridge::Settings;
use cloud_bridge::pki::authority::Authority;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::lab::{Lab, online, report, reported};
use crate::support::Edge;
use crate::support::fixture::{TestBridge, eventually, twins, unique};

const AFTER: Duration = Duration::from_secs(2);

fn settings(unknown: bool) -> Settings {
    Settings { devices_stale_after: AFTER, devices_unknown_when_silent: unknown, ..Settings::default() }
}

/// Writes what a node lifecycle controller writes for a silent node.
async fn call_silent(lab: &Lab, node: &str) {
    let condition = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "lastHeartbeatTime": "2026-03-01T10:00:00Z", "lastTransitionTime": "2026-03-01T10:00:00Z"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    // The node's last report may be written after this.
    let stays = || async {
        lab.cluster.nodes().patch_status(node, &PatchParams::default(), &patch).await.unwrap();
        tokio::time::sleep(AFTER / 10).await;
        let node = json!(lab.cluster.nodes().get(node).await.unwrap());
        node["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|one| one["status"] == "Unknown"))
    };
    eventually("that it is silent", stays).await;
}

fn ours(status: &Value) -> &Value {
    &status["status"]["extensions"]["sampan.dev"]
}

async fn until_stale(lab: &Lab, name: &str, stale: bool) -> Value {
    let is = || async { lab.status(name).await.is_some_and(|status| (ours(&status)["stale"] == true) == stale) };
    eventually(if stale { "that it is stale" } else { "that it is not stale" }, is).await;
    lab.status(name).await.unwrap()
}

async fn is_noted(lab: &Lab, node: &str) -> bool {
    let node = lab.cluster.nodes().get(node).await.unwrap();
    node.metadata.annotations.is_some_and(|all| all.contains_key("sampan.dev/devices-stale"))
}

#[tokio::test]
async fn a_silent_nodes_devices_are_called_stale_until_it_is_back() {
    let lab = Lab::open().await;
    let bridge = TestBridge::with_settings(&lab.cluster, Authority::create("test").unwrap(), settings(false)).await;
    let (node, other, model) = (unique("silent"), unique("speaks"), unique("m"));
    let (names, foreign) = ([unique("t"), unique("t")], unique("t"));
    lab.model(&model).await;
    let (identity, mut edge) = lab.edge(&bridge, &node).await;
    let (_, mut speaks) = lab.edge(&bridge, &other).await;
    let uid = lab.device(&foreign, &other, &model).await;
    assert!(speaks.report_devices(vec![online(report(&foreign, &uid, 1, &[("temp", "7")]))]).await.is_empty());
    let mut uids = Vec::new();
    for name in &names {
        let uid = lab.device(name, &node, &model).await;
        assert!(edge.report_devices(vec![online(report(name, &uid, 1, &[("temp", "1")]))]).await.is_empty());
        uids.push(uid);
    }
    let before = lab.status(&names[0]).await.unwrap();
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    speaks.linger(AFTER * 2).await;
    assert!(ours(&lab.status(&names[0]).await.unwrap()).get("stale").is_none(), "the API does not call it silent");
    call_silent(&lab, &node).await;
    for name in &names {
        let status = until_stale(&lab, name, true).await;
        assert_eq!((reported(&status, "temp"), &status["status"]["state"]), ("1", &json!("online")));
        assert_eq!(ours(&status)["session"], ours(&before)["session"]);
    }
    assert!(is_noted(&lab, &node).await);
    assert!(ours(&lab.status(&foreign).await.unwrap()).get("stale").is_none(), "of another node");

    // The node is back. A device that it reports is not stale at once; others follow without a report.
    let mut edge = Edge::connect_with_devices(bridge.address, &identity, store).await;
    edge.until("the list", |edge| edge.synced || edge.resumed).await;
    assert!(edge.report_devices(vec![report(&names[0], &uids[0], 2, &[("temp", "1")])]).await.is_empty());
    let status = lab.status(&names[0]).await.unwrap();
    assert_eq!((ours(&status).get("stale"), &status["status"]["state"]), (None, &json!("online")));
    let status = until_stale(&lab, &names[1], false).await;
    assert_eq!((reported(&status, "temp"), &status["status"]["state"]), ("1", &json!("online")));
    eventually("that it is noted no more", || async { !is_noted(&lab, &node).await }).await;
}

#[tokio::test]
async fn a_state_may_be_unknown_while_its_node_is_silent() {
    let lab = Lab::open().await;
    let bridge = TestBridge::with_settings(&lab.cluster, Authority::create("test").unwrap(), settings(true)).await;
    let (node, model, name) = (unique("silent"), unique("m"), unique("t"));
    lab.model(&model).await;
    let (identity, mut edge) = lab.edge(&bridge, &node).await;
    let uid = lab.device(&name, &node, &model).await;
    assert!(edge.report_devices(vec![online(report(&name, &uid, 1, &[("temp", "1")]))]).await.is_empty());
    for reports in [false, true] {
        let store = std::mem::take(&mut edge.store);
        drop(edge);
        call_silent(&lab, &node).await;
        let status = until_stale(&lab, &name, true).await;
        assert_eq!((&status["status"]["state"], reported(&status, "temp")), (&json!("unknown"), "1"));
        edge = Edge::connect_with_devices(bridge.address, &identity, store).await;
        edge.until("the list", |edge| edge.synced || edge.resumed).await;
        if reports {
            // Without a state, which is unchanged.
            assert!(edge.report_devices(vec![report(&name, &uid, 2, &[("temp", "2")])]).await.is_empty());
        }
        let status = until_stale(&lab, &name, false).await;
        assert_eq!((&status["status"]["state"], ours(&status).get("stateWas")), (&json!("online"), None));
        let ready = || async {
            let patch = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
            lab.cluster.nodes().patch_status(&node, &PatchParams::default(), &patch).await.is_ok()
                && !is_noted(&lab, &node).await
        };
        eventually("that it is well", ready).await;
    }
}

/// The node moves from one bridge to the other, and both know of its silence.
#[tokio::test]
async fn d15_two_bridges_do_not_undo_what_the_other_says_of_a_silent_node() {
    let lab = Lab::open().await;
    let (one, two) = twins();
    let first = TestBridge::with_settings(&lab.cluster, one, settings(false)).await;
    let second = TestBridge::with_settings(&lab.cluster, two, settings(false)).await;
    let (node, model, name) = (unique("moves"), unique("m"), unique("t"));
    lab.model(&model).await;
    let (identity, mut edge) = lab.edge(&first, &node).await;
    let uid = lab.device(&name, &node, &model).await;
    assert!(edge.report_devices(vec![online(report(&name, &uid, 1, &[("temp", "1")]))]).await.is_empty());
    let version = |status: &Value| status["metadata"]["resourceVersion"].clone();
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    call_silent(&lab, &node).await;
    let marked = until_stale(&lab, &name, true).await;
    tokio::time::sleep(AFTER * 3).await;
    assert_eq!(version(&lab.status(&name).await.unwrap()), version(&marked), "once, by one of them");

    let mut edge = Edge::connect_with_devices(second.address, &identity, store).await;
    edge.until("the list", |edge| edge.synced || edge.resumed).await;
    let cleared = until_stale(&lab, &name, false).await;
    // The node is connected, whatever the API says meanwhile.
    call_silent(&lab, &node).await;
    edge.linger(AFTER * 3).await;
    assert_eq!(version(&lab.status(&name).await.unwrap()), version(&cleared));
    drop(first);
}
