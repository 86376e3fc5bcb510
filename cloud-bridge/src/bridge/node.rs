//! What the bridge knows of one node, connected or not, and the way to its present connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use edge_protocol::message::{Call, CallResult, StreamId, StreamRequest};
use edge_protocol::state::NodeState;
use futures::channel::mpsc::UnboundedSender;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use super::node_access::NotAdmitted;
use kubelet_api::backend::BackendError;

/// Bytes of a stream, in order; an error ends it.
pub(super) type Chunks = mpsc::UnboundedReceiver<Result<Bytes, BackendError>>;

/// A stream that the connection has opened.
#[derive(Debug)]
pub(super) struct OpenStream {
    pub id: StreamId,
    pub chunks: Chunks,
    /// A permit for each byte that may wait for the node's credit; closed when the stream is over.
    pub room: Arc<Semaphore>,
}

/// What others ask of a connection.
#[derive(Debug)]
pub(super) enum Command {
    /// A newer connection of the node is here.
    Superseded,
    /// The node may not be connected any more.
    Disconnect(String),
    /// The bridge ends: close in good order.
    Close,
    /// Another client changed or deleted the node's object.
    RewriteNode,
    /// In a box: a queue of these is made for every connection, in the size of the largest.
    Open(Box<Open>),
    /// What a rule wants done there. In a box as above.
    Ask(Box<Asked>),
    /// Bytes for the node, as many as permits of the stream's room were taken.
    Send { stream: StreamId, data: Vec<u8> },
    /// Bytes that the reader of a stream has taken.
    Consumed { stream: StreamId, bytes: usize },
    /// The reader of a stream has gone.
    EndStream { stream: StreamId },
}

/// A stream to be opened.
#[derive(Debug)]
pub(super) struct Open {
    pub request: StreamRequest,
    pub answer: oneshot::Sender<Result<OpenStream, BackendError>>,
}

/// What a rule wants done on the node.
#[derive(Debug)]
pub(super) struct Asked {
    pub call: Call,
    pub answer: oneshot::Sender<CallResult>,
}

/// How the present connection goes, for people and their monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkStats {
    /// A frame arrived last.
    pub heard: Option<SystemTime>,
    /// Last change that the node has committed on this connection.
    pub acked: Option<u64>,
    /// Bytes of changes sent and not acknowledged.
    pub down_bytes: usize,
    /// Bytes of reports that are not in the API yet.
    pub up_bytes: usize,
    /// Round trip as the node measured it.
    pub rtt_ms: Option<u32>,
}

/// The present connection of a node.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Its fencing number.
    pub session: u64,
    /// When its certificate was issued.
    pub issued: SystemTime,
    /// Not tokio's, whose queues take room for 32 entries each from the start. Unbounded, but what is in it is bounded: by readers of streams, and by the credit and room of their bytes.
    pub commands: UnboundedSender<Command>,
}

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub name: String,
    state: Mutex<NodeState>,
    /// The state has changed.
    pub changed: Notify,
    presence: Mutex<Presence>,
}

#[derive(Debug, Default)]
struct Presence {
    link: Option<Link>,
    newest: u64,
    last_seen: Option<SystemTime>,
    since: Option<SystemTime>,
    link_stats: LinkStats,
    /// Fencing number of the newest connection to this bridge.
    own: u64,
    /// Whether it takes Devices, as it has said on its present connection.
    takes_devices: Option<bool>,
    /// Whether it takes orders of jobs, as it has said on its present connection.
    takes_orders: Option<bool>,
}

impl Node {
    /// `stream` is random text.
    pub(super) fn new(name: &str, stream: String) -> Self {
        Self {
            name: name.to_owned(),
            state: Mutex::new(NodeState::new(stream)),
            changed: Notify::new(),
            presence: Mutex::default(),
        }
    }

    /// What it should hold.
    pub(super) fn state(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present connection.
    pub(super) fn link(&self) -> Option<Link> {
        self.presence().link.clone()
    }

    /// When a frame of it last arrived at this bridge, for one that is not connected now.
    pub(super) fn last_seen(&self) -> Option<SystemTime> {
        self.presence().last_seen
    }

    /// A new connection takes over from any other. The fencing number grows with the clock, so that it does
    /// over replicas and restarts, too; `elsewhere` is the highest that other bridges are known to have given.
    pub(super) fn attach(
        &self,
        commands: UnboundedSender<Command>,
        issued: SystemTime,
        elsewhere: u64,
        now: SystemTime,
    ) -> Link {
        let mut presence = self.presence();
        presence.newest = presence.newest.max(elsewhere);
        let millis = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        presence.newest = u64::try_from(millis).unwrap_or(u64::MAX - 1).max(presence.newest + 1);
        let link = Link { session: presence.newest, issued, commands };
        if let Some(old) = presence.link.replace(link.clone()) {
            // A connection that is just ending need not be told.
            let _ = old.commands.unbounded_send(Command::Superseded);
        }
        presence.own = presence.newest;
        presence.last_seen = Some(now);
        presence.since = Some(now);
        presence.link_stats = LinkStats::default();
        (presence.takes_devices, presence.takes_orders) = (None, None);
        link
    }

    /// This connection has said whether the node takes Devices, and whether orders of jobs.
    pub(super) fn set_takes(&self, session: u64, devices: bool, orders: bool) {
        let mut presence = self.presence();
        if presence.link.as_ref().is_some_and(|link| link.session == session) {
            (presence.takes_devices, presence.takes_orders) = (Some(devices), Some(orders));
        }
    }

    /// Whether it takes orders of jobs; `None` before it is connected and has said hello.
    pub(super) fn takes_orders(&self) -> Option<bool> {
        let presence = self.presence();
        presence.takes_orders.filter(|_| presence.link.is_some())
    }

    /// Whether it takes Devices; none if it is not connected.
    pub(super) fn takes_devices(&self) -> Option<bool> {
        let presence = self.presence();
        presence.takes_devices.filter(|_| presence.link.is_some())
    }

    /// How this connection goes.
    pub(super) fn note(&self, session: u64, link_stats: LinkStats) {
        let mut presence = self.presence();
        if presence.link.as_ref().is_some_and(|link| link.session == session) {
            presence.last_seen = link_stats.heard.or(presence.last_seen);
            presence.link_stats = link_stats;
        }
    }

    /// Fencing number of the newest connection, when it is connected since when, and how the connection goes.
    pub(super) fn look(&self) -> (u64, Option<SystemTime>, LinkStats) {
        let presence = self.presence();
        let since = presence.since.filter(|_| presence.link.is_some());
        (presence.newest, since, presence.link_stats)
    }

    /// Since when it is connected, when a frame last arrived, and whether another bridge has connected it since.
    pub(super) fn glance(&self) -> (Option<SystemTime>, Option<SystemTime>, bool) {
        let presence = self.presence();
        let since = presence.since.filter(|_| presence.link.is_some());
        (since, presence.last_seen, presence.newest > presence.own)
    }

    /// Another bridge has given the node this fencing number: an older connection here is void.
    pub(super) fn superseded(&self, session: u64) {
        let mut presence = self.presence();
        let old = presence.link.as_ref().filter(|link| link.session < session);
        if let Some(old) = old {
            // A connection that is just ending need not be told.
            let _ = old.commands.unbounded_send(Command::Superseded);
        }
        presence.newest = presence.newest.max(session);
        drop(presence);
        // From this moment nothing that still comes on it is taken.
        self.state().fence(session);
    }

    /// This connection has ended.
    pub(super) fn detach(&self, session: u64, now: SystemTime) {
        let mut presence = self.presence();
        if presence.link.as_ref().is_some_and(|link| link.session == session) {
            presence.link = None;
            presence.last_seen = Some(now);
        }
    }

    /// Ends the node's connection, if there is one, with this reason.
    pub(super) fn disconnect(&self, reason: &NotAdmitted) {
        if let Some(link) = self.link() {
            // A connection that has just ended is gone already.
            let _ = link.commands.unbounded_send(Command::Disconnect(reason.to_string()));
        }
    }

    /// Has the node's object written again, if the node is connected. False if it is not.
    pub(super) fn rewrite(&self) -> bool {
        self.link().is_some_and(|link| link.commands.unbounded_send(Command::RewriteNode).is_ok())
    }
}
