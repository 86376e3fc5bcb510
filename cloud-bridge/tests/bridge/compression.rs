//! Compressed frames between a bridge and nodes that can read them, and ones that cannot.

use async_tungstenite::tungstenite::Message;
use serde_json::json;

use crate::support::fixture::{Cluster, TestBridge, force_delete, running, status, unique};
use crate::support::{Edge, Store};

fn spec() -> serde_json::Value {
    let env: Vec<_> = (0..20).map(|n| json!({"name": format!("SETTING_{n}"), "value": "on"})).collect();
    json!({"containers": [{"name": "c", "image": "busybox", "env": env}]})
}

#[tokio::test]
async fn g20_large_frames_shrink_for_nodes_that_can_read_them_and_others_get_text() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("packed");
    // An older node: it knows nothing of compression, and all works.
    let (identity, mut old) = bridge.edge(&cluster, &node).await;
    let names: Vec<_> = (0..20).map(|_| unique("packed-pod")).collect();
    let mut pods = Vec::new();
    for name in &names {
        pods.push(cluster.create_pod(name, &node, spec()).await);
    }
    old.until("all pods", |edge| edge.held() == 20).await;
    assert_eq!(old.packed, (0, 0));
    drop(old);

    let mut edge = Edge::connect_packed(bridge.address, &identity, Store::default()).await;
    edge.until("all pods", |edge| edge.held() == 20 && edge.synced).await;
    let (frames, bytes) = edge.packed;
    assert!(frames >= 20 && bytes * 3 < edge.texts, "{frames} frames, {bytes} of {} bytes", edge.texts);
    // And upwards.
    edge.report_and_wait(status(&pods[0], running())).await.unwrap();
    let pod = cluster.pods().get(&names[0]).await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));

    // A bomb: the connection ends, nobody else's does.
    let bomb = miniz_oxide::deflate::compress_to_vec(&vec![b' '; 8 << 20], 6);
    assert!(bomb.len() < 64 << 10, "small, and eight times what a frame may hold");
    edge.send_raw(Message::binary(bomb)).await;
    edge.until_ended().await;
    let mut again = Edge::connect_packed(bridge.address, &identity, Store::default()).await;
    again.until("the first list", |edge| edge.synced).await;
    for name in &names {
        force_delete(&cluster.pods(), name).await;
    }
}

#[tokio::test]
async fn g20_who_did_not_agree_to_it_may_not_compress() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (_, mut edge) = bridge.edge(&cluster, &unique("unasked")).await;
    let packed = edge_protocol::compress::pack(&"{\"ping\":{}}".repeat(100)).unwrap();
    edge.send_raw(Message::binary(packed)).await;
    edge.until_ended().await;
}
