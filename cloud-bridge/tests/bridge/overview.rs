//! State of the nodes for operators, and only for them.

use std::time::Duration;

use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::overview::NodeView;
use cloud_bridge::pki::authority::Authority;

use crate::support::fixture::{Cluster, TestBridge, eventually, force_delete, unique};
use crate::support::{Identity, get};

#[tokio::test]
async fn g30_operators_see_every_node_and_its_link() {
    let cluster = Cluster::open().await;
    let authority = Authority::create("overview").unwrap();
    let operator = Identity::of_user(&authority, "somebody", "sampan:operators");
    let stranger = Identity::of_user(&authority, "somebody", "nothing");
    let settings = Settings { heartbeat: Duration::from_secs(1), ..Settings::default() };
    let bridge = TestBridge::with_settings(&cluster, authority, settings).await;
    let node = unique("seen");
    let (identity, mut edge) = bridge.edge(&cluster, &node).await;
    for path in ["/v1/nodes", "/metrics"] {
        assert_eq!(get(bridge.address, &bridge.ca, None, path, "").await.0, 401, "{path}");
        for other in [&identity, &stranger] {
            assert_eq!(get(bridge.address, &bridge.ca, Some(other), path, "").await.0, 403, "{path}");
        }
    }
    let look = || async {
        let (code, text) = get(bridge.address, &bridge.ca, Some(&operator), "/v1/nodes", "").await;
        assert_eq!(code, 200, "{text}");
        let nodes: Vec<NodeView> = serde_json::from_str(&text).unwrap();
        nodes.into_iter().find(|view| view.node == node).expect("is listed")
    };
    let pod = unique("seen-pod");
    cluster.create_pod(&pod, &node, serde_json::json!({})).await;
    edge.until("the pod", |edge| edge.held() == 1).await;
    // Two heartbeats: the first measures the time, the second reports it.
    edge.linger(Duration::from_millis(2500)).await;
    let view = look().await;
    assert!(view.connected && view.since.is_some() && view.last_seen.is_some(), "{view:?}");
    assert_eq!(Some(view.epoch), edge.session.session());
    assert_eq!((view.acked, view.queue_bytes), (Some(view.sequence), 0), "{view:?}");
    assert!(view.sequence > 0 && view.objects >= 1, "{view:?}");
    assert!(view.rtt_ms.is_some_and(|rtt| rtt < 1000), "{view:?}");
    assert!(edge.session.rtt().is_some());
    let (_, text) = get(bridge.address, &bridge.ca, Some(&operator), "/metrics", "").await;
    for line in [
        format!("sampan_bridge_node_connected{{node=\"{node}\"}} 1"),
        format!("sampan_bridge_node_epoch{{node=\"{node}\"}} {}", view.epoch),
        format!("sampan_bridge_node_acked_sequence{{node=\"{node}\"}} {}", view.sequence),
        format!("sampan_bridge_node_queue_bytes{{node=\"{node}\"}} 0"),
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }

    // A node that reads nothing leaves something in its queue; one that is gone is still listed.
    let other = unique("seen-pod");
    cluster.create_pod(&other, &node, serde_json::json!({})).await;
    eventually("something in the queue", || async { look().await.sequence > view.sequence }).await;
    drop(edge);
    eventually("its absence is seen", || async { !look().await.connected }).await;
    let gone = look().await;
    assert!(gone.last_seen.is_some() && gone.since.is_none() && gone.epoch == view.epoch, "{gone:?}");
    for name in [&pod, &other] {
        force_delete(&cluster.pods(), name).await;
    }
}
