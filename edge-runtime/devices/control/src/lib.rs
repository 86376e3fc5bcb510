//! Messages between the daemon and `edge-devices`: one JSON text per line over a Unix socket at which the helper
//! listens. Values only. Does not know sockets, stores, MQTT or the meaning of a value.
//!
//! The first line of a connection names the caller ([`ToHelper::Daemon`] or [`ToHelper::Client`]). A daemon then sends
//! all objects it holds, ends with [`ToHelper::Told`], and continues with changes. Only the newest connection of a
//! daemon counts.

mod broker;
mod from_helper;
mod listen;
mod rules;
mod servicebus;
mod settings;

use edge_protocol::message::DeviceRefusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use broker::Address;
/// Type of names and values, of which a helper holds thousands: up to 15 bytes are stored in place, and copies of
/// longer texts share their memory.
pub use ecow::EcoString as Text;
pub use listen::Listen;
pub use rules::Rules;
pub use servicebus::Servicebus;
pub use settings::{CheckValues, Dmi, Mqtt, Read, Report, Settings, Store};

/// Changes with anything that an older helper or daemon would misunderstand: then the helper ends and another one starts.
pub const VERSION: u32 = 3;

/// Exit code of `edge-devices --check-settings` for settings that are wrong; its stderr says why.
pub const WRONG_SETTINGS: u8 = 3;

/// Longest line in either direction, bytes without the line feed. Longer ones end the connection.
pub const MAX_LINE: usize = 4 << 20;

/// A message to the helper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToHelper {
    /// The daemon connects, with the section typed in its configuration ([`Settings`]). A helper of another version or
    /// with other settings reports its pending news and ends.
    Daemon { version: u32, node: String, settings: Value },
    /// A command of a person is there: `Ask` follows.
    Client {},
    /// The newest state of a `Device`, a `DeviceModel` or a `Rule`, trimmed by the bridge.
    Object { kind: Kind, namespace: String, name: String, uid: String, body: Value },
    /// The object of this uid is gone.
    Gone { kind: Kind, namespace: String, name: String, uid: String },
    /// What the helper once gave to be kept of the device with this uid.
    Kept { uid: String, record: String },
    /// The daemon has sent all objects it holds: the helper removes any other.
    Told {},
    /// Whether reports reach the bridge now. Said once after `Told`, and with each change.
    Link { up: bool, clock_set: bool },
    /// The bridge has this batch, but for what is refused.
    Ack { batch: u64, refused: Vec<DeviceRefusal> },
    /// Where the pod of this uid is, after `FromHelper::Pod`; none if the node has no such pod.
    Pod { uid: String, namespace: Option<String> },
    /// The `Messages` with this number are in the store.
    Stored { batch: u64 },
    /// A request of a rule ([`Call`](edge_protocol::message::Call)); answered by `Called` with the same number.
    Call { id: u64, call: Value },
    /// Result of a `Request` ([`CallResult`](edge_protocol::message::CallResult)).
    Response { id: u64, response: Value },
    /// Answered by `Pong`; a helper without an answer counts as hung.
    Ping {},
    /// Answered by `Answer` with the same number.
    Ask { id: u64, question: Question },
    /// Send all pending reports, then exit: the module is off, or the node shuts down.
    End {},
}

/// A message of the helper.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FromHelper {
    /// First line to a daemon. Others of its version and settings take this helper over as it is.
    Hello {
        version: u32,
    },
    /// News for the bridge. The next one comes after its `Ack`, or after the link was down.
    Report {
        batch: u64,
        /// [`DeviceReport`](edge_protocol::message::DeviceReport) each; passed on as they are.
        devices: Vec<Value>,
    },
    /// State to store by device uid, for a restart of both processes. `durable`: before anything else that must be
    /// durable.
    Keep {
        rows: Vec<Row>,
        durable: bool,
    },
    /// An event on the Device.
    Event {
        namespace: String,
        name: String,
        uid: String,
        warning: bool,
        reason: String,
        message: String,
    },
    /// Messages for the bridge, to store until it has them: at most a number of bytes in all, dropping the oldest of
    /// the lowest class first, and each for a number of seconds of running time. The next ones come after `Stored`.
    Messages {
        batch: u64,
        rows: Vec<MessageRow>,
        most_bytes: u64,
        ttl_s: u64,
    },
    /// Result of a `Call` ([`CallResult`](edge_protocol::message::CallResult)).
    Called {
        id: u64,
        answer: Value,
    },
    /// A request of a program on the device ([`RuleRequest`](edge_protocol::message::RuleRequest)). Answered by
    /// `Response` with the same number, or never if the link is reported down before.
    Request {
        id: u64,
        request: Value,
    },
    Pong {},
    /// Where is the pod of this uid? Answered by `ToHelper::Pod`.
    Pod {
        uid: String,
    },
    /// How it goes, for `edge-runtime status`, which shows the `text` in it; when it has changed, at most once a second.
    Counters {
        counters: Value,
    },
    Answer {
        id: u64,
        answer: Result<Value, String>,
    },
}

/// The stored record of one device. An empty record deletes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub uid: String,
    pub record: String,
}

/// A message that waits for the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageRow {
    /// Uid of the rule that it is for.
    pub rule: String,
    /// 0 to 9; the lowest is dropped first when the store is full.
    pub class: u8,
    /// JSON text of a [`RuleMessage`](edge_protocol::message::RuleMessage).
    pub record: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    Device,
    DeviceModel,
    Rule,
}

/// Requests of `edge-runtime devices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Question {
    /// All devices, or one, with their twins as JSON.
    Get { device: Option<Named> },
    /// A desired value of this node alone, until the cloud changes its own.
    Set { device: Named, property: String, value: String },
    /// Same as `Get`, and another `Answer` of the same number with each change, until the client goes.
    Watch { device: Option<Named> },
    /// The programs that drive devices, as JSON.
    Mappers {},
    /// The last changes of a device's reported values, or of one property, as JSON.
    History { device: Named, property: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Named {
    pub namespace: Text,
    pub name: Text,
}
