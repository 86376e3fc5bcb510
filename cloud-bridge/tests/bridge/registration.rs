//! The node's own object, and the proof that it lives.

use cloud_bridge::bridge::Settings;
use cloud_bridge::pki::authority::Authority;
use edge_protocol::message::Report;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::Api;
use kube::api::DeleteParams;
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
    // It goes with the node.
    let owner = &lease.owner_references()[0];
    assert_eq!((owner.api_version.as_str(), owner.kind.as_str()), ("v1", "Node"));
    assert_eq!((Some(&owner.uid), lease.owner_references().len()), (node.uid().as_ref(), 1));
    let lease = lease.spec.unwrap();
    assert_eq!((lease.holder_identity.as_deref(), lease.lease_duration_seconds), (Some(name.as_str()), Some(40)));

    let mut labelled = node_object(&name);
    labelled["metadata"]["labels"]["node-restriction.kubernetes.io/x"] = "y".into();
    let error = edge.report_and_wait(Report::Node { node: labelled }).await.unwrap_err();
    assert!(error.contains("node-restriction"), "{error}");
    let error = edge.report_and_wait(Report::Node { node: node_object("someone-else") }).await.unwrap_err();
    assert!(error.contains("someone-else"), "{error}");

    // Deleted by somebody: with this setting registered again while it lives.
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
