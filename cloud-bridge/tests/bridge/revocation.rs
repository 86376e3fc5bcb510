//! Certificates over time: which nodes are admitted again, which are disconnected, and how fast.

use std::time::{Duration, Instant};

use cloud_bridge::bridge::{ISSUED_FROM, REVOKED};
use cloud_bridge::pki::authority::Authority;
use edge_protocol::message::{RenewAnswer, Report};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::support::fixture::{Cluster, TestBridge, eventually, node_object, unique};
use crate::support::{Edge, Identity, Store, ask};

/// The bridge's answer to whether this certificate is valid.
async fn standing(bridge: &TestBridge, identity: &Identity) -> (u16, String) {
    ask("POST", bridge.address, &bridge.ca, Some(identity), "/v1/identity", "Content-Length: 0\r\n").await
}

async fn refused(bridge: &TestBridge, identity: &Identity) -> String {
    let error = Edge::connect(bridge.address, identity, &identity.node, Store::default()).await.err().expect("refused");
    assert!(error.to_string().contains("403"), "{error}");
    let (code, text) = standing(bridge, identity).await;
    assert_eq!(code, 403, "{text}");
    text
}

#[tokio::test]
async fn g28_a_deleted_node_is_sent_away_and_only_a_fresh_token_brings_it_back() {
    let cluster = Cluster::open().await;
    let authority = Authority::create("test").unwrap();
    let again = Authority::from_pem("test", &authority.certificate_pem(), &authority.key_pem()).unwrap();
    let bridge = TestBridge::with(&cluster, authority).await;
    let name = unique("gone");
    let (old, mut edge) = bridge.edge(&cluster, &name).await;
    assert_eq!(standing(&bridge, &old).await.0, 200);

    let start = Instant::now();
    cluster.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
    let why = edge.until_ended().await;
    assert!(why.contains("Forbidden") && why.contains("fresh token"), "{why}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(edge.deleted.is_empty(), "nothing is taken from it");
    assert!(refused(&bridge, &old).await.contains("fresh token"));
    assert!(cluster.nodes().get_opt(&name).await.unwrap().is_none(), "it did not register again");

    // A bridge that has seen none of it gives the same answer.
    bridge.kill();
    let bridge = TestBridge::with(&cluster, again).await;
    assert!(refused(&bridge, &old).await.contains("fresh token"));

    let (new, edge) = bridge.edge(&cluster, &name).await;
    assert_eq!(standing(&bridge, &new).await.0, 200);
    // The revoked device is not admitted with the new one.
    assert!(refused(&bridge, &old).await.contains("before the node joined again"));
    drop(edge);
    cluster.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn g28_an_annotation_sends_a_node_away_until_it_joins_again() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let name = unique("revoked");
    let (old, mut edge) = bridge.edge(&cluster, &name).await;
    let annotate = |value: serde_json::Value| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {REVOKED: value}}}));
        let (nodes, name) = (cluster.nodes(), name.clone());
        async move { nodes.patch(&name, &PatchParams::default(), &patch).await.unwrap() }
    };
    let start = Instant::now();
    annotate("stolen".into()).await;
    let why = edge.until_ended().await;
    assert!(why.contains("revoked"), "{why}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(refused(&bridge, &old).await.contains("revoked"));

    // A node cannot set the annotations that control it.
    let (new, mut edge) = bridge.edge(&cluster, &name).await;
    let node = cluster.nodes().get(&name).await.unwrap();
    assert!(!node.annotations().contains_key(REVOKED) && node.annotations().contains_key(ISSUED_FROM));
    for annotation in [REVOKED, ISSUED_FROM] {
        let mut object = node_object(&name);
        object["metadata"]["annotations"] = json!({annotation: "2001-01-01T00:00:00Z"});
        let error = edge.report_and_wait(Report::Node { node: object }).await.unwrap_err();
        assert!(error.contains(annotation), "{error}");
    }
    // Revoked and restored manually: the certificate is valid again.
    annotate(true.to_string().into()).await;
    edge.until_ended().await;
    annotate(serde_json::Value::Null).await;
    eventually("it is let in again", || async { standing(&bridge, &new).await.0 == 200 }).await;
    cluster.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn g24_certificate_is_renewed_and_the_old_connection_ends() {
    let cluster = Cluster::open().await;
    let authority = Authority::create("test").unwrap().with_node_life(Duration::from_secs(8));
    let bridge = TestBridge::with(&cluster, authority).await;
    let name = unique("renewed");
    let (first, mut edge) = bridge.edge(&cluster, &name).await;
    let terms = edge.terms.expect("the bridge renews");
    assert!(terms.left_ms <= 8_000 && (7_000..=8_000).contains(&terms.life_ms), "{terms:?}");

    // G23: the certificate has the connection's name, whatever the request asks for.
    let (answer, _) = edge.renew("system:node:somebody-else").await;
    assert!(matches!(&answer, RenewAnswer::Refused { reason } if reason.contains("somebody-else")), "{answer:?}");
    let (answer, key) = edge.renew("admin").await;
    let RenewAnswer::Issued { certificate, authorities } = answer else { panic!("{answer:?}") };
    assert_eq!(authorities.len(), 1);
    let second = first.renewed(certificate.0, key);
    assert_eq!(standing(&bridge, &second).await, (200, json!({ "node": name }).to_string()));

    // The old connection ends with its certificate, and a new one is refused.
    let why = edge.until_ended().await;
    assert!(!why.contains("Forbidden"), "the node may come again: {why}");
    let late = Edge::connect(bridge.address, &first, &name, Store::default()).await.err().expect("refused");
    assert!(late.to_string().to_lowercase().contains("expired") || late.to_string().contains("401"), "{late}");
    drop(cluster.nodes().delete(&name, &DeleteParams::default()).await);
}
