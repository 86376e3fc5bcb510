//! The bridge proper: what nodes should hold goes down, what they report goes up.
//!
//! | module | owns |
//! |---|---|
//! | `world` | pure: which node should hold what |
//! | `slim`, `told`, `pod_references` | pure: objects as nodes see them, their kinds, and what a pod names |
//! | `informers` | the watches that feed `world` |
//! | `node_informer` | the Node objects: rewritten when another client changed them |
//! | `node_access` | which nodes may connect |
//! | `hardware` | to which board the name of a node belongs |
//! | `sites` | pure: which nodes share a LAN, and what they are told of each other |
//! | `pod_ranges` | pure: which node's pods have an address |
//! | `credential` | the certificate that a connection was made with |
//! | `node`, `nodes` | one node's state and its present connection; all nodes by name |
//! | `session` | one connection |
//! | `work_queue` | pure: the order of reports |
//! | `reports`, `lease` | what is written into the API for a node |
//! | `rejections` | pure: how often refusals of a node are told |
//! | `autonomy` | how long the pods of a silent node are left alone |
//! | `devices` | Devices behind nodes: what nodes are told of them, and what they report |
//! | `attachments` | VolumeAttachments of the volumes of CSI drivers |
//! | `followed` | two kinds that belong together, read and watched for all nodes |
//! | `jobs` | fleet jobs: who is told what when, and what has come of it |
//! | `rules` | what travels between nodes' brokers, servers and HTTP by rules |
//! | `api_proxy` | requests of pods to the API |
//! | `tokens` | service account tokens for the pods of a node |
//! | `settings` | what can be chosen |
//! | `well_known`, `name` | labels and annotations of Nodes; how objects are named |
//! | `shared` | what all of these tasks have in common |
//! | `replicas` | what kubelet ports ask about nodes of other bridges |
//! | `backend`, `streams`, `chunks` | what kubectl asks of a node, and its bytes |
//! | `stream_memory` | pure but for the count: how many streams a user may have open |
//! | `overview` | how every node and its connection is, for people and monitoring |
//! | `counters`, `process`, `api_health` | what that is made of: numbers, what the process uses, whether the API answers |
//! | `clients`, `requests`, `resource`, `discovery` | ways to the API, and what it serves |
//! | `pauses` | pauses before repeated attempts |
//!
//! Nothing here lasts: a bridge that starts reads everything from the API again.

mod api_health;
mod api_proxy;
mod attachments;
mod autonomy;
mod backend;
mod chunks;
pub mod clients;
pub(crate) mod counters;
mod credential;
pub mod devices;
mod discovery;
mod endpoint_view;
mod followed;
mod hardware;
mod informers;
mod jobs;
mod lease;
mod name;
mod node;
mod node_access;
mod node_informer;
mod nodes;
pub mod overview;
mod pauses;
mod peer_pod;
mod places;
mod pod_ranges;
mod pod_references;
mod policy_view;
mod process;
pub(crate) mod refused_ports;
mod rejections;
mod replicas;
mod reports;
pub(crate) mod requests;
mod resource;
pub mod rules;
mod service_view;
mod session;
mod settings;
mod shared;
mod sites;
pub mod slim;
mod stream_memory;
mod streams;
mod tokens;
mod told;
mod well_known;
pub mod work_queue;
pub mod world;

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use futures::io::{AsyncRead, AsyncWrite};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use api_health::ApiHealth;
use api_proxy::RequestMemory;
use apimachinery::panics;
use attachments::Attachments;
use autonomy::Autonomy;
use clients::Clients;
use devices::mark;
use jobs::known::Jobs;
use node::Command;
use node_access::NodeAccess;
use rules::state::RuleState;
use shared::Shared;
use sites::Sites;
use stream_memory::StreamMemory;

pub use api_proxy::upstream;
pub use credential::Credential;
pub use hardware::NameOwner;
pub(crate) use node_access::is_revoked;
pub use node_access::{ISSUED_FROM, NotAdmitted, REVOKED};
pub use reports::{AddressType, EndpointOf, KubeletEndpoint, NodeOverrides};
pub use session::Socket;
pub use settings::{ApiAddress, Gone, NodeSeen, PodsSeen, Settings};
pub use told::groups::ServiceScope;
pub(crate) use well_known::is_held;
pub use well_known::{BRIDGED_LABEL, TRUST_ANNOTATION};

/// How long connections may take to close when the bridge ends.
const CLOSING: Duration = Duration::from_secs(1);

/// Nodes to which a large object (up to 8 MiB) is on its way at the same time: what one heartbeat may have to wait for,
/// and what may lie in buffers of the kernel.
const LARGE_TURNS: usize = 64;

/// A running bridge. Cheap to clone.
#[derive(Clone)]
pub struct Bridge {
    shared: Arc<Shared>,
}

impl Bridge {
    /// Starts to follow the API. `cluster` tells this cluster from others. Runs on the current runtime until the
    /// last clone is gone.
    pub fn start(clients: Clients, cluster: String, settings: Settings) -> Self {
        let (sender, commands) = mpsc::unbounded_channel();
        let jobs = Arc::new(Jobs::new(sender.clone()));
        let rules = Arc::new(RuleState::new(&settings.rule_authorities));
        let turns = || Arc::new(Semaphore::new(settings.api_turns));
        let (leases, writes) = (turns(), turns());
        let shared = Arc::new(Shared {
            api_health: ApiHealth::default(),
            attachments: Arc::new(Attachments::new(clients.own().clone())),
            autonomy: Arc::new(Autonomy::new(settings.toleration_seconds)),
            clients,
            cluster,
            settings,
            nodes: Arc::default(),
            leases,
            writes,
            large: Arc::new(Semaphore::new(LARGE_TURNS)),
            report_pool: Arc::default(),
            stream_memory: StreamMemory::default(),
            request_memory: RequestMemory::default(),
            pod_ranges: Arc::default(),
            informers: sender,
            node_access: NodeAccess::default(),
            sites: watch::Sender::new(Sites::default()),
            devices: Arc::default(),
            rules,
            jobs,
        });
        informers::start(&shared, commands);
        let (weak, own) = (Arc::downgrade(&shared), shared.clients.own().clone());
        tokio::spawn(panics::keep("the watch of nodes", move || node_informer::run(Weak::clone(&weak), own.clone())));
        let weak = Arc::downgrade(&shared);
        tokio::spawn(panics::keep("stale devices", move || mark::run(Weak::clone(&weak))));
        jobs::start(&shared);
        Self { shared }
    }

    /// Id of the cluster.
    pub fn cluster(&self) -> &str {
        &self.shared.cluster
    }

    /// Whether a certificate of this node, issued then, is good now.
    ///
    /// # Errors
    /// The reason, for the person at the node.
    pub async fn admit(&self, node: &str, issued: SystemTime) -> Result<(), NotAdmitted> {
        match self.shared.node_access.admit(self.shared.clients.own(), node, issued).await {
            Err(NotAdmitted::Absent(_)) if self.shared.settings.deleted_nodes_return => Ok(()),
            other => other,
        }
    }

    /// Records which authorities a node trusts, for `cloud-bridge authority status`: a mark of the rotation.
    pub fn record_trust(&self, node: &str, mark: String) {
        self.shared.record_trust(node, mark);
    }

    /// Makes a node part of the cluster: it has shown a token. Its present connection ends first; certificates issued
    /// before the time that is returned are void. The name belongs to `hardware`, a digest of a board's serial number, or to
    /// no board.
    ///
    /// # Errors
    /// Its Node object could not be written.
    pub async fn welcome(&self, node: &str, hardware: Option<&str>) -> kube::Result<Timestamp> {
        let clients = &self.shared.clients;
        if let Some(known) = self.shared.nodes.get(node) {
            known.disconnect(&NotAdmitted::Replaced(node.to_owned()));
        }
        let replicated = self.shared.settings.replicated;
        let (own, as_node) = (clients.own().clone(), clients.as_node(node));
        let from = node_access::welcome(own, as_node, node, hardware, replicated).await?;
        // What the watch has said is older than this.
        self.shared.node_access.remove(node);
        Ok(from)
    }

    /// Returns the owner of the name of a node. `hardware` is a digest of the asking board's serial number.
    ///
    /// # Errors
    /// The API does not answer.
    pub async fn name_owner(&self, node: &str, hardware: &str) -> kube::Result<NameOwner> {
        hardware::look_up(self.shared.clients.own(), node, hardware).await
    }

    /// Same as [`name_owner`](Self::name_owner), but gives a free name to this board: its Node object is created.
    ///
    /// # Errors
    /// The API does not answer, or refuses the object.
    pub async fn take_name(&self, node: &str, hardware: &str) -> kube::Result<NameOwner> {
        let clients = &self.shared.clients;
        hardware::take(clients.own(), clients.as_node(node), node, hardware).await
    }

    /// Creates the Node object of a free name for this board. False if the name is taken, by whatever board.
    ///
    /// # Errors
    /// The API does not answer, or refuses the object.
    pub async fn take_free_name(&self, node: &str, hardware: &str) -> kube::Result<bool> {
        hardware::create(self.shared.clients.as_node(node), node, hardware).await
    }

    /// Serves a node's connection from `peer` until it ends. `node` has been proven by its certificate. `place` is given
    /// back when the node has come in: its object and its list are where they should be.
    pub async fn serve<S>(
        &self,
        node: &str,
        peer: IpAddr,
        credential: Credential,
        socket: Socket<S>,
        place: Option<OwnedSemaphorePermit>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.shared.node(node) {
            Ok(node) => session::run(Arc::clone(&self.shared), (node, peer), credential, socket, place).await,
            Err(error) => log::error!("node {node}: {error}"),
        }
    }

    /// # Errors
    /// The API does not answer this bridge: why, in a few words.
    pub async fn api_answers(&self) -> Result<(), String> {
        self.shared.api_health.answers(self.shared.clients.own()).await
    }

    /// Closes every connection in good order; nodes will look for a bridge again. Takes a moment at most.
    pub async fn close(&self) {
        let nodes = self.shared.nodes.all();
        for link in nodes.iter().filter_map(|node| node.link()) {
            // One that has just ended by itself is closed, too.
            let _ = link.commands.unbounded_send(Command::Close);
        }
        let closed = async {
            while nodes.iter().any(|node| node.link().is_some()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // A node that does not read is not waited for.
        let _ = tokio::time::timeout(CLOSING, closed).await;
    }
}
