//! The two enums that name everything that crosses the link, one per direction.
//!
//! Grow them by adding variants and optional fields; never change what a name means.
//! Knows nothing of sockets, clocks, stores or the meaning of an object's body.

mod base64_text;
mod certificate;
mod device;
mod object;
mod order;
mod rule;

use crate::version::{Hello, RefuseReason, Welcome};
use serde::{Deserialize, Serialize};

pub use crate::version::{PROTOCOL, Position};
pub use certificate::{Der, RenewAnswer};
pub use device::{DeviceRefusal, DeviceReport, DeviceState, MAX_DEVICES, TwinReport, TwinValue};
pub use object::{Object, ObjectDigest, ObjectKey, ObjectRef};
pub use order::{
    ActionStep, ImageStatus, Job, ORDER, Order, OrderPhase, OrderStatus, WAITING_CONFIRMATION, WAITING_TURN, Work,
    waits_for_confirmation, waits_for_turn,
};
pub use rule::{Call, CallFailure, CallResult, MAX_BODY, MAX_PAYLOAD, RuleMessage, RuleRequest};

/// Number of a stream (logs, exec, ...), chosen by the bridge, never reused within a connection.
pub type StreamId = u64;

/// What the bridge asks a node to serve over a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum StreamRequest {
    /// Container log, as the kubelet's `/containerLogs` (`PodLogOptions` of the core API).
    Logs {
        namespace: String,
        pod: String,
        uid: String,
        container: String,
        #[serde(default)]
        follow: bool,
        #[serde(default)]
        previous: bool,
        #[serde(default)]
        timestamps: bool,
        #[serde(default)]
        tail_lines: Option<u64>,
        #[serde(default)]
        since_seconds: Option<u64>,
        /// RFC 3339.
        #[serde(default)]
        since_time: Option<String>,
        #[serde(default)]
        limit_bytes: Option<u64>,
    },
    /// A command in a running container, as the kubelet's `/exec`. Bytes in both directions are records of
    /// [`channel`](crate::channel); the first from the edge is an empty one on `OPENED`, the last its `STATUS`.
    Exec {
        namespace: String,
        pod: String,
        uid: String,
        container: String,
        command: Vec<String>,
        #[serde(default)]
        stdin: bool,
        #[serde(default)]
        stdout: bool,
        #[serde(default)]
        stderr: bool,
        #[serde(default)]
        tty: bool,
    },
    /// The standard streams of a container's own process, as the kubelet's `/attach`. Records as for `Exec`.
    Attach {
        namespace: String,
        pod: String,
        uid: String,
        container: String,
        #[serde(default)]
        stdin: bool,
        #[serde(default)]
        stdout: bool,
        #[serde(default)]
        stderr: bool,
        #[serde(default)]
        tty: bool,
    },
    /// One TCP connection to a port inside the pod's network namespace. Records of [`channel`](crate::channel):
    /// `OPENED` when it is established, then `STDIN` towards the pod and `STDOUT` from it, each closed by `CLOSE`.
    PortForward { namespace: String, pod: String, uid: String, port: u16 },
    /// Usage of the node, its pods and their containers: the JSON of the kubelet's `/stats/summary`, then the end.
    Stats {},
    /// Forget this volume of the node with all that is in it: the name of a folder that the node has made for a
    /// PersistentVolume. The end without an error says that it is gone, as it is when there was none.
    DeleteVolume { volume: String },
    /// A request this build does not know; answered by ending the stream with a reason.
    #[serde(other)]
    Unknown,
}

/// One thing a node reports. Kept in the node's durable outbox until the bridge acknowledges it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Report {
    /// Newest `PodStatus` of a pod; an older unsent one of the same uid is replaced.
    PodStatus { namespace: String, name: String, uid: String, status: serde_json::Value },
    /// Every container of a deleted pod has ended and its resources are released: the object may go.
    PodGone { namespace: String, name: String, uid: String },
    /// The node's own object: labels, taints, `NodeStatus`. Newest wins.
    Node { node: serde_json::Value },
    /// A core/v1 Event about a pod or the node.
    Event { event: serde_json::Value },
    /// A static pod of this node, to be shown in the API as a mirror pod.
    MirrorPod { pod: serde_json::Value },
    /// The static pod of this name and static uid is gone: delete its mirror.
    MirrorGone { namespace: String, name: String, static_uid: String },
    /// Newest [`OrderStatus`] of the job with this uid.
    Order { job: String, status: serde_json::Value },
    /// A report this build does not know; acknowledged with a refusal.
    #[serde(other)]
    Unknown,
}

/// Request for a service account token for a pod of the node. The bridge takes the service account from the pod itself,
/// and asks the API server in the node's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRequest {
    pub namespace: String,
    pub pod: String,
    /// The pod's; the token is bound to it.
    pub uid: String,
    /// One that the pod's spec names; empty for the API server's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub audience: String,
    pub expiration_seconds: i64,
}

/// What became of a [`TokenRequest`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TokenAnswer {
    /// RFC 3339 times of the API server's clock.
    Issued { token: String, issued: String, expires: String },
    /// The text is for the pod's events.
    Refused { reason: String },
    #[serde(other)]
    Unknown,
}

/// Never shows the token: debug texts end up in logs.
impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Issued { expires, .. } => write!(f, "Issued {{ expires: {expires:?}, .. }}"),
            Self::Refused { reason } => write!(f, "Refused {{ reason: {reason:?} }}"),
            Self::Unknown => write!(f, "Unknown"),
        }
    }
}

/// What the bridge says to a node. One JSON text frame each: `{"put":{...}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToEdge {
    /// Answer to `Hello`; before it nothing else is sent but `Refuse`.
    Welcome(Welcome),
    /// The bridge will not talk to this node; it closes the connection after this frame.
    Refuse {
        reason: RefuseReason,
        message: String,
    },
    /// Opens the full list as of `seq`: exactly `count` digests follow.
    SyncBegin {
        seq: u64,
        count: u64,
    },
    SyncDigests {
        objects: Vec<ObjectDigest>,
    },
    /// Closes the list. Only now may the edge conclude anything from what is not in it.
    SyncEnd {
        seq: u64,
        count: u64,
    },
    /// Every body asked for has been sent, or has changed since and follows as a live `Put`.
    SyncDone {
        seq: u64,
    },
    /// `sync`: a body asked for by `Need`, not a change of the live stream.
    Put {
        seq: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sync: bool,
        object: Object,
    },
    /// Tombstone of one uid.
    Delete {
        seq: u64,
        object: ObjectRef,
    },
    /// Reports that have reached the API, by the edge's own outbox ids.
    UpAck {
        ids: Vec<u64>,
    },
    /// A report that will never be accepted; the edge drops it.
    UpRefuse {
        id: u64,
        reason: String,
    },
    StreamOpen {
        stream: StreamId,
        request: StreamRequest,
        /// Bytes the edge may send before it is given more.
        credit: u64,
    },
    StreamData {
        stream: StreamId,
        #[serde(with = "base64_text")]
        data: Vec<u8>,
    },
    StreamCredit {
        stream: StreamId,
        bytes: u64,
    },
    StreamEnd {
        stream: StreamId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Answer to a `TokenRequest`, by its number.
    Token {
        id: u64,
        answer: TokenAnswer,
    },
    /// Answer to `Renew`.
    Renewed {
        answer: RenewAnswer,
    },
    /// What the batch of `Devices` with this number said is in the API, but for what is refused.
    DevicesAck {
        batch: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<DeviceRefusal>,
    },
    /// What these rows of `Message` said has been dealt with, well or badly: they may go.
    MessageAck {
        ids: Vec<u64>,
    },
    /// A [`Call`] at a device, answered by `Answer` with the same number. Numbers of no two connections are the same.
    Call {
        id: u64,
        call: serde_json::Value,
    },
    /// What came of a `Request`, by its number: a [`CallResult`].
    Response {
        id: u64,
        response: serde_json::Value,
    },
    Pong {},
    /// Nack of a message type this build does not know.
    Unsupported {
        message: String,
    },
    /// A slice of the text of a message too large for one frame; `more` says another slice follows.
    Part {
        more: bool,
        data: String,
    },
}

/// What a node says to the bridge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToCloud {
    /// First frame of every connection.
    Hello(Hello),
    /// The change with this number, and every one sent before it, is committed to the store.
    Ack {
        seq: u64,
    },
    /// This object cannot be applied; it blocks no other.
    Nack {
        object: ObjectRef,
        reason: String,
    },
    /// Bodies wanted from the full list; `done` with the last of possibly several.
    Need {
        keys: Vec<ObjectKey>,
        done: bool,
    },
    /// Held here but not in the full list, which was empty: is it true that these are gone?
    Unlisted {
        objects: Vec<ObjectDigest>,
    },
    /// One row of the outbox; may come again after a reconnect.
    Up {
        id: u64,
        report: Report,
    },
    StreamData {
        stream: StreamId,
        #[serde(with = "base64_text")]
        data: Vec<u8>,
    },
    StreamCredit {
        stream: StreamId,
        bytes: u64,
    },
    StreamEnd {
        stream: StreamId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Asked again after a reconnect unless answered; `id` is chosen by the node.
    TokenRequest {
        id: u64,
        request: TokenRequest,
    },
    /// Another certificate for this connection's node, for a new key. Only the key is read from the request.
    Renew {
        /// PKCS #10, DER.
        csr: Der,
    },
    Ping {
        /// Time from the last ping to its pong, in milliseconds; left out while it is about what was said last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rtt_ms: Option<u32>,
    },
    /// [`Hello::interests`] as they are now.
    Interests {
        namespaces: Vec<String>,
    },
    /// News of devices, each at most once. The next batch comes after the acknowledgement of this one.
    Devices {
        batch: u64,
        /// [`DeviceReport`] each: a node passes on what its helper says.
        devices: Vec<serde_json::Value>,
    },
    /// A row of the node's queue of messages, a [`RuleMessage`]; may come again after a reconnect.
    Message {
        id: u64,
        /// Remaining lifetime, in milliseconds.
        left_ms: u64,
        message: serde_json::Value,
    },
    /// What came of a `Call`: a [`CallResult`].
    Answer {
        id: u64,
        answer: serde_json::Value,
    },
    /// A [`RuleRequest`], answered by `Response` with the same number, which the node chooses: never that of one under way.
    Request {
        id: u64,
        request: serde_json::Value,
    },
    /// Nack of a message type this build does not know.
    Unsupported {
        message: String,
    },
    /// A slice of the text of a message too large for one frame; `more` says another slice follows.
    Part {
        more: bool,
        data: String,
    },
}
