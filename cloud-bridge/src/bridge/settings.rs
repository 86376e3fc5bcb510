//! What can be chosen of a bridge.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use rustls_pki_types::CertificateDer;

use super::pod_references::ServiceScope;
use super::reports::KubeletEndpoint;
use super::slim::SlimPod;

/// Says where the kubelet API of a node is served, if it is.
pub type EndpointOf = dyn Fn(&str) -> Option<KubeletEndpoint> + Send + Sync;

/// Is told the name of a node.
pub type Gone = dyn Fn(&str) + Send + Sync;

/// Is shown each event of the watch of all pods, before the bridge does anything about it. Must be quick.
pub type PodsSeen = dyn Fn(&Event<SlimPod>) + Send + Sync;

/// What can be chosen.
#[derive(Clone)]
pub struct Settings {
    /// How often a node says that it lives.
    pub heartbeat: Duration,
    pub kubelet: Option<Arc<EndpointOf>>,
    /// Requests of all nodes that are at the API at the same time, of leases and of reports each. An API on another host is waited
    /// for; one in this process does them one after the other, and they compete with those who follow what they write.
    pub api_turns: usize,
    /// Notified when a node is deleted.
    pub gone: Option<Arc<Gone>>,
    /// Address at which pods reach the API, for an API whose cluster addresses are not routed.
    pub api: Option<ApiAddress>,
    /// Which Services nodes are told of.
    pub service_scope: ServiceScope,
    /// Other bridges may serve the same nodes over the same API: what must stay in order is written only after a look
    /// at whose the node is.
    pub replicated: bool,
    /// Nodes are told of objects, but no list as complete, so nothing ends for being absent: the API may lack what it had.
    pub lists_withheld: bool,
    /// A node whose Node object was deleted registers again instead of being sent away: for clusters in which a
    /// controller deletes the Nodes of machines that it cannot find.
    pub deleted_nodes_return: bool,
    /// The seconds for which admission lets pods stay on a silent node that say nothing themselves.
    pub toleration_seconds: u64,
    /// Where other bridges find the listener for rules: `IP:PORT`. It is said of each node that is connected here.
    pub rules_place: Option<String>,
    /// Until the devices of a node that the API calls silent (Ready is Unknown) are called stale.
    pub devices_stale_after: Duration,
    /// Their state then becomes `unknown`.
    pub devices_unknown_when_silent: bool,
    /// Authorities that targets of rules may have their certificates from, besides those that the system believes.
    pub rule_authorities: Vec<CertificateDer<'static>>,
    /// The bridge's own client may do everything: before it reads for others it asks what its service account on a cluster may.
    pub is_master: bool,
    /// Namespaces in which nodes may have mirror pods; none named: all.
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
            service_scope: ServiceScope::default(),
            replicated: true,
            lists_withheld: false,
            deleted_nodes_return: false,
            toleration_seconds: 300,
            rules_place: None,
            devices_stale_after: Duration::from_secs(60),
            devices_unknown_when_silent: false,
            rule_authorities: Vec::new(),
            is_master: false,
            mirror_namespaces: Arc::default(),
            pods_seen: None,
        }
    }
}
