//! The Devices that a node receives, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use edge_protocol::message::Report;
use futures::FutureExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::lab::{DEFINITIONS, Lab, MODEL, is_shared, report, reported};
use crate::support::Edge;
use crate::support::fixture::{TestBridge, node_object, unique};
use crate::support::interpose::interpose;

const PAUSE: Duration = Duration::from_millis(700);

#[tokio::test]
async fn d02_devices_and_models_come_in_any_order() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let node = unique("order");
    // Before the node connects, and after; the Device first, or the model.
    let names: Vec<_> = (0..4).map(|number| (unique(&format!("t{number}")), unique(&format!("m{number}")))).collect();
    lab.device(&names[0].0, &node, &names[0].1).await;
    lab.model(&names[1].1).await;
    lab.device(&names[1].0, &node, &names[1].1).await;
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    assert_eq!(edge.held(), 3, "the list has what is there");
    lab.model(&names[0].1).await;
    edge.until("the late model", |edge| edge.held() == 4).await;
    lab.device(&names[2].0, &node, &names[2].1).await;
    lab.model(&names[2].1).await;
    lab.model(&names[3].1).await;
    lab.device(&names[3].0, &node, &names[3].1).await;
    edge.until("all", |edge| edge.held() == 8).await;
    for (device, model) in &names {
        assert!(edge.object("Device", "default", device).is_some() && edge.object(MODEL, "default", model).is_some());
    }

    // A model that changes, and one that is deleted.
    let unit = json!({"spec": {"protocol": "other"}});
    lab.models().patch(&names[0].1, &PatchParams::default(), &Patch::Merge(unit)).await.unwrap();
    let is_other = |edge: &Edge| {
        edge.object(MODEL, "default", &names[0].1).is_some_and(|model| model.body["spec"]["protocol"] == "other")
    };
    edge.until("the changed model", is_other).await;
    lab.models().delete(&names[1].1, &DeleteParams::default()).await.unwrap();
    edge.until("the end of a model", |edge| edge.held() == 7).await;
    // A change without an effect on a device is not sent.
    let puts = edge.puts;
    let decoration = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"example.com/x": "y"}},
        "status": {"reportCycle": 5}});
    lab.patch(&names[3].0, decoration).await;
    edge.linger(PAUSE).await;
    assert_eq!(edge.puts, puts);
    lab.patch(&names[3].0, json!({"metadata": {"labels": {"description": "lamp"}}})).await;
    edge.until("its description", |edge| edge.puts == puts + 1).await;
}

#[tokio::test]
async fn d03_a_device_that_moves_or_goes_leaves_its_node() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (here, there, name, model) = (unique("here"), unique("there"), unique("t"), unique("m"));
    let (_, mut old) = lab.edge(&bridge, &here).await;
    let (_, mut new) = lab.edge(&bridge, &there).await;
    lab.model(&model).await;
    let uid = lab.device(&name, &here, &model).await;
    old.until("the device", |edge| edge.held() == 2).await;
    assert!(old.report_devices(vec![report(&name, &uid, 7, &[("temp", "1"), ("led", "x")])]).await.is_empty());

    lab.patch(&name, json!({"spec": {"nodeName": there}})).await;
    old.until("its end here", |edge| edge.held() == 0).await;
    new.until("it there", |edge| edge.held() == 2).await;
    // Reports of the new node count, whatever the numbers of the old one; reports of the old one do not.
    assert!(new.report_devices(vec![report(&name, &uid, 1, &[("temp", "2")])]).await.is_empty());
    let refused = old.report_devices(vec![report(&name, &uid, 99, &[("temp", "3")])]).await;
    assert!(refused.len() == 1 && refused[0].uid == uid && refused[0].reason.contains(&here), "{refused:?}");
    let status = lab.status(&name).await.unwrap();
    assert_eq!((reported(&status, "temp"), reported(&status, "led")), ("2", "x"));

    // And back: a Device may return to an earlier node.
    lab.patch(&name, json!({"spec": {"nodeName": here}})).await;
    old.until("it here again", |edge| edge.held() == 2).await;
    new.until("its end there", |edge| edge.held() == 0).await;
    assert!(old.report_devices(vec![report(&name, &uid, 100, &[("temp", "4")])]).await.is_empty());
    assert_eq!(reported(&lab.status(&name).await.unwrap(), "temp"), "4");

    // Bound to no node.
    lab.patch(&name, json!({"spec": {"nodeName": ""}})).await;
    old.until("its end", |edge| edge.held() == 0).await;
    lab.delete(&name).await;
    lab.until_collected(&name).await;
}

#[tokio::test]
async fn d03_a_device_made_anew_under_its_name_shows_nothing_of_the_old_one() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, name, model) = (unique("anew"), unique("t"), unique("m"));
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    lab.model(&model).await;
    let old = lab.device(&name, &node, &model).await;
    edge.until("the device", |edge| edge.held() == 2).await;
    assert!(edge.report_devices(vec![report(&name, &old, 9, &[("temp", "old"), ("led", "old")])]).await.is_empty());
    lab.delete(&name).await;
    let uid = lab.device(&name, &node, &model).await;
    let is_new = |edge: &Edge| edge.object("Device", "default", &name).is_some_and(|device| device.digest.uid == uid);
    edge.until("the new one", is_new).await;
    // A late report of the old one, and the first of the new one.
    let refused = edge.report_devices(vec![report(&name, &old, 10, &[("temp", "old")])]).await;
    assert!(refused.len() == 1 && refused[0].uid == old, "{refused:?}");
    assert!(edge.report_devices(vec![report(&name, &uid, 1, &[("temp", "new")])]).await.is_empty());
    let status = lab.status(&name).await.unwrap();
    assert_eq!((reported(&status, "temp"), reported(&status, "led")), ("new", ""));
    assert_eq!(status["metadata"]["ownerReferences"][0]["uid"], uid.as_str());
}

/// After any change of a Device while the node or the bridge is away, the node holds the present state.
#[tokio::test]
async fn d02_what_happened_meanwhile_is_made_up_for() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, model) = (unique("away"), unique("m"));
    let names: Vec<_> = (0..4).map(|number| unique(&format!("t{number}"))).collect();
    let (identity, mut edge) = lab.edge(&bridge, &node).await;
    lab.model(&model).await;
    for name in &names {
        lab.device(name, &node, &model).await;
    }
    edge.until("all", |edge| edge.held() == 5).await;
    // The link breaks: the node resumes, and receives only changes.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    lab.delete(&names[0]).await;
    tokio::time::sleep(PAUSE).await;
    let mut edge = Edge::connect_with_devices(bridge.address, &identity, store).await;
    edge.until("the end of one", |edge| edge.held() == 4).await;
    assert!(edge.resumed && edge.puts == 0);
    // The bridge loses its state: unchanged bodies are not sent again.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    bridge.kill();
    lab.delete(&names[1]).await;
    lab.patch(&names[2], json!({"spec": {"nodeName": "elsewhere"}})).await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let identity = bridge.join(&lab.cluster, &node).await;
    let mut edge = Edge::connect_with_devices(bridge.address, &identity, store).await;
    edge.until("the end of two", |edge| edge.held() == 2).await;
    assert!(edge.object("Device", "default", &names[3]).is_some() && edge.puts == 0, "{}", edge.puts);
    // Configured without devices it holds none.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the end of all", |edge| edge.held() == 0).await;
    // And with devices again.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    let mut edge = Edge::connect_with_devices(bridge.address, &identity, store).await;
    edge.until("what is left", |edge| edge.held() == 2).await;
}

#[tokio::test]
async fn d13_bridge_watches_only_for_nodes_that_ask_and_tells_no_other() {
    let lab = Lab::open().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let (inner, counted) = (lab.cluster.clients.clone(), Arc::clone(&asked));
    let own = interpose(lab.cluster.client.clone(), move |seen| {
        counted.fetch_add(usize::from(seen.path.contains("devices.kubeedge.io")), Ordering::SeqCst);
        async { None }.boxed()
    });
    let clients = Clients::new(own.clone(), move |node| inner.as_node(node));
    let authority = Authority::create("test").unwrap();
    let bridge = TestBridge::over(clients, &own, authority, Settings::default()).await;
    let (plain, node, model) = (unique("plain"), unique("wants"), unique("m"));
    let (_, mut without) = bridge.edge(&lab.cluster, &plain).await;
    lab.model(&model).await;
    lab.device(&unique("t"), &plain, &model).await;
    without.linger(PAUSE).await;
    assert_eq!((without.held(), asked.load(Ordering::SeqCst)), (0, 0));
    let (_, mut with) = lab.edge(&bridge, &node).await;
    assert!(asked.load(Ordering::SeqCst) > 0);
    with.linger(PAUSE).await;
    without.linger(PAUSE).await;
    assert_eq!((with.held(), without.held()), (0, 0));
}

/// A cluster without the definitions still sends pods to nodes; when the definitions are created, nodes get their
/// Devices.
#[tokio::test]
async fn d02_a_cluster_that_knows_no_devices_has_none() {
    if is_shared() {
        return;
    }
    let lab = Lab::bare().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, other, name, model) = (unique("early"), unique("late"), unique("t"), unique("m"));
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    assert!(edge.synced && edge.held() == 0);
    let refused = edge.session.devices(1, vec![(&report("t", "u", 1, &[])).into()]);
    assert!(refused, "it is sent");
    edge.until("the refusal", |edge| edge.devices.contains_key(&1)).await;
    assert_eq!(edge.devices[&1].len(), 1);
    lab.define(DEFINITIONS).await;
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    // A new node asks at once; otherwise the next check is within a minute.
    let (_, _other) = lab.edge(&bridge, &other).await;
    edge.until("the device", |edge| edge.held() == 2).await;
    assert!(edge.report_devices(vec![report(&name, &uid, 1, &[("temp", "1")])]).await.is_empty());
    assert_eq!(reported(&lab.status(&name).await.unwrap(), "temp"), "1");
    edge.report_and_wait(Report::Node { node: node_object(&node) }).await.unwrap();
}

#[tokio::test]
async fn a_device_made_right_after_its_definitions_is_told_soon() {
    if is_shared() {
        return;
    }
    let lab = Lab::bare().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let node = unique("early");
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    edge.linger(Duration::from_millis(500)).await;
    lab.define(DEFINITIONS).await;
    let (name, model) = (unique("t"), unique("lab"));
    lab.model(&model).await;
    lab.device(&name, &node, &model).await;
    let made = Instant::now();
    edge.until("the device and its model", |edge| edge.held() == 2).await;
    assert!(made.elapsed() < Duration::from_secs(2), "{:?}", made.elapsed());
}
