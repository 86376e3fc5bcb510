//! Inputs and outputs of a session for the node. Values only.

use crate::message::{DeviceRefusal, Object, ObjectDigest, ObjectKey, Position, RenewAnswer, TokenAnswer};
use crate::stream::StreamEvent;
use crate::version::{Wants, Welcome};

/// What the node knows before it connects, from its store.
#[derive(Clone, Debug)]
pub struct EdgeFacts {
    pub node: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Program and version, for people.
    pub agent: String,
    /// Cluster of the last welcome; a bridge of another one is refused. None before the first.
    pub cluster: Option<String>,
    /// Position stored with the last committed change, see [`Change::position`].
    pub position: Option<Position>,
    /// Every object in the store, so that a full sync moves only what differs.
    pub held: Vec<ObjectDigest>,
    /// The caller can inflate frames ([`compress`](crate::compress)).
    pub compress: bool,
    /// Optional kinds that the node requests.
    pub wants: Wants,
    /// Namespaces besides those of its pods ([`Hello::interests`](crate::version::Hello::interests)).
    pub interests: Vec<String>,
}

impl EdgeFacts {
    /// A node with an empty store.
    pub fn new(node: impl Into<String>, boot_id: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            boot_id: boot_id.into(),
            agent: String::new(),
            cluster: None,
            position: None,
            held: Vec::new(),
            compress: false,
            wants: Wants::default(),
            interests: Vec::new(),
        }
    }
}

/// One change to the store. Commit it together with its [`position`](Self::position), then call
/// [`EdgeSession::committed`]; or several at once, in order, with the position of the last.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Create or replace by key. `sync`: part of a full sync that is incomplete or doubtful: the list was empty, and
    /// the bridge must still confirm for every held object whether it is gone.
    Put { object: Object, seq: u64, sync: bool },
    /// Remove the object of this key if it has this uid; else nothing.
    Delete { key: ObjectKey, uid: String, seq: u64, sync: bool },
    /// The full list is complete and all needed bodies arrived before it: the objects `absent` (key and uid) are gone.
    /// Not sent for an empty list while objects are held, so that such a list deletes nothing.
    SyncComplete { seq: u64, absent: Vec<ObjectDigest> },
}

impl Change {
    pub fn seq(&self) -> u64 {
        match self {
            Self::Put { seq, .. } | Self::Delete { seq, .. } | Self::SyncComplete { seq, .. } => *seq,
        }
    }

    /// What to store as the node's position in the same transaction. `None`: delete the stored position, because a
    /// half-applied full sync fits no stream. The next connection then starts a full sync again.
    pub fn position(&self, stream: &str) -> Option<Position> {
        match self {
            Self::Put { sync: true, .. } | Self::Delete { sync: true, .. } => None,
            _ => Some(Position { stream: stream.to_owned(), seq: self.seq() }),
        }
    }
}

/// What the session tells its caller, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum EdgeEvent {
    /// The bridge accepted the node. Store the cluster id if none was known.
    Welcome(Welcome),
    Change(Change),
    /// The report with this outbox id has reached the API: drop the row.
    UpAcked(u64),
    /// The report with this outbox id will never be accepted: drop the row, log the reason.
    UpRefused(u64, String),
    /// Answer to [`EdgeSession::request_token`](super::EdgeSession::request_token).
    Token {
        id: u64,
        answer: TokenAnswer,
    },
    /// Answer to [`EdgeSession::renew`](super::EdgeSession::renew).
    Renewed(RenewAnswer),
    /// This batch of [`EdgeSession::devices`](super::EdgeSession::devices) is in the API, but for what is refused.
    DevicesAcked {
        batch: u64,
        refused: Vec<DeviceRefusal>,
    },
    /// These rows of [`EdgeSession::message`](super::EdgeSession::message) have been processed: delete them.
    MessagesAcked(Vec<u64>),
    /// Answer with [`EdgeSession::answer`](super::EdgeSession::answer).
    Call {
        id: u64,
        call: serde_json::Value,
    },
    /// Answer to [`EdgeSession::request`](super::EdgeSession::request).
    Response {
        id: u64,
        response: serde_json::Value,
    },
    Stream(StreamEvent),
}
