//! Shared state of a bridge's tasks.

use std::sync::Arc;

use edge_protocol::message::{ObjectKey, RenewAnswer};
use tokio::sync::{Semaphore, mpsc, watch};

use super::api_health::ApiHealth;
use super::api_proxy::RequestMemory;
use super::attachments::Attachments;
use super::autonomy::Autonomy;
use super::clients::Clients;
use super::credential::Credential;
use super::devices::state::DeviceState;
use super::informers::command::{Command, Wanted};
use super::jobs::known::Jobs;
use super::node::Node;
use super::node_access::{self, NodeAccess, NotAdmitted};
use super::nodes::Nodes;
use super::places::may_dial;
use super::pod_ranges::PodRanges;
use super::reports::NodeOverrides;
use super::rules::state::RuleState;
use super::session::pool::Pool;
use super::settings::Settings;
use super::sites::{Neighbour, Sites};
use super::stream_memory::StreamMemory;

pub(super) struct Shared {
    pub(super) api_health: ApiHealth,
    pub(super) clients: Clients,
    pub(super) cluster: String,
    pub(super) settings: Settings,
    pub(super) nodes: Arc<Nodes>,
    /// Limits of concurrent requests to the API: when ten thousand nodes reconnect at once, each request is a
    /// connection.
    pub(super) leases: Arc<Semaphore>,
    pub(super) writes: Arc<Semaphore>,
    pub(super) large: Arc<Semaphore>,
    /// Memory for reports that are not in the API yet.
    pub(super) report_pool: Arc<Pool>,
    /// Memory of streams to nodes.
    pub(super) stream_memory: StreamMemory,
    /// Memory of requests of pods to the API.
    pub(super) request_memory: RequestMemory,
    /// The ranges of pod addresses of each node.
    pub(super) pod_ranges: Arc<PodRanges>,
    pub(super) attachments: Arc<Attachments>,
    pub(super) autonomy: Arc<Autonomy>,
    pub(super) informers: mpsc::UnboundedSender<Command>,
    pub(super) node_access: NodeAccess,
    pub(super) sites: watch::Sender<Sites>,
    pub(super) devices: Arc<DeviceState>,
    pub(super) rules: Arc<RuleState>,
    pub(super) jobs: Arc<Jobs>,
}

impl Shared {
    /// The node of this name; the informers follow a new one.
    pub(super) fn node(&self, name: &str) -> Result<Arc<Node>, ring::error::Unspecified> {
        let (node, is_new) = self.nodes.enter(name)?;
        if is_new {
            // The informers outlive every connection. They read the pods when the node has said hello.
            let _ = self.informers.send(Command::Add(name.to_owned()));
        }
        Ok(node)
    }

    /// Asks the API whether an object that a node holds is deleted.
    pub(super) fn look_up(&self, node: &str, session: u64, key: ObjectKey, uid: String) {
        let _ = self.informers.send(Command::LookUp { node: node.to_owned(), session, key, uid });
    }

    /// Signs a successor of a connection's certificate, if the API answers afterwards that the connection is still
    /// valid: another device may be joining with this name.
    pub(super) async fn renew_certificate(&self, node: &str, credential: &Credential, request: &[u8]) -> RenewAnswer {
        let signed = credential.renew(node, request);
        let refused = match node_access::look_up(self.clients.own(), node).await {
            Ok(Some(access)) => access.admits(node, credential.issued).err(),
            Ok(None) if self.settings.deleted_nodes_return => None,
            Ok(None) => Some(NotAdmitted::Absent(node.to_owned())),
            Err(unknown) => Some(unknown),
        };
        match refused {
            None => signed,
            Some(why) => {
                log::warn!("node {node}: its certificate was not renewed: {why}");
                RenewAnswer::Refused { reason: why.to_string() }
            }
        }
    }

    /// Records on its Node which authorities a node trusts, unless it is there already.
    pub(super) fn record_trust(self: &Arc<Self>, node: &str, mark: String) {
        if self.node_access.has_trust(node, &mark) {
            return;
        }
        let (shared, node) = (Arc::clone(self), node.to_owned());
        tokio::spawn(async move {
            let Ok(_turn) = shared.writes.acquire().await else { return };
            if let Err(error) = node_access::record_trust(shared.clients.own(), &node, &mark).await {
                log::warn!("node {node}: which authority it trusts was not recorded: {error}");
            }
        });
    }

    pub(super) fn connected(&self, node: &str, session: u64, resumed: bool, wants: Wanted) {
        let node = node.to_owned();
        let _ = self.informers.send(Command::Connected { node, session, resumed, wants });
        self.jobs.stir();
    }

    /// Requests the Services of these namespaces for the node of this session.
    pub(super) fn interested(&self, node: &str, session: u64, interests: Vec<String>) {
        let _ = self.informers.send(Command::Interested { node: node.to_owned(), session, interests });
    }

    /// Handles the deletion of a Node object: disconnects the node and removes its state.
    pub(super) fn deleted(&self, name: &str) {
        self.nodes.session_gone(name);
        self.node_access.remove(name);
        self.devices.silent.forget(name);
        self.jobs.forget(name);
        if let Some(node) = self.nodes.get(name) {
            if self.settings.deleted_nodes_return && node.rewrite() {
                return;
            }
            node.disconnect(&NotAdmitted::Absent(name.to_owned()));
            self.nodes.remove(name);
            let _ = self.informers.send(Command::Drop(name.to_owned()));
        }
        // A node of another bridge may have a port here, too.
        if let Some(gone) = &self.settings.gone {
            gone(name);
        }
    }

    /// Stores whether the node may be connected, from the newest state in the API.
    pub(super) fn access_changed(&self, name: &str, access: node_access::Access) {
        if let Some(node) = self.nodes.get(name)
            && let Some(link) = node.link()
            && let Err(reason) = access.admits(name, link.issued)
        {
            node.disconnect(&reason);
        }
        self.node_access.set(name, access);
    }

    /// Stores the LAN and the pod ranges of a Node object.
    pub(super) fn located(&self, name: &str, neighbour: Option<Neighbour>) {
        if self.sites.send_if_modified(|sites| sites.set(name, neighbour)) {
            let _ = self.informers.send(Command::Located(Some(name.to_owned())));
        }
    }

    /// All Node objects have been read: others are removed.
    pub(super) fn all_located(&self, names: impl Fn(&str) -> bool) {
        let mut gone = Vec::new();
        self.sites.send_modify(|sites| gone = sites.listed(names));
        let _ = self.informers.send(Command::Located(None));
        for name in gone {
            let _ = self.informers.send(Command::Located(Some(name)));
        }
    }

    /// Applies a changed autonomy of the node's object to its pods.
    pub(super) fn reconcile_tolerations(&self, node: &str) {
        let _ = self.informers.send(Command::ReconcileTolerations(node.to_owned()));
    }

    /// Whether this node is connected to this bridge.
    pub(super) fn is_connected(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.link().is_some())
    }

    /// The place of another bridge that its Node names, for requests about a node that is not connected here. `own` is the place
    /// of this bridge.
    pub(super) fn elsewhere(&self, node: &str, named: Option<String>, own: Option<&str>) -> Option<String> {
        named.filter(|place| own != Some(place.as_str()) && may_dial(place, own) && !self.is_connected(node))
    }

    pub(super) fn overrides(&self) -> NodeOverrides {
        NodeOverrides {
            kubelet: self.settings.kubelet.clone(),
            rules_place: self.settings.rules_place.clone(),
            replica_place: self.settings.replica_place.clone(),
            may_register: self.settings.deleted_nodes_return,
        }
    }
}
