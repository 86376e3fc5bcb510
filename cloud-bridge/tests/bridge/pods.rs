//! Pods and the objects that they name, down and up.

use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::api::Patch;
use kube::api::PatchParams;
use serde_json::{Value, json};
use std::time::Duration;
use std::time::Instant;

use crate::support::fixture::{Cluster, TestBridge, eventually, force_delete, gone, running, status, unique};

#[tokio::test]
async fn a_pod_and_what_it_names_go_down_and_its_status_comes_up() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name, map) = (unique("road"), unique("road-pod"), unique("road-map"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_map(&map, "one").await;
    let spec = json!({"containers": [{"name": "c", "image": "busybox", "envFrom": [{"configMapRef": {"name": map}}]}]});
    let pod = cluster.create_pod(&name, &node, spec).await;
    edge.until("the pod", |edge| edge.object("Pod", "default", &name).is_some()).await;
    assert_eq!(edge.object("ConfigMap", "default", &map).unwrap().body["data"]["key"], "one");
    let body = &edge.object("Pod", "default", &name).unwrap().body;
    assert_eq!((&body["metadata"]["managedFields"], &body["status"]), (&Value::Null, &Value::Null));

    // A status up; a condition of another controller stays; nothing is sent down for it.
    let other = json!({"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}});
    let params = PatchParams::default();
    cluster.pods().patch_status(&name, &params, &Patch::Strategic(other)).await.unwrap();
    let puts = edge.puts;
    edge.report_and_wait(status(&pod, running())).await.unwrap();
    let shown = cluster.pods().get(&name).await.unwrap().status.unwrap();
    assert_eq!(shown.phase.as_deref(), Some("Running"));
    let kinds: Vec<_> = shown.conditions.unwrap().into_iter().map(|c| c.type_).collect();
    assert!(kinds.contains(&"example.com/gate".to_owned()) && kinds.contains(&"Ready".to_owned()), "{kinds:?}");
    assert_eq!(shown.pod_ips.unwrap().len(), 1);
    let mut moved = running();
    moved["podIP"] = "10.1.0.3".into();
    moved["podIPs"] = json!([{"ip": "10.1.0.3"}]);
    moved["message"] = "hello".into();
    // As after a new address from DHCP.
    moved["hostIP"] = "192.0.2.8".into();
    moved["hostIPs"] = json!([{"ip": "192.0.2.8"}, {"ip": "2001:db8::8"}]);
    edge.report_and_wait(status(&pod, moved)).await.unwrap();
    edge.report_and_wait(status(&pod, running())).await.unwrap();
    let shown = cluster.pods().get(&name).await.unwrap().status.unwrap();
    assert_eq!((shown.pod_ips.unwrap().len(), shown.message), (1, None), "what the node no longer says is gone");
    let host_ips: Vec<_> = shown.host_ips.unwrap().into_iter().map(|address| address.ip).collect();
    assert_eq!(host_ips, ["192.0.2.7"]);
    edge.linger(Duration::from_millis(200)).await;
    assert_eq!(edge.puts, puts, "a change of status costs nothing on the way down");

    // Changed, deleted and created again.
    let change = Patch::Merge(json!({"data": {"key": "two"}}));
    cluster.maps().patch(&map, &params, &change).await.unwrap();
    edge.until("the change", |edge| {
        edge.object("ConfigMap", "default", &map).is_some_and(|object| object.body["data"]["key"] == "two")
    })
    .await;
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
    edge.until("the deletion", |edge| edge.object("ConfigMap", "default", &map).is_none()).await;
    cluster.create_map(&map, "three").await;
    edge.until("its successor", |edge| edge.object("ConfigMap", "default", &map).is_some()).await;

    // Graceful deletion.
    cluster.pods().delete(&name, &DeleteParams::default().grace_period(5)).await.unwrap();
    edge.until("the request to end", |edge| {
        edge.object("Pod", "default", &name).is_some_and(|pod| !pod.body["metadata"]["deletionTimestamp"].is_null())
    })
    .await;
    edge.report_and_wait(gone(&pod)).await.unwrap();
    assert!(cluster.pods().get_opt(&name).await.unwrap().is_none());
    edge.until("the tombstones", |edge| edge.held() == 0).await;
    edge.report_and_wait(gone(&pod)).await.expect("a repetition is harmless");
    edge.report_and_wait(status(&pod, running())).await.expect("that it has gone is newer");
    assert!(cluster.pods().get_opt(&name).await.unwrap().is_none());
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_successor_of_the_same_name_is_never_touched() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("uid"), unique("uid-pod"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let old = cluster.create_pod(&name, &node, json!({})).await;
    edge.until("the pod", |edge| edge.object("Pod", "default", &name).is_some()).await;
    force_delete(&cluster.pods(), &name).await;
    let new = cluster.create_pod(&name, &node, json!({})).await;
    edge.report_and_wait(gone(&old)).await.unwrap();
    edge.report_and_wait(status(&old, running())).await.unwrap_err();
    let shown = cluster.pods().get(&name).await.unwrap();
    assert_eq!((shown.uid(), shown.status.unwrap().phase.as_deref()), (new.uid(), Some("Pending")));
    edge.until("the successor", |edge| {
        edge.object("Pod", "default", &name).is_some_and(|pod| Some(&pod.digest.uid) == new.uid().as_ref())
    })
    .await;
    force_delete(&cluster.pods(), &name).await;
    edge.until("the end", |edge| edge.held() == 0).await;
}

#[tokio::test]
async fn a_pod_called_unready_in_the_absence_of_its_node_is_called_ready_again() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("ready"), unique("ready-pod"));
    let (identity, mut edge) = bridge.edge(&cluster, &node).await;
    let pod = cluster.create_pod(&name, &node, json!({})).await;
    edge.until("the pod", |edge| edge.object("Pod", "default", &name).is_some()).await;
    edge.report_and_wait(status(&pod, running())).await.unwrap();
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.pods().patch_status(&name, &PatchParams::default(), &Patch::Strategic(unready)).await.unwrap();
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the welcome", |edge| edge.session.is_welcome()).await;
    eventually("the condition", || async {
        let conditions = cluster.pods().get(&name).await.unwrap().status.unwrap().conditions.unwrap();
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
    })
    .await;
    force_delete(&cluster.pods(), &name).await;
}

/// Prints the figures instead of checking a limit, because hosts differ.
#[tokio::test]
async fn fifty_pods_at_once() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("many");
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let names: Vec<_> = (0..50).map(|_| unique("many-pod")).collect();
    let start = Instant::now();
    let mut pods = Vec::new();
    for name in &names {
        pods.push(cluster.create_pod(name, &node, json!({})).await);
    }
    let created = start.elapsed();
    edge.until("all pods", |edge| edge.held() == 50).await;
    let down = start.elapsed() - created;
    let start = Instant::now();
    for pod in &pods {
        edge.report(status(pod, running()));
    }
    edge.until("all answers", |edge| edge.acked.len() == 51).await;
    // For the reader of the test's output.
    #[allow(clippy::print_stderr)]
    {
        eprintln!("50 pods: created {created:?}, down after {down:?} more, 50 statuses up {:?}", start.elapsed());
    }
    for name in &names {
        force_delete(&cluster.pods(), name).await;
    }
    edge.until("the end", |edge| edge.held() == 0).await;
}
