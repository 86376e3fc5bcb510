//! The two enums that name everything that crosses the link, one per direction.
//!
//! Grow them by adding variants and optional fields; never change what a name means.
//! Knows nothing of sockets, clocks, stores or the meaning of an object's body.

mod api;
mod base64_text;
mod certificate;
mod device;
mod object;
mod order;
mod report;
mod rule;
mod stream;
mod token;

use crate::version::{Hello, RefuseReason, Welcome};
use serde::{Deserialize, Serialize};

pub use crate::version::{PROTOCOL, Position};
pub use api::{
    ApiAnswer, ApiRequest, ApiRequestError, MAX_API_BODY, MAX_API_HEADER_BYTES, MAX_API_HEADERS, MAX_API_PATH,
};
pub use certificate::{Der, RenewAnswer};
pub use device::{DeviceRefusal, DeviceReport, DeviceState, MAX_DEVICES, TwinReport, TwinValue};
pub use object::{Object, ObjectDigest, ObjectKey, ObjectRef};
pub use order::{
    ActionStep, ImageStatus, Job, ORDER, Order, OrderPhase, OrderStatus, WAITING_CONFIRMATION, WAITING_TURN, Work,
    waits_for_confirmation, waits_for_turn,
};
pub use report::{MAX_CSI_DRIVERS, Report};
pub use rule::{Call, CallFailure, CallResult, MAX_BODY, MAX_PAYLOAD, RuleMessage, RuleRequest};
pub use stream::{StreamId, StreamRequest};
pub use token::{TokenAnswer, TokenRequest};

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
    /// A request of a pod to the API. The numbers of these streams start above
    /// [`EDGE_STREAMS`](crate::stream::EDGE_STREAMS). Bytes in both directions are records of
    /// [`channel`](crate::channel), described at [`ApiRequest`].
    ApiOpen {
        stream: StreamId,
        request: ApiRequest,
        /// Bytes the bridge may send before it is given more.
        credit: u64,
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
