//! Inputs and outputs of a session for the bridge. Values only.

use crate::HEARTBEAT;
use crate::message::{ApiRequest, Der, DeviceReport, ObjectDigest, ObjectKey, Report, StreamId, TokenRequest};
use crate::stream::StreamEvent;
use crate::version::{Hello, IdentityTerms};
use std::time::Duration;

/// Inputs of a new connection.
#[derive(Clone, Debug)]
pub struct BridgeSettings {
    /// Node name from the client certificate; a hello with another one is refused.
    pub node: String,
    /// This cluster's id.
    pub cluster: String,
    /// Fencing number, higher than that of every earlier connection of this node.
    pub session: u64,
    pub heartbeat: Duration,
    /// Bytes of changes sent and not acknowledged; at least one change is always let through.
    pub window: usize,
    /// The caller can inflate frames ([`compress`](crate::compress)).
    pub compress: bool,
    /// An object larger than [`LARGE`](crate::state::LARGE) is sent only after [`BridgeSession::allow_large`](super::BridgeSession::allow_large):
    /// one for ten thousand nodes is ten thousand texts on their way.
    pub large_by_turns: bool,
    /// See [`Welcome::repeat_within_ms`](crate::version::Welcome::repeat_within_ms).
    pub repeat_within: Option<Duration>,
    /// Told to nodes that renew; `None`: this bridge renews nothing.
    pub identity: Option<IdentityTerms>,
}

impl BridgeSettings {
    pub fn new(node: impl Into<String>, cluster: impl Into<String>, session: u64) -> Self {
        Self {
            node: node.into(),
            cluster: cluster.into(),
            session,
            heartbeat: HEARTBEAT,
            window: 256 << 10,
            compress: false,
            large_by_turns: false,
            repeat_within: None,
            identity: None,
        }
    }
}

/// What the session tells its caller, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum BridgeEvent {
    /// The node was accepted. `resumed`: only later changes are sent. Otherwise list what it should hold from the API,
    /// enter it, and call [`NodeState::listed`](crate::state::NodeState::listed): nothing is sent before.
    Connected {
        hello: Hello,
        resumed: bool,
    },
    /// The node has committed everything up to this change.
    Acked {
        seq: u64,
    },
    /// The node cannot apply this object: show it as an event on the object.
    Nacked {
        key: ObjectKey,
        uid: String,
        reason: String,
    },
    /// Write it to the API, then call `reported` or `refuse_report`. May repeat one already written.
    Report {
        id: u64,
        report: Report,
    },
    /// The node holds these and its (empty) list does not name them. Ask the API for each:
    /// [`NodeState::remove`] what is really gone. Doing nothing is safe.
    Unlisted(Vec<ObjectDigest>),
    /// Answer with `token`.
    TokenRequest {
        id: u64,
        request: TokenRequest,
    },
    /// A certificate request for a new key of this node. Answer with `renewed`.
    Renew(Der),
    /// The node's [`Hello::interests`] have changed. Their content is untrusted.
    Interests(Vec<String>),
    /// Reports of devices, at most [`MAX_DEVICES`](crate::message::MAX_DEVICES). Write them to the API, then call
    /// [`devices_written`](super::BridgeSession::devices_written); only then the next ones arrive. They may repeat
    /// written values.
    Devices {
        batch: u64,
        devices: Vec<DeviceReport>,
    },
    /// A message for a rule: a [`RuleMessage`](crate::message::RuleMessage), unless the node is faulty. Process it, in
    /// order for each rule, then call [`message_done`](super::BridgeSession::message_done). May repeat a processed one.
    Message {
        id: u64,
        /// Remaining lifetime, in milliseconds.
        left_ms: u64,
        message: serde_json::Value,
    },
    /// Result of a [`call`](super::BridgeSession::call): a [`CallResult`](crate::message::CallResult), unless the node
    /// is faulty.
    Answer {
        id: u64,
        answer: serde_json::Value,
    },
    /// A request of a program on the node to a rule, a [`RuleRequest`](crate::message::RuleRequest) if the node keeps
    /// to the protocol. Handle it once, then call [`respond`](super::BridgeSession::respond).
    Request {
        id: u64,
        request: serde_json::Value,
    },
    /// A request of a pod to the API, within the limits of [`ApiRequest::check`]. Answer on the stream: its other events
    /// are [`Stream`](Self::Stream).
    ApiOpened {
        stream: StreamId,
        request: ApiRequest,
    },
    Stream(StreamEvent),
}
