//! Two bridges on one API: a node may connect to either, and only its newest connection counts.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::flow::Flow;
use cloud_bridge::accept::Gate;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::bridge::{AddressType, Settings};
use cloud_bridge::kubelet::Ports;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::tls;
use edge_protocol::message::Report;
use futures::StreamExt;
use kubelet_api::backend::{BackendError, LogOptions, PodOnNode};
use serde_json::json;

use crate::support::Store;
use crate::support::fixture::{
    Cluster, Saboteur, TestBridge, eventually, force_delete, node_object, running, status, twins, unique,
};

/// A bridge that also serves the kubelet API of its nodes.
async fn serving(cluster: &Cluster, authority: Authority, ports: (u16, u16)) -> TestBridge {
    let signed = authority.server(&[]).unwrap();
    let callers = [authority.certificate().clone()];
    let config = tls::server_config(authority.certificate(), signed, &callers, &[b"http/1.1"]).unwrap();
    let ports = Ports::new(
        (AddressType::InternalIp, Ipv4Addr::LOCALHOST.into()),
        ports,
        config,
        cluster.client.clone(),
        Gate::new(),
    );
    let kubelet = Arc::clone(&ports);
    let settings = Settings { kubelet: Some(Arc::new(move |node| kubelet.endpoint(node))), ..Settings::default() };
    let bridge = TestBridge::with_settings(cluster, authority, settings).await;
    ports.set_bridge(bridge.bridge.clone(), None);
    bridge
}

async fn kubelet_port(cluster: &Cluster, node: &str) -> i32 {
    let status = cluster.nodes().get(node).await.unwrap().status.unwrap();
    status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port
}

#[tokio::test]
async fn g11_a_node_at_two_bridges_belongs_to_the_newer_connection() {
    let cluster = Cluster::open().await;
    let (first, second) = twins();
    let a = serving(&cluster, first, (30_000, 30_999)).await;
    let b = serving(&cluster, second, (31_000, 31_999)).await;
    let (node, name) = (unique("moves"), unique("moves-pod"));
    let (identity, mut old) = a.edge(&cluster, &node).await;
    let pod = cluster.create_pod(&name, &node, json!({})).await;
    old.until("the pod", |edge| edge.held() == 1).await;
    old.report_and_wait(status(&pod, running())).await.unwrap();
    assert!((30_000..31_000).contains(&kubelet_port(&cluster, &node).await), "logs come from the first");
    let epoch = old.session.session().unwrap();

    // The node connects to the other bridge while the first still has a connection of it, as after a change of network.
    let store = Store { position: old.store.position.clone(), held: std::mem::take(&mut old.store.held) };
    let mut new = b.connect(&identity, store).await;
    new.report_and_wait(Report::Node { node: node_object(&node) }).await.unwrap();
    assert!(new.session.session().unwrap() > epoch);
    let why = old.until_ended().await;
    assert!(why.contains("Superseded"), "{why}");

    // Everything uses the newer connection: statuses, the address for logs, logs; bodies are not sent twice.
    new.until("the full list", |edge| edge.synced).await;
    assert_eq!((new.puts, new.held(), new.deleted.len()), (0, 1, 0));
    assert!((31_000..32_000).contains(&kubelet_port(&cluster, &node).await), "logs come from the second");
    let mut failed = running();
    failed["phase"] = "Failed".into();
    new.report_and_wait(status(&pod, failed)).await.unwrap();
    assert_eq!(cluster.pods().get(&name).await.unwrap().status.unwrap().phase.as_deref(), Some("Failed"));
    let place = || PodOnNode {
        node: node.clone(),
        namespace: "default".into(),
        pod: name.clone(),
        uid: String::new(),
        flow: Flow::unlimited(),
    };
    let asked = tokio::spawn({
        let (bridge, place) = (b.bridge.clone(), place());
        async move { bridge.logs(place, LogOptions::default()).await.unwrap().next().await }
    });
    new.until("the request for the log", |edge| !edge.streams.is_empty()).await;
    let (stream, _) = new.streams.pop().unwrap();
    new.session.stream_send(stream, b"a line\n").unwrap();
    new.session.stream_end(stream, None);
    new.linger(Duration::from_millis(200)).await;
    assert_eq!(&asked.await.unwrap().unwrap().unwrap()[..], b"a line\n");
    let refused = a.bridge.logs(place(), LogOptions::default()).await.err().expect("is not there any more");
    assert!(matches!(refused, BackendError::Unavailable(_)), "{refused}");

    // And back again, with a newer connection; deletions are sent to the node there.
    let store = std::mem::take(&mut new.store);
    let mut back = a.connect(&identity, store).await;
    back.report_and_wait(Report::Node { node: node_object(&node) }).await.unwrap();
    let why = new.until_ended().await;
    assert!(why.contains("Superseded"), "{why}");
    assert!((30_000..31_000).contains(&kubelet_port(&cluster, &node).await));
    force_delete(&cluster.pods(), &name).await;
    back.until("the deletion", |edge| edge.held() == 0).await;
    let lease =
        kube::Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(cluster.client.clone(), "kube-node-lease");
    eventually("the lease", || async { lease.get(&node).await.is_ok() }).await;
}

#[tokio::test]
async fn g11_late_write_of_an_older_connection_is_never_made() {
    let cluster = Cluster::open().await;
    let (first, second) = twins();
    let saboteur = Saboteur::default();
    let sabotaged = Clients::impersonating(saboteur.wrap(cluster.client.clone()));
    let a = TestBridge::over(sabotaged, &cluster.client, first, Settings::default()).await;
    let b = TestBridge::with(&cluster, second).await;
    let (node, name) = (unique("late"), unique("late-pod"));
    let (identity, mut old) = a.edge(&cluster, &node).await;
    let pod = cluster.create_pod(&name, &node, json!({})).await;
    old.until("the pod", |edge| edge.held() == 1).await;

    // The first bridge loses the API while it writes a status, and gets no events.
    saboteur.set(2);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut early = running();
    early["message"] = "early".into();
    let id = old.report(status(&pod, early));
    old.linger(Duration::from_millis(500)).await;
    assert!(!old.acked.contains(&id) && !old.refused.contains_key(&id), "it is being tried again");

    // The node continues at the second one.
    let mut new = b.connect(&identity, Store::default()).await;
    new.report_and_wait(Report::Node { node: node_object(&node) }).await.unwrap();
    let mut late = running();
    late["message"] = "late".into();
    new.report_and_wait(status(&pod, late)).await.unwrap();

    saboteur.set(0);
    let why = old.until_ended().await;
    assert!(why.contains("Superseded"), "{why}");
    assert!(!old.acked.contains(&id), "an acknowledgement would say that it was written");
    let status = cluster.pods().get(&name).await.unwrap().status.unwrap();
    assert_eq!(status.message.as_deref(), Some("late"));
    force_delete(&cluster.pods(), &name).await;
}

#[tokio::test]
async fn g11_a_bridge_whose_clock_is_behind_takes_nodes_over_all_the_same() {
    let cluster = Cluster::open().await;
    let (first, second) = twins();
    let a = TestBridge::with(&cluster, first).await;
    let b = TestBridge::with(&cluster, second).await;
    let node = unique("clock");
    let (identity, edge) = a.edge(&cluster, &node).await;
    drop(edge);
    // As if the first bridge's clock were a day ahead.
    let tomorrow = jiff::Timestamp::now().as_millisecond() + 86_400_000;
    let patch = json!({"metadata": {"annotations": {"sampan.dev/session": tomorrow.to_string()}}});
    let (parameters, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(patch));
    cluster.nodes().patch(&node, &parameters, &patch).await.unwrap();
    eventually("the second bridge has heard", || async {
        let mut edge = b.connect(&identity, Store::default()).await;
        edge.until("the first list", |edge| edge.synced).await;
        edge.session.session().is_some_and(|session| session > u64::try_from(tomorrow).unwrap())
    })
    .await;
    let mut edge = b.connect(&identity, Store::default()).await;
    edge.report_and_wait(Report::Node { node: node_object(&node) }).await.unwrap();
    edge.linger(Duration::from_millis(500)).await;
}
