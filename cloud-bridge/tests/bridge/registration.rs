//! The node's own object, and its Lease.

use cloud_bridge::bridge::Settings;
use cloud_bridge::pki::authority::Authority;
use edge_protocol::message::Report;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::Api;
use kube::api::{DeleteParams, ListParams};
use std::time::Duration;

use crate::support::fixture::{Cluster, TestBridge, node_object, unique};

#[tokio::test]
async fn a_node_registers_and_proves_that_it_lives() {
    let cluster = Cluster::open().await;
    let settings = Settings { deleted_nodes_return: true, ..Settings::default() };
    let bridge = TestBridge::with_settings(&cluster, Authority::create("test").unwrap(), settings).await;
    let name = unique("reg");
    let (_, mut edge) = bridge.edge(&cluster, &name).await;
    let node = cluster.nodes().get(&name).await.unwrap();
    let conditions = node.status.clone().unwrap().conditions.unwrap();
    let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "True");
    assert!(ready.last_heartbeat_time.as_ref().unwrap().0 > Timestamp::now() - jiff::SignedDuration::from_mins(1));
    assert!(node.labels().contains_key("node-role.kubernetes.io/edge"), "{:?}", node.labels());

    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    edge.linger(Duration::from_millis(300)).await;
    let lease = leases.get(&name).await.unwrap();
    // It is deleted with the node.
    let owner = &lease.owner_references()[0];
    assert_eq!((owner.api_version.as_str(), owner.kind.as_str()), ("v1", "Node"));
    assert_eq!((Some(&owner.uid), lease.owner_references().len()), (node.uid().as_ref(), 1));
    let lease = lease.spec.unwrap();
    assert_eq!((lease.holder_identity.as_deref(), lease.lease_duration_seconds), (Some(name.as_str()), Some(40)));

    let mut labelled = node_object(&name);
    labelled["metadata"]["labels"]["node-restriction.kubernetes.io/x"] = "y".into();
    labelled["metadata"]["labels"]["line"] = "1".into();
    edge.report_and_wait(Report::Node { node: labelled }).await.unwrap();
    let written = cluster.nodes().get(&name).await.unwrap();
    assert_eq!(written.labels().get("line").map(String::as_str), Some("1"), "the others come");
    assert!(!written.labels().contains_key("node-restriction.kubernetes.io/x"), "{:?}", written.labels());
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let about = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let mut told = about.filter(|event| event.involved_object.name.as_deref() == Some(&name));
    assert!(told.any(|event| event.message.unwrap_or_default().contains("node-restriction.kubernetes.io/x")));
    edge.report_and_wait(Report::Node { node: node_object(&name) }).await.unwrap();
    let written = cluster.nodes().get(&name).await.unwrap();
    assert!(!written.labels().contains_key("line"), "a label that the node no longer has goes");
    let error = edge.report_and_wait(Report::Node { node: node_object("someone-else") }).await.unwrap_err();
    assert!(error.contains("someone-else"), "{error}");

    // Deleted by a user: with this setting the node registers again while it is alive.
    cluster.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
    for _ in 0..100 {
        edge.linger(Duration::from_millis(50)).await;
        if cluster.nodes().get_opt(&name).await.unwrap().is_some() {
            break;
        }
    }
    let again = cluster.nodes().get(&name).await.unwrap();
    assert_ne!(again.uid(), node.uid());
    cluster.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
}
