//! The bridge proper: what nodes should hold goes down, what they report goes up.
//!
//! | module | owns |
//! |---|---|
//! | `world` | pure: which node should hold what |
//! | `watched`, `refs` | pure: objects as nodes see them, and what a pod names |
//! | `follow` | the watches that feed `world` |
//! | `registry` | the Node objects: rewritten when somebody else changed them |
//! | `members` | which nodes may connect |
//! | `credential` | the certificate that a connection was made with |
//! | `node` | one node's state and its present connection |
//! | `session` | one connection |
//! | `lanes` | pure: the order of reports |
//! | `reports`, `lease` | what is written into the API for a node |
//! | `nacks` | pure: how often refusals of a node are told |
//! | `autonomy` | how long the pods of a silent node are left alone |
//! | `tokens` | service account tokens for the pods of a node |
//! | `streams` | bytes that a node serves |
//! | `overview` | how every node and its connection is, for people and monitoring |
//! | `lifecycle` | nodes that fell silent, where no controller manager looks after them |
//! | `clients`, `requests` | ways to the API |
//!
//! Nothing here lasts: a bridge that starts reads everything from the API again.

mod autonomy;
pub mod clients;
mod credential;
mod follow;
pub mod lanes;
mod lease;
pub mod lifecycle;
mod members;
mod nacks;
mod node;
pub mod overview;
mod refs;
mod registry;
mod reports;
mod requests;
mod session;
mod streams;
mod tokens;
pub mod watched;
pub mod world;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use edge_protocol::message::{ObjectKey, RenewAnswer, StreamRequest};
use edge_protocol::weight::weight;
use futures::StreamExt;
use futures::io::{AsyncRead, AsyncWrite};
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::pki::authority::hex;
use apimachinery::panics;
use autonomy::Autonomy;
use clients::Clients;
use kubelet_api::backend::{
    BackendError, BoxFuture, Channels, KubeletBackend, LogOptions, LogStream, PodOnNode, SessionOptions,
};
use members::Members;
use node::{Command, Node};
use streams::NodeStream;

pub use credential::Credential;
pub use members::{ISSUED_FROM, NotAdmitted, REVOKED};
pub use reports::{KubeletEndpoint, NodeOverrides};
pub use session::Socket;

/// How long connections may take to close when the bridge ends.
const CLOSING: Duration = Duration::from_secs(1);

/// Requests of all nodes that are at the API at the same time, of leases and of reports each.
const API_TURNS: usize = 64;

/// Nodes to which a large object (up to 8 MiB) is on its way at the same time: what one heartbeat may have to wait for,
/// and what may lie in buffers of the kernel.
const LARGE_TURNS: usize = 64;

/// Bytes of one node's measurements: 110 pods of ten containers are a tenth of this.
const MAX_STATS: usize = 4 << 20;
/// What they take in memory, parsed: those are half of this.
const MAX_STATS_WEIGHT: usize = 16 << 20;

/// Says where the kubelet API of a node is served, if it is.
pub type EndpointOf = dyn Fn(&str) -> Option<KubeletEndpoint> + Send + Sync;

/// Is told the name of a node.
pub type Gone = dyn Fn(&str) + Send + Sync;

/// What can be chosen.
#[derive(Clone)]
pub struct Settings {
    /// How often a node says that it lives.
    pub heartbeat: Duration,
    pub kubelet: Option<Arc<EndpointOf>>,
    /// Told of a node that is gone for good.
    pub gone: Option<Arc<Gone>>,
    /// Where clients in pods find the API, for one whose cluster addresses nobody routes.
    pub api: Option<ApiAddress>,
    /// Other bridges may serve the same nodes over the same API: what must stay in order is written only after a look
    /// at whose the node is.
    pub replicated: bool,
    /// A node whose Node object was deleted registers again instead of being sent away: for clusters in which a
    /// controller deletes the Nodes of machines that it cannot find.
    pub deleted_nodes_return: bool,
}

/// Host and port of an API server.
pub type ApiAddress = (String, u16);

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: edge_protocol::HEARTBEAT,
            kubelet: None,
            gone: None,
            api: None,
            replicated: true,
            deleted_nodes_return: false,
        }
    }
}

/// A running bridge. Cheap to clone.
#[derive(Clone)]
pub struct Bridge {
    shared: Arc<Shared>,
}

struct Shared {
    clients: Clients,
    cluster: String,
    settings: Settings,
    nodes: Mutex<HashMap<String, Arc<Node>>>,
    /// Fencing numbers of all nodes of all bridges, as their objects tell.
    sessions: Mutex<HashMap<Box<str>, u64>>,
    /// Turns at the API: when ten thousand nodes come back at once, each request is a connection.
    leases: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    large: Arc<Semaphore>,
    autonomy: Autonomy,
    follow: mpsc::UnboundedSender<follow::Command>,
    members: Members,
}

impl Bridge {
    /// Starts to follow the API. `cluster` tells this cluster from others. Runs on the current runtime until the
    /// last clone is gone.
    pub fn start(clients: Clients, cluster: String, settings: Settings) -> Self {
        let (sender, commands) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            clients,
            cluster,
            settings,
            nodes: Mutex::default(),
            sessions: Mutex::default(),
            leases: Arc::new(Semaphore::new(API_TURNS)),
            writes: Arc::new(Semaphore::new(API_TURNS)),
            large: Arc::new(Semaphore::new(LARGE_TURNS)),
            autonomy: Autonomy::default(),
            follow: sender,
            members: Members::default(),
        });
        tokio::spawn(follow::run(Arc::downgrade(&shared), shared.clients.clone(), commands));
        let (weak, own) = (Arc::downgrade(&shared), shared.clients.own().clone());
        tokio::spawn(panics::keep("the watch of nodes", move || registry::run(Weak::clone(&weak), own.clone())));
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
        match self.shared.members.admit(self.shared.clients.own(), node, issued).await {
            Err(NotAdmitted::Absent(_)) if self.shared.settings.deleted_nodes_return => Ok(()),
            other => other,
        }
    }

    /// Makes a node part of the cluster: it has shown a token. Its present connection ends first; certificates issued
    /// before the time that is returned are void.
    ///
    /// # Errors
    /// Its Node object could not be written.
    pub async fn welcome(&self, node: &str) -> kube::Result<Timestamp> {
        let clients = &self.shared.clients;
        if let Some(known) = self.shared.known(node) {
            known.send_away(&NotAdmitted::Replaced(node.to_owned()));
        }
        let replicated = self.shared.settings.replicated;
        let from = members::welcome(clients.own().clone(), clients.as_node(node), node, replicated).await?;
        // What the watch has said is older than this.
        self.shared.members.remove(node);
        Ok(from)
    }

    /// Serves a node's connection until it ends. `node` has been proven by its certificate. `place` is given back
    /// when the node has come in: its object and its list are where they should be.
    pub async fn serve<S>(
        &self,
        node: &str,
        credential: Credential,
        socket: Socket<S>,
        place: Option<OwnedSemaphorePermit>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.shared.node(node) {
            Ok(node) => session::run(Arc::clone(&self.shared), node, credential, socket, place).await,
            Err(error) => log::error!("node {node}: {error}"),
        }
    }

    /// Closes every connection in good order; nodes will look for a bridge again. Takes a moment at most.
    pub async fn close(&self) {
        let nodes: Vec<_> = self.shared.nodes().values().cloned().collect();
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

    /// Opens the log of a container.
    ///
    /// # Errors
    /// As [`KubeletBackend::logs`].
    pub async fn logs(&self, pod: PodOnNode, options: LogOptions) -> Result<LogStream, BackendError> {
        let node = self.node(&pod.node)?;
        let count = |number: Option<i64>| number.map(|n| u64::try_from(n).unwrap_or(0));
        let request = StreamRequest::Logs {
            namespace: pod.namespace,
            pod: pod.pod,
            uid: pod.uid,
            container: options.container,
            follow: options.follow,
            previous: options.previous,
            timestamps: options.timestamps,
            tail_lines: count(options.tail_lines),
            since_seconds: count(options.since_seconds),
            since_time: options.since_time,
            limit_bytes: count(options.limit_bytes),
        };
        let stream = NodeStream::open(&node, request, options.follow).await?;
        Ok(Box::pin(stream))
    }

    fn node(&self, name: &str) -> Result<Arc<Node>, BackendError> {
        self.shared.known(name).ok_or_else(|| streams::offline(name, None))
    }

    async fn channels(&self, node: &str, request: StreamRequest) -> Result<Channels, BackendError> {
        streams::open_channels(&*self.node(node)?, request).await
    }

    async fn measure(&self, node: &str) -> Result<Value, BackendError> {
        let mut stream = NodeStream::open(&*self.node(node)?, StreamRequest::Stats {}, false).await?;
        let mut text = Vec::new();
        while let Some(bytes) = stream.next().await {
            text.extend(bytes?);
            if text.len() > MAX_STATS {
                return Err(BackendError::Internal(format!("node {node} sent more than {MAX_STATS} bytes of stats")));
            }
        }
        let nonsense = |what: String| BackendError::Internal(format!("node {node} sent stats that {what}"));
        let text = str::from_utf8(&text).map_err(|error| nonsense(format!("are no text: {error}")))?;
        if weight(text) > MAX_STATS_WEIGHT {
            return Err(nonsense("hold too many values".to_owned()));
        }
        serde_json::from_str(text).map_err(|error| nonsense(format!("are no JSON: {error}")))
    }

    async fn list_pods(&self, node: &str) -> Result<Value, BackendError> {
        if !requests::is_path_segment(node) {
            return Err(BackendError::BadRequest(format!("{node:?} is no name of a node")));
        }
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        let requests = requests::Requests::new(self.shared.clients.own().clone());
        requests.get(&path).await.map_err(|error| BackendError::Internal(format!("listing pods: {error}")))
    }
}

impl KubeletBackend for Bridge {
    fn logs(&self, pod: PodOnNode, options: LogOptions) -> BoxFuture<'_, Result<LogStream, BackendError>> {
        Box::pin(self.logs(pod, options))
    }

    fn exec(&self, pod: PodOnNode, options: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
        let PodOnNode { node, namespace, pod, uid } = pod;
        let SessionOptions { container, command, stdin, stdout, stderr, tty } = options;
        let request = StreamRequest::Exec { namespace, pod, uid, container, command, stdin, stdout, stderr, tty };
        Box::pin(async move { self.channels(&node, request).await })
    }

    fn attach(&self, pod: PodOnNode, options: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
        let PodOnNode { node, namespace, pod, uid } = pod;
        let SessionOptions { container, command: _, stdin, stdout, stderr, tty } = options;
        let request = StreamRequest::Attach { namespace, pod, uid, container, stdin, stdout, stderr, tty };
        Box::pin(async move { self.channels(&node, request).await })
    }

    fn port_forward(&self, pod: PodOnNode, port: u16) -> BoxFuture<'_, Result<Channels, BackendError>> {
        let PodOnNode { node, namespace, pod, uid } = pod;
        let request = StreamRequest::PortForward { namespace, pod, uid, port };
        Box::pin(async move { self.channels(&node, request).await })
    }

    fn connected(&self, node: &str) -> Result<(), BackendError> {
        let node = self.node(node)?;
        node.link().map(drop).ok_or_else(|| streams::offline(&node.name, node.last_seen()))
    }

    fn stats(&self, node: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
        let node = node.to_owned();
        Box::pin(async move { self.measure(&node).await })
    }

    fn pods(&self, node: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
        let node = node.to_owned();
        Box::pin(async move { self.list_pods(&node).await })
    }
}

impl Shared {
    fn nodes(&self) -> MutexGuard<'_, HashMap<String, Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes().get(name).cloned()
    }

    /// The node of this name; a new one is followed from now on.
    fn node(&self, name: &str) -> Result<Arc<Node>, ring::error::Unspecified> {
        if let Some(node) = self.known(name) {
            return Ok(node);
        }
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes)?;
        let node = Arc::new(Node::new(name, hex(&bytes)));
        let node = Arc::clone(self.nodes().entry(name.to_owned()).or_insert(node));
        // The follower outlives every connection. It reads the pods when the node has said hello.
        let _ = self.follow.send(follow::Command::Add(name.to_owned()));
        Ok(node)
    }

    /// Asks the API whether an object that a node holds is really gone.
    fn look_up(&self, node: &str, session: u64, key: ObjectKey, uid: String) {
        let _ = self.follow.send(follow::Command::LookUp { node: node.to_owned(), session, key, uid });
    }

    /// Whether this connection of the node is its present one.
    fn is_present(&self, node: &str, session: u64) -> bool {
        self.known(node).and_then(|node| node.link()).is_some_and(|link| link.session == session)
    }

    /// Signs a successor of a connection's certificate, if the API says after that that the connection is still good:
    /// another device may be joining under this name.
    async fn renew_certificate(&self, node: &str, credential: &Credential, request: &[u8]) -> RenewAnswer {
        let signed = credential.renew(node, request);
        let refused = match members::look_up(self.clients.own(), node).await {
            Ok(Some(membership)) => membership.admits(node, credential.issued).err(),
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

    fn connected(&self, node: &str, session: u64, resumed: bool) {
        let _ = self.follow.send(follow::Command::Connected { node: node.to_owned(), session, resumed });
    }

    /// The node's object was deleted: it is sent away, and nothing is kept of it.
    fn deleted(&self, name: &str) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.members.remove(name);
        let Some(node) = self.known(name) else { return };
        if self.settings.deleted_nodes_return && node.rewrite() {
            return;
        }
        node.send_away(&NotAdmitted::Absent(name.to_owned()));
        self.nodes().remove(name);
        let _ = self.follow.send(follow::Command::Drop(name.to_owned()));
        if let Some(gone) = &self.settings.gone {
            gone(name);
        }
    }

    /// The newest that the API says of a node's right to be connected.
    fn member(&self, name: &str, membership: members::Membership) {
        if let Some(node) = self.known(name)
            && let Some(link) = node.link()
            && let Err(reason) = membership.admits(name, link.issued)
        {
            node.send_away(&reason);
        }
        self.members.set(name, membership);
    }

    /// A node's object says which connection is its newest.
    fn session_seen(&self, name: &str, session: u64) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        match sessions.get_mut(name) {
            Some(known) => *known = session.max(*known),
            None => drop(sessions.insert(name.into(), session)),
        }
        drop(sessions);
        if let Some(node) = self.known(name) {
            node.superseded(session);
        }
    }

    /// The highest fencing number that any bridge is known to have given to this node.
    fn elsewhere(&self, name: &str) -> u64 {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or_default()
    }

    /// What the node's object says of its autonomy is news: its pods are to have it.
    fn uphold(&self, node: &str) {
        let _ = self.follow.send(follow::Command::Uphold(node.to_owned()));
    }

    fn overrides(&self, node: &str) -> NodeOverrides {
        let kubelet = self.settings.kubelet.as_ref().and_then(|endpoint| endpoint(node));
        NodeOverrides { kubelet, may_register: self.settings.deleted_nodes_return }
    }
}
