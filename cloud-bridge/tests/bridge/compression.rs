//! Compressed frames between a bridge and nodes that can read them, and ones that cannot.

use apimachinery::flow::Flow;
use async_tungstenite::tungstenite::Message;
use futures::StreamExt;
use kubelet_api::backend::{LogOptions, PodOnNode};
use serde_json::json;
use std::time::Duration;

use crate::support::fixture::{Cluster, TestBridge, force_delete, running, status, unique};
use crate::support::{Edge, Store};

fn spec() -> serde_json::Value {
    let env: Vec<_> = (0..20).map(|n| json!({"name": format!("SETTING_{n}"), "value": "on"})).collect();
    json!({"containers": [{"name": "c", "image": "busybox", "env": env}]})
}

#[tokio::test]
async fn g20_large_frames_are_compressed_if_the_node_supports_it() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("packed");
    // An older node without compression works.
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
    // Also upwards.
    edge.report_and_wait(status(&pods[0], running())).await.unwrap();
    let pod = cluster.pods().get(&names[0]).await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));

    // A compression bomb: only its own connection ends.
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
async fn g20_streams_come_in_the_form_that_a_node_knows() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("forms");
    let (identity, _) = bridge.edge(&cluster, &node).await;
    for form in ["text", "packed text", "binary"] {
        let mut edge = match form {
            "text" => Edge::connect(bridge.address, &identity, &node, Store::default()).await.unwrap(),
            "binary" => Edge::connect_packed(bridge.address, &identity, Store::default()).await,
            _ => Edge::connect_older(bridge.address, &identity, Store::default()).await,
        };
        edge.until("the first list", |edge| edge.synced).await;
        let at = PodOnNode {
            node: node.clone(),
            namespace: "default".into(),
            pod: unique("forms-pod"),
            uid: "u".into(),
            flow: Flow::unlimited(),
        };
        let mut seed = 1_u32;
        // Some that can be packed, then noise.
        let mut bytes = b"10.88.0.1 - - GET /index.html\n".repeat(2000);
        bytes.resize_with(200_000, || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed.to_be_bytes()[0]
        });
        let reader = tokio::spawn({
            let (bridge, options) =
                (bridge.bridge.clone(), LogOptions { container: "c".into(), ..LogOptions::default() });
            async move {
                let mut stream = bridge.logs(at, options).await.unwrap();
                let mut bytes = Vec::new();
                while let Some(chunk) = stream.next().await {
                    bytes.extend(chunk.unwrap());
                }
                bytes
            }
        });
        edge.until("the request", |edge| !edge.streams.is_empty()).await;
        let (stream, _) = edge.streams.pop().unwrap();
        let mut sent = 0;
        while sent < bytes.len() {
            edge.until("credit", |edge| edge.session.stream_room(stream) > 0).await;
            let size = edge.session.stream_room(stream).min(bytes.len() - sent);
            edge.session.stream_send(stream, &bytes[sent..sent + size]).unwrap();
            sent += size;
        }
        edge.session.stream_end(stream, None);
        edge.linger(Duration::from_millis(200)).await;
        assert!(reader.await.unwrap() == bytes, "{form}");
        assert_eq!(edge.raw.0 > 0, form == "binary", "{form}: {} binary frames", edge.raw.0);
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
