//! Settings of a bridge.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use rustls_pki_types::CertificateDer;

use super::api_proxy::upstream::Upstream;
use super::reports::EndpointOf;
use super::slim::{SlimNode, SlimPod};
use super::told::groups::ServiceScope;

/// Called with the name of a deleted node.
pub type Gone = dyn Fn(&str) + Send + Sync;

/// Called for each Node object of a bridged node that the watch shows. Must be fast.
pub type NodeSeen = dyn Fn(&SlimNode) + Send + Sync;

/// Called for each event of the watch of all pods, before the bridge handles it. Must be fast.
pub type PodsSeen = dyn Fn(&Event<SlimPod>) + Send + Sync;

/// Settings of a bridge.
#[derive(Clone)]
pub struct Settings {
    /// Interval of a node's heartbeats.
    pub heartbeat: Duration,
    pub kubelet: Option<Arc<EndpointOf>>,
    /// Limit of concurrent requests of all nodes to the API, separately for Leases and reports. An API in this process
    /// executes them one after the other, and they compete with the watches of what they write.
    pub api_turns: usize,
    /// Notified when a node is deleted.
    pub gone: Option<Arc<Gone>>,
    /// Address at which pods reach the API, for an API whose cluster addresses are not routed.
    pub api: Option<ApiAddress>,
    /// The API for requests of pods that come by the link; `None`: the bridge refuses them.
    pub pod_requests: Option<Arc<Upstream>>,
    /// Services that nodes receive.
    pub service_scope: ServiceScope,
    /// Whether other bridges may serve the same nodes on the same API: writes that must stay in order then need a check
    /// which bridge has the node.
    pub replicated: bool,
    /// Whether nodes get objects but no complete lists, so that nothing is deleted for being absent: the API may have
    /// lost objects.
    pub lists_withheld: bool,
    /// Whether a node whose Node object was deleted registers again instead of being revoked: for clusters in which a
    /// controller deletes the Nodes of machines that it cannot find.
    pub deleted_nodes_return: bool,
    /// Seconds that admission sets for pods on silent nodes, if the pods have no own value.
    pub toleration_seconds: u64,
    /// Address (`IP:PORT`) of the listener for rules, for other bridges. It is written to each node that is connected
    /// here.
    pub rules_place: Option<String>,
    /// Address (`IP:PORT`) of the port for kubelet requests of other bridges. It is written to each node that is connected here.
    pub replica_place: Option<String>,
    /// Notified of Node objects, for the kubelet ports of nodes that are connected to other bridges.
    pub node_seen: Option<Arc<NodeSeen>>,
    /// Time after which the devices of a silent node (Ready is Unknown) are marked as stale.
    pub devices_stale_after: Duration,
    /// Whether their state then becomes `unknown`.
    pub devices_unknown_when_silent: bool,
    /// Certificate authorities for targets of rules, in addition to the system's.
    pub rule_authorities: Vec<CertificateDer<'static>>,
    /// Whether the bridge's own client may do everything: before it reads for others it checks the rights of its
    /// service account on a cluster.
    pub is_master: bool,
    /// Namespaces in which nodes may have mirror pods; empty: all.
    pub mirror_namespaces: Arc<[String]>,
    /// The page, which shows users their pods.
    pub pods_seen: Option<Arc<PodsSeen>>,
}

/// Host and port of an API server.
pub type ApiAddress = (String, u16);

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: edge_protocol::HEARTBEAT,
            kubelet: None,
            api_turns: 64,
            gone: None,
            api: None,
            pod_requests: None,
            service_scope: ServiceScope::default(),
            replicated: true,
            lists_withheld: false,
            deleted_nodes_return: false,
            toleration_seconds: 300,
            rules_place: None,
            replica_place: None,
            node_seen: None,
            devices_stale_after: Duration::from_secs(60),
            devices_unknown_when_silent: false,
            rule_authorities: Vec::new(),
            is_master: false,
            mirror_namespaces: Arc::default(),
            pods_seen: None,
        }
    }
}
