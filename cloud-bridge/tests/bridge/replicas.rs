//! Several bridges on one API, and objects that a bridge may not read.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::support::fixture::{Cluster, TestBridge, force_delete, running, status, twins, unique};

fn saying(text: &str) -> Value {
    let mut status = running();
    status["message"] = text.into();
    status
}

async fn message(cluster: &Cluster, pod: &str) -> Option<String> {
    cluster.pods().get(pod).await.unwrap().status.and_then(|status| status.message)
}

/// The node has moved to another bridge, and the first still has its connection: reports over that one are no longer
/// written, and it ends. Then the node returns.
#[tokio::test]
async fn g11_a_node_may_go_to_another_bridge_and_the_first_writes_nothing_old() {
    let cluster = Cluster::open().await;
    let (one, two) = twins();
    let (first, second) = (TestBridge::with(&cluster, one).await, TestBridge::with(&cluster, two).await);
    let (node, name) = (unique("fenced"), unique("fenced-pod"));
    let (identity, mut old) = first.edge(&cluster, &node).await;
    let pod = cluster.create_pod(&name, &node, json!({})).await;
    old.until("the pod", |edge| edge.held() == 1).await;
    old.report_and_wait(status(&pod, saying("one"))).await.unwrap();
    assert_eq!(message(&cluster, &name).await.as_deref(), Some("one"));

    let mut new = second.connect(&identity, std::mem::take(&mut old.store)).await;
    new.report_and_wait(status(&pod, saying("two"))).await.unwrap();
    assert!(!new.resumed, "another bridge has another stream");

    let late = old.report(status(&pod, saying("late")));
    let why = old.until_ended().await;
    assert!(why.contains("Superseded"), "{why}");
    assert!(!old.acked.contains(&late) && !old.refused.contains_key(&late), "a late report must not be settled");
    assert_eq!(message(&cluster, &name).await.as_deref(), Some("two"));

    new.report_and_wait(status(&pod, saying("three"))).await.unwrap();
    assert_eq!(message(&cluster, &name).await.as_deref(), Some("three"));

    // Back to the first bridge, whose old state of the node does no harm.
    let mut back = first.connect(&identity, std::mem::take(&mut new.store)).await;
    back.report_and_wait(status(&pod, saying("four"))).await.unwrap();
    assert_eq!(message(&cluster, &name).await.as_deref(), Some("four"));
    force_delete(&cluster.pods(), &name).await;
    back.until("the end", |edge| edge.held() == 0).await;
}

/// All pods of a node were deleted unnoticed, and the API server no longer lets the node read their ConfigMap: it is
/// removed with them, and the next connection resumes.
#[tokio::test]
async fn g07_what_no_pod_names_any_more_goes_though_nobody_may_read_it() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name, map) = (unique("doubt"), unique("doubt-pod"), unique("doubt-map"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_map(&map, "x").await;
    let spec = json!({"volumes": [{"name": "v", "configMap": {"name": map}}]});
    cluster.create_pod(&name, &node, spec).await;
    edge.until("both", |edge| edge.held() == 2).await;
    edge.linger(Duration::from_millis(100)).await;
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    bridge.kill();
    force_delete(&cluster.pods(), &name).await;

    let bridge = TestBridge::start(&cluster).await;
    let identity = bridge.join(&cluster, &node).await;
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the end of both", |edge| edge.held() == 0).await;
    edge.until("a position", |edge| edge.store.position.is_some()).await;
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the resume", |edge| edge.session.is_welcome()).await;
    assert!(edge.resumed);
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
}
