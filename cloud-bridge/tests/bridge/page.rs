//! The page with all nodes: what it says of a node that comes, has a pod and goes, and to whom.

use std::sync::Arc;
use std::time::Duration;

use cloud_bridge::accept::Gate;
use cloud_bridge::bridge::Settings;
use cloud_bridge::page::{self, PageFlags};
use serde_json::{Value, json};

use crate::support::fixture::{Cluster, TestBridge, eventually, force_delete, twins, unique};
use crate::support::{Identity, get};

#[tokio::test]
async fn the_page_shows_a_node_its_link_and_its_pods_to_operators() {
    let cluster = Cluster::open().await;
    let (authority, of_page) = twins();
    let operator = Identity::of_user(&authority, "somebody", "sampan:operators");
    let flags = PageFlags { page: Some(([127, 0, 0, 1], 0).into()), ..PageFlags::default() };
    let page = flags.bind(false).await.unwrap().unwrap();
    let address = page.address().unwrap();
    let settings =
        Settings { heartbeat: Duration::from_secs(1), pods_seen: Some(page.pods_seen()), ..Settings::default() };
    let bridge = TestBridge::with_settings(&cluster, authority, settings).await;
    let (of_bridge, client) = (bridge.bridge.clone(), cluster.client.clone());
    let serving = tokio::spawn(async move {
        page::serve(Some(page), &of_bridge, &Arc::new(of_page), flags.names(&[]), client, Gate::new()).await.map(drop)
    });

    let node = unique("shown");
    let (identity, mut edge) = bridge.edge(&cluster, &node).await;
    for path in ["/api/nodes", "/api/stream", "/"] {
        assert_eq!(get(address, &bridge.ca, None, path, "").await.0, 401, "{path}");
        assert_eq!(get(address, &bridge.ca, Some(&identity), path, "").await.0, 401, "{path}: a node is no operator");
    }
    let bad = "Authorization: Bearer nonsense\r\n";
    assert_eq!(get(address, &bridge.ca, None, "/api/nodes", bad).await.0, 401);

    // Link, ready pods, wanted pods.
    let look = || async {
        let (code, text) = get(address, &bridge.ca, Some(&operator), "/api/nodes", "").await;
        assert_eq!(code, 200, "{text}");
        let all: Value = serde_json::from_str(&text).unwrap();
        let row = all["rows"].as_array().unwrap().iter().find(|row| row[0] == node.as_str()).cloned();
        row.map(|row| json!([row[1], row[4], row[5]]))
    };
    eventually("the node is shown", || async { look().await == Some(json!([1, 0, 0])) }).await;
    let pod = unique("shown-pod");
    cluster.create_pod(&pod, &node, json!({})).await;
    edge.until("the pod", |edge| edge.held() == 1).await;
    eventually("its pod is shown", || async { look().await == Some(json!([1, 0, 1])) }).await;

    let path = format!("/api/nodes/{node}");
    let (code, text) = get(address, &bridge.ca, Some(&operator), &path, "").await;
    let detail: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &detail["name"]), (200, &json!(node)), "{text}");
    assert_eq!((&detail["pods"][0][1], &detail["link"]["connected"]), (&json!(pod), &json!(true)), "{text}");
    let timeline = detail["timeline"].as_array().unwrap();
    assert!(timeline.iter().any(|change| change[1] == 0 && change[2] == 1), "the link came up: {text}");
    assert!(timeline.iter().any(|change| change[1] == 2 && change[2] == 1), "a pod came: {text}");
    let none = unique("none");
    assert_eq!(get(address, &bridge.ca, Some(&operator), &format!("/api/nodes/{none}"), "").await.0, 404);

    drop(edge);
    eventually("its absence is shown", || async { look().await == Some(json!([0, 0, 1])) }).await;
    force_delete(&cluster.pods(), &pod).await;
    eventually("its pod is gone", || async { look().await == Some(json!([0, 0, 0])) }).await;
    cluster.nodes().delete(&node, &kube::api::DeleteParams::default()).await.unwrap();
    eventually("it is gone", || async { look().await.is_none() }).await;
    serving.abort();
}
