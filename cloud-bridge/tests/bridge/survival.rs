//! Lost connections, restarted bridges, an API with wrong answers.

use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use kube::api::DeleteParams;
use kube::api::Patch;
use kube::api::PatchParams;
use serde_json::json;
use std::time::Duration;

use crate::support::Store;
use crate::support::fixture::{Cluster, Saboteur, TestBridge, force_delete, running, status, unique};

#[tokio::test]
async fn a_node_resumes_and_survives_a_bridge_that_forgot_everything() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, map) = (unique("back"), unique("back-map"));
    let names: Vec<_> = (0..3).map(|_| unique("back-pod")).collect();
    let (identity, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_map(&map, "x").await;
    for name in &names {
        let volume = json!({"volumes": [{"name": "v", "configMap": {"name": map}}]});
        cluster.create_pod(name, &node, volume).await;
    }
    edge.until("all objects", |edge| edge.held() == 4).await;
    edge.linger(Duration::from_millis(100)).await;

    // The same bridge sends only changes.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    force_delete(&cluster.pods(), &names[0]).await;
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the deletion", |edge| edge.held() == 3).await;
    assert!(edge.resumed && edge.puts == 0, "resumed {} puts {}", edge.resumed, edge.puts);

    // A restarted bridge: a full list by digest, no body twice, and deleted objects are removed.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    bridge.kill();
    force_delete(&cluster.pods(), &names[1]).await;
    let authority = Authority::create("test").unwrap();
    let bridge = TestBridge::with(&cluster, authority).await;
    let identity = bridge.join(&cluster, &node).await;
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the full list", |edge| edge.synced).await;
    assert_eq!((edge.puts, edge.held(), edge.deleted.len()), (0, 2, 1));

    // A newer connection of the same node.
    let mut newer = bridge.connect(&identity, Store::default()).await;
    newer.until("the full list", |edge| edge.synced).await;
    let why = edge.until_ended().await;
    assert!(why.contains("Superseded"), "{why}");
    force_delete(&cluster.pods(), &names[2]).await;
    newer.until("the end of all", |edge| edge.held() == 0).await;
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn an_api_that_talks_nonsense_deletes_nothing() {
    let cluster = Cluster::open().await;
    let saboteur = Saboteur::default();
    let sane = cluster.clients.clone();
    let spoiler = saboteur.clone();
    let clients = Clients::new(saboteur.wrap(cluster.client.clone()), move |node| spoiler.wrap(sane.as_node(node)));
    let authority = Authority::create("test").unwrap();
    let bridge = TestBridge::over(clients, &cluster.client, authority, Settings::default()).await;
    let (node, name, map) = (unique("sane"), unique("sane-pod"), unique("sane-map"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_map(&map, "x").await;
    let spec = json!({"volumes": [{"name": "v", "configMap": {"name": map}}]});
    let pod = cluster.create_pod(&name, &node, spec).await;
    edge.until("both", |edge| edge.held() == 2).await;
    for kind in [1, 2, 3, 5] {
        saboteur.set(kind);
        edge.linger(Duration::from_millis(700)).await;
        assert_eq!((edge.held(), edge.deleted.len()), (2, 0), "nonsense of kind {kind}");
    }
    // A well-formed list that omits a pod: it is looked up by name before it counts as deleted.
    saboteur.set(4);
    edge.linger(Duration::from_millis(1500)).await;
    assert!(edge.object("Pod", "default", &name).is_some());

    // Reports that were made meanwhile arrive when the API works again.
    saboteur.set(2);
    let id = edge.report(status(&pod, running()));
    edge.linger(Duration::from_millis(500)).await;
    assert!(!edge.acked.contains(&id) && !edge.refused.contains_key(&id));
    saboteur.set(0);
    edge.until("the report", |edge| edge.acked.contains(&id)).await;
    cluster.maps().patch(&map, &PatchParams::default(), &Patch::Merge(json!({"data": {"key": "y"}}))).await.unwrap();
    edge.until("a change", |edge| {
        edge.object("ConfigMap", "default", &map).is_some_and(|map| map.body["data"]["key"] == "y")
    })
    .await;
    force_delete(&cluster.pods(), &name).await;
    edge.until("the end", |edge| edge.held() == 0).await;
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn what_an_empty_list_does_not_name_is_looked_up_before_it_is_deleted() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("empty"), unique("empty-pod"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_pod(&name, &node, json!({})).await;
    edge.until("the pod", |edge| edge.held() == 1).await;
    let store = std::mem::take(&mut edge.store);
    bridge.bridge.close().await;
    let ended = edge.until_ended().await;
    // A socket that is closed before an acknowledgement was read is reset.
    assert!(ended.contains("closed") || ended.contains("reset"), "{ended}");
    bridge.kill();
    force_delete(&cluster.pods(), &name).await;
    let bridge = TestBridge::start(&cluster).await;
    let identity = bridge.join(&cluster, &node).await;
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the deletion", |edge| edge.held() == 0).await;
}
