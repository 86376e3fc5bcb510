//! An API that refuses or fails, other clients that write the same object, and a connection that is not the newest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use edge_protocol::message::DeviceReport;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::lab::{DEFINITIONS, Lab, is_shared, online, plain, report, reported};
use crate::support::Edge;
use crate::support::fixture::{TestBridge, twins, unique};
use crate::support::interpose::{Instead, Seen, interpose};

async fn bridge(lab: &Lab, look: impl Fn(Seen) -> BoxFuture<'static, Instead> + Send + Sync + 'static) -> TestBridge {
    let (inner, own) = (lab.cluster.clients.clone(), interpose(lab.cluster.client.clone(), look));
    let clients = Clients::new(own.clone(), move |node| inner.as_node(node));
    TestBridge::over(clients, &own, Authority::create("test").unwrap(), Settings::default()).await
}

fn writes(seen: &Seen) -> bool {
    matches!(seen.method, Method::PATCH | Method::POST) && seen.path.contains("/devicestatuses")
}

/// A write that fails now is made and acknowledged later.
#[tokio::test]
async fn an_api_that_fails_is_asked_again_until_it_takes_it() {
    let lab = Lab::open().await;
    let (tries, codes) = (Arc::new(AtomicU32::new(0)), [500, 503, 429, 403, 409, 409]);
    let counted = Arc::clone(&tries);
    let bridge = bridge(&lab, move |seen| {
        let turn = writes(&seen).then(|| counted.fetch_add(1, Ordering::SeqCst));
        let code = turn.and_then(|turn| codes.get(usize::try_from(turn).unwrap_or(usize::MAX)).copied());
        async move { code }.boxed()
    })
    .await;
    let (node, model, name) = (unique("patient"), unique("m"), unique("t"));
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    let refused = edge.report_devices(vec![report(&name, &uid, 1, &[("temp", "1")])]).await;
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(reported(&lab.status(&name).await.unwrap(), "temp"), "1");
    assert_eq!(tries.load(Ordering::SeqCst), 8, "six failures, the object, its status");
}

/// Another client writes between the bridge's read and write: its write is not lost.
#[tokio::test]
async fn a_write_on_an_older_version_is_made_anew() {
    let lab = Lab::open().await;
    let (statuses, once) = (lab.statuses(), Arc::new(AtomicU32::new(0)));
    let armed = Arc::clone(&once);
    let bridge = bridge(&lab, move |seen| {
        let first = seen.method == Method::PATCH
            && seen.path.contains("/devicestatuses")
            && armed.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let (statuses, path) = (statuses.clone(), seen.path);
        async move {
            if first {
                let name = path.trim_end_matches("/status").rsplit('/').next().unwrap().to_owned();
                let patch = json!({"status": {"extensions": {"example.com": {"x": 1}}}});
                statuses.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            }
            None
        }
        .boxed()
    })
    .await;
    let (node, model, name) = (unique("polite"), unique("m"), unique("t"));
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    assert!(edge.report_devices(vec![report(&name, &uid, 1, &[("temp", "1")])]).await.is_empty());
    once.store(1, Ordering::SeqCst);
    assert!(edge.report_devices(vec![report(&name, &uid, 2, &[("temp", "2")])]).await.is_empty());
    assert_eq!(once.load(Ordering::SeqCst), 2, "somebody was there");
    let status = lab.status(&name).await.unwrap();
    assert_eq!((reported(&status, "temp"), &status["status"]["extensions"]["example.com"]), ("2", &json!({"x": 1})));
}

/// Definitions without the subresource work as well.
#[tokio::test]
async fn d01_statuses_that_are_no_subresource_are_written_in_one_go() {
    if is_shared() {
        return;
    }
    let lab = Lab::open_plain().await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let bridge = bridge(&lab, move |seen| {
        counted.fetch_add(u32::from(writes(&seen)), Ordering::SeqCst);
        async { None }.boxed()
    })
    .await;
    let (node, model, name) = (unique("plain"), unique("m"), unique("t"));
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    assert!(edge.report_devices(vec![online(report(&name, &uid, 1, &[("temp", "1")]))]).await.is_empty());
    assert_eq!(tries.load(Ordering::SeqCst), 1);
    assert!(edge.report_devices(vec![report(&name, &uid, 2, &[("led", "2")])]).await.is_empty());
    let status = lab.status(&name).await.unwrap();
    assert_eq!((reported(&status, "temp"), reported(&status, "led")), ("1", "2"));
    assert_eq!((&status["status"]["state"], tries.load(Ordering::SeqCst)), (&json!("online"), 2));
    lab.delete(&name).await;
    lab.until_collected(&name).await;
}

/// The node has moved to another bridge, and the first still has its connection.
#[tokio::test]
async fn d15_a_fenced_connection_writes_nothing() {
    let lab = Lab::open().await;
    let (one, two) = twins();
    let (first, second) = (TestBridge::with(&lab.cluster, one).await, TestBridge::with(&lab.cluster, two).await);
    let (node, model, name) = (unique("fenced"), unique("m"), unique("t"));
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    let (identity, mut old) = lab.edge(&first, &node).await;
    assert!(old.report_devices(vec![report(&name, &uid, 1, &[("temp", "one")])]).await.is_empty());
    let mut new = Edge::connect_with_devices(second.address, &identity, std::mem::take(&mut old.store)).await;
    new.until("the list", |edge| edge.synced).await;
    assert!(new.report_devices(vec![report(&name, &uid, 2, &[("temp", "two")])]).await.is_empty());
    // Any report of any device.
    assert!(old.session.devices(77, vec![(&report(&name, &uid, 99, &[("temp", "late"), ("led", "late")])).into()]));
    let why = old.until_ended().await;
    assert!(why.contains("Superseded"), "{why}");
    assert!(old.devices.is_empty(), "it must not be settled");
    let status = lab.status(&name).await.unwrap();
    assert_eq!((reported(&status, "temp"), reported(&status, "led")), ("two", ""));
    assert!(new.report_devices(vec![report(&name, &uid, 3, &[("temp", "three")])]).await.is_empty());
    // Back to the first, with a number that starts over.
    let mut back = Edge::connect_with_devices(first.address, &identity, std::mem::take(&mut new.store)).await;
    back.until("the list", |edge| edge.synced || edge.resumed).await;
    assert!(back.report_devices(vec![report(&name, &uid, 1, &[("temp", "four")])]).await.is_empty());
    assert_eq!(reported(&lab.status(&name).await.unwrap(), "temp"), "four");
}

/// A batch takes as long as the rate limit of its writes; unchanged reports take no time.
#[tokio::test]
async fn d07_flood_is_limited_and_repetition_written_once_a_connection() {
    let lab = Lab::open().await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let bridge = bridge(&lab, move |seen| {
        counted.fetch_add(u32::from(seen.method == Method::PATCH && writes(&seen)), Ordering::SeqCst);
        async { None }.boxed()
    })
    .await;
    let (node, model) = (unique("flood"), unique("m"));
    lab.model(&model).await;
    let mut devices = Vec::new();
    for number in 0..25 {
        let name = unique(&format!("t{number}"));
        devices.push((lab.device(&name, &node, &model).await, name));
    }
    let (identity, mut edge) = lab.edge(&bridge, &node).await;
    let batch = |seq: u64, value: &str| -> Vec<DeviceReport> {
        devices.iter().map(|(uid, name)| report(name, uid, seq, &[("temp", value)])).collect()
    };
    let begun = Instant::now();
    assert!(edge.report_devices(batch(1, "1")).await.is_empty());
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(6), "{took:?}");
    assert_eq!(tries.load(Ordering::SeqCst), 25);
    let same: Vec<DeviceReport> = batch(1, "1").into_iter().map(|report| DeviceReport { seq: 50, ..report }).collect();
    assert!(edge.report_devices(same.clone()).await.is_empty());
    assert_eq!(tries.load(Ordering::SeqCst), 25);
    // After a reconnect the same report is written once, so that a late write of the old connection fails.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    let mut edge = Edge::connect_with_devices(bridge.address, &identity, store).await;
    edge.until("the welcome", |edge| edge.session.is_welcome()).await;
    assert!(edge.report_devices(same.clone()).await.is_empty());
    assert!(edge.report_devices(same).await.is_empty());
    assert_eq!(tries.load(Ordering::SeqCst), 50);
    for (_, name) in &devices {
        assert_eq!(reported(&lab.status(name).await.unwrap(), "temp"), "1");
    }
}

/// Without the right to read Devices a node still gets its pods, and its Devices when the right is granted.
#[tokio::test]
async fn d02_a_bridge_that_may_not_read_devices_keeps_no_node_waiting() {
    let lab = Lab::open().await;
    let refuse = Arc::new(AtomicU32::new(1));
    let refusing = Arc::clone(&refuse);
    let bridge = bridge(&lab, move |seen| {
        let lists = seen.path.ends_with("/v1beta1/devices") || seen.path.ends_with("/v1beta1/devicemodels");
        let code = (lists && refusing.load(Ordering::SeqCst) == 1).then_some(403);
        async move { code }.boxed()
    })
    .await;
    let (node, model, name) = (unique("blind"), unique("m"), unique("t"));
    lab.model(&model).await;
    lab.device(&name, &node, &model).await;
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    assert_eq!(edge.held(), 0);
    refuse.store(0, Ordering::SeqCst);
    let (_, _other) = lab.edge(&bridge, &unique("next")).await;
    edge.until("the device and its model", |edge| edge.held() == 2).await;
}

/// The definitions are replaced while nodes report: by one with the subresource, and by one without.
#[tokio::test]
async fn status_is_written_also_when_it_becomes_a_subresource_or_not() {
    if is_shared() {
        return;
    }
    let lab = Lab::open_plain().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, model, name) = (unique("swap"), unique("m"), unique("t"));
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    assert!(edge.report_devices(vec![report(&name, &uid, 1, &[("temp", "1")])]).await.is_empty());
    for (seq, definitions) in [(2, DEFINITIONS.to_owned()), (3, plain())] {
        lab.define(&definitions).await;
        assert!(edge.session.devices(seq, vec![(&report(&name, &uid, seq, &[("temp", &seq.to_string())])).into()]));
        edge.linger(Duration::from_secs(1)).await;
        // A new node makes the bridge check; otherwise it checks after a minute.
        let (_, _other) = lab.edge(&bridge, &unique("other")).await;
        edge.until("the answer", |edge| edge.devices.contains_key(&seq)).await;
        assert!(edge.devices[&seq].is_empty(), "{:?}", edge.devices);
        assert_eq!(reported(&lab.status(&name).await.unwrap(), "temp"), seq.to_string());
    }
}

/// The definitions are deleted, and with them all Devices; then they are created again.
#[tokio::test]
async fn d02_definitions_may_go_and_come_back() {
    if is_shared() {
        return;
    }
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, model, name) = (unique("gone"), unique("m"), unique("t"));
    lab.model(&model).await;
    lab.device(&name, &node, &model).await;
    let (identity, mut edge) = lab.edge(&bridge, &node).await;
    assert_eq!(edge.held(), 2);
    lab.undefine().await;
    edge.until("their end", |edge| edge.held() == 0).await;
    // A node that connects now gets everything else.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    let (_, other) = lab.edge(&bridge, &unique("other")).await;
    assert_eq!(other.held(), 0);
    lab.define(DEFINITIONS).await;
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    let mut edge = Edge::connect_with_devices(bridge.address, &identity, store).await;
    let (_, _third) = lab.edge(&bridge, &unique("third")).await;
    edge.until("the device and its model", |edge| edge.held() == 2).await;
    assert!(edge.report_devices(vec![report(&name, &uid, 1, &[("temp", "1")])]).await.is_empty());
    assert_eq!(reported(&lab.status(&name).await.unwrap(), "temp"), "1");
}
