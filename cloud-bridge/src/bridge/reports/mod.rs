//! Writes what a node reports into the API, in the node's own name.
//!
//! Each call makes one attempt. `work_queue` is responsible for order and retries.

mod authority;
mod correlator;
mod csi;
mod csi_drivers;
mod event;
mod failure;
mod fence;
mod labels;
mod mirror;
mod news;
mod node;
mod node_object;
mod overrides;
mod pod;
mod shape;

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use edge_protocol::message::{ObjectKey, Report};
use jiff::Timestamp;
use sampan_log::printable::printable;
use serde_json::Value;

pub(super) use event::refusal_event;
pub use overrides::{AddressType, EndpointOf, KubeletEndpoint, NodeOverrides};

use super::node::Node;
use super::pod_ranges::PodRanges;
use super::requests::{Requests, Written};
use super::well_known::SESSION_ANNOTATION;
use super::work_queue::Outcome;
use failure::{judged, outcome};

/// Learns which volumes nodes use.
pub(super) trait UsesOfVolumes: Send + Sync {
    /// A node reports the volumes that it uses: a list of names, which is about to be written.
    fn reported(&self, node: &str, in_use: &Value);

    /// The last report of a node is in the API, at this version of the Node or an earlier one.
    fn written(&self, node: &str, version: &str);
}

/// Writes the reports of one node.
pub(super) struct Reports {
    node: Arc<Node>,
    requests: Requests,
    /// The bridge's own identity, for the few writes that a node is not allowed to make.
    own: Requests,
    overrides: NodeOverrides,
    events: Mutex<correlator::Correlator>,
    /// Fencing number of the connection.
    session: u64,
    /// Whether other bridges may also write for the node.
    pub(super) replicated: bool,
    /// Namespaces in which the node may have mirror pods; empty: all.
    pub(super) mirror_namespaces: Arc<[String]>,
    /// The ranges of pod addresses of each node.
    pub(super) pod_ranges: Arc<PodRanges>,
    pub(super) volumes: Option<Arc<dyn UsesOfVolumes>>,
    /// Address from which the node connected; set only for a node that asks for routes.
    pub(super) lan: OnceLock<IpAddr>,
    /// Whether the node mounts volumes of CSI drivers.
    pub(super) csi: AtomicBool,
    /// Place of the node according to the API: its addresses on its LAN, and the address from which it connected.
    place: Mutex<Option<(String, String)>>,
    /// Whether the API has the fencing number of this connection.
    claimed: AtomicBool,
    /// Whether the Node has the addresses of this bridge for other bridges.
    places_said: AtomicBool,
    /// Hash of the labels and annotations that this connection wrote last.
    metadata: Mutex<Option<u64>>,
    /// The node's object as last reported, as text: parsed, it takes six times the memory, for every idle node.
    newest_node: Mutex<Option<Box<str>>>,
    /// The node's CSI drivers as last reported, as text; `None` without a driver.
    newest_drivers: Mutex<Option<Box<str>>>,
    /// Held while the node's object is written: a write of it again must not land after a newer report.
    node_turn: tokio::sync::Mutex<()>,
    /// Mirrors that this connection has created, by namespace and name. The watch may not have shown them yet.
    mirrors: Mutex<HashSet<String>>,
    /// Pods about which this connection has reported, the oldest first. Events about them may arrive after their end.
    told_of: Mutex<VecDeque<ObjectKey>>,
}

impl Reports {
    pub(super) fn new(
        node: Arc<Node>,
        session: u64,
        requests: Requests,
        own: Requests,
        overrides: NodeOverrides,
    ) -> Self {
        Self {
            node,
            session,
            replicated: false,
            mirror_namespaces: Arc::default(),
            pod_ranges: Arc::default(),
            volumes: None,
            lan: OnceLock::new(),
            csi: AtomicBool::new(false),
            place: Mutex::default(),
            claimed: AtomicBool::new(false),
            places_said: AtomicBool::new(false),
            requests,
            own,
            overrides,
            events: Mutex::default(),
            metadata: Mutex::default(),
            newest_node: Mutex::default(),
            newest_drivers: Mutex::default(),
            node_turn: tokio::sync::Mutex::default(),
            mirrors: Mutex::default(),
            told_of: Mutex::default(),
        }
    }

    /// Makes one attempt. The report may be a repetition of one that was written before.
    pub(super) async fn write(&self, report: &Report) -> Outcome {
        if let Err(problem) = shape::check(report) {
            return Outcome::Refused(problem);
        }
        if let Err(failure) = self.authorize(report).await {
            return outcome(Err(failure));
        }
        let written = match report {
            Report::PodStatus { namespace, name, uid, status } => {
                let status = self.with_own_addresses(namespace, name, status);
                if self.replicated {
                    self.fenced_status(namespace, name, uid, &status).await
                } else {
                    pod::status(&self.requests, None, namespace, name, uid, &status).await
                }
            }
            Report::PodGone { namespace, name, uid } => pod::gone(&self.requests, namespace, name, uid).await,
            Report::Node { node } => {
                let _turn = self.node_turn.lock().await;
                self.write_node(node).await
            }
            Report::Event { event } => self.write_event(event).await,
            Report::MirrorPod { pod } => self.mirror(pod).await,
            Report::MirrorGone { namespace, name, static_uid } => self.mirror_gone(namespace, name, static_uid).await,
            Report::CsiNode { drivers } => self.write_drivers(drivers).await,
            // The results of orders are written for many nodes together (`jobs`).
            Report::Order { .. } => return Outcome::Refused("this is no way for what comes of orders".to_owned()),
            Report::Unknown => return Outcome::Refused("this bridge does not know such a report".to_owned()),
        };
        judged(report, written)
    }

    /// Returns a pod's status without addresses of other nodes: otherwise, Services and NetworkPolicies would use them.
    fn with_own_addresses<'a>(&self, namespace: &str, name: &str, status: &'a Value) -> Cow<'a, Value> {
        let node = &self.node.name;
        let Some((right, why)) = self.pod_ranges.without_foreign(node, status) else { return Cow::Borrowed(status) };
        let what = printable(format_args!("status of pod {namespace}/{name}: {why}")).to_string();
        log::warn!("node {node}: {what}; written without addresses");
        Cow::Owned(right)
    }

    /// Writes the node's object again as last reported, with its drivers, after another client changed or deleted it.
    pub(super) async fn rewrite_node(&self) -> Outcome {
        let _turn = self.node_turn.lock().await;
        let newest = self.newest_node().clone();
        // It was valid JSON when it was stored.
        match newest.and_then(|text| serde_json::from_str(&text).ok()) {
            Some(node) => {
                let written = match self.write_node(&node).await {
                    Ok(()) => self.rewrite_drivers().await,
                    failed => failed,
                };
                judged(&Report::Node { node }, written)
            }
            None => Outcome::Written,
        }
    }

    /// Whether no other bridge has a newer connection of this node, as far as the API knows.
    pub(super) async fn is_newest(&self) -> kube::Result<bool> {
        match self.own.get::<Written>(&format!("/api/v1/nodes/{}", self.node.name)).await {
            Ok(node) => Ok(session_of(&node) <= self.session),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn newest_node(&self) -> MutexGuard<'_, Option<Box<str>>> {
        self.newest_node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fencing number of a Node; 0 without one.
fn session_of(node: &Written) -> u64 {
    let annotation = node.metadata.annotations.get(SESSION_ANNOTATION);
    annotation.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Deletes a pod object that no container belongs to.
pub(super) async fn delete_pod(requests: &Requests, key: &ObjectKey, uid: &str) -> Outcome {
    outcome(pod::gone(requests, &key.namespace, &key.name, uid).await)
}

/// Sets the Ready condition of a pod whose containers are ready, in this version if it is known.
pub(super) async fn restore_ready(requests: &Requests, key: &ObjectKey, uid: &str, version: Option<u64>) -> Outcome {
    let patch = pod::ready_patch(uid, version, Timestamp::now());
    outcome(pod::ready(requests, &key.namespace, &key.name, &patch).await)
}
