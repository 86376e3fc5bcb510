//! Messages between the daemon and `edge-api`, the helper that takes requests of pods to the API. Values only. Does not
//! know sockets, TLS, the link or the cache.
//!
//! The helper listens at one Unix socket, and the daemon connects to it twice. The first line of a connection says which
//! of the two it is:
//!
//! | first line | then |
//! |---|---|
//! | [`ToHelper::Daemon`] | **control**: one JSON text per line in both directions, at most [`MAX_LINE`] bytes |
//! | [`ToHelper::Streams`] | **streams**: binary frames in both directions ([`frame`]) |
//!
//! # Control
//!
//! The daemon sends `Daemon`; the helper answers with `Hello`, and then with `Ready` when it listens. The daemon sends
//! `Link` and a `Pod` for each pod that may use the API, ends with `Told`, and continues with changes. The helper
//! answers no pod before `Told`. After `Hello` the daemon connects for streams.
//!
//! | from | line |
//! |---|---|
//! | daemon | `{"daemon":{"version":1,"node":"n","settings":{"listen":["10.88.0.1:6443"],"domain":"cluster.local","folder":"/var/lib/edge-runtime/api","cacheBytes":8388608,"secretsInMemory":false}}}` |
//! | helper | `{"hello":{"version":1}}` |
//! | helper | `{"ready":{"certificate":"-----BEGIN CERTIFICATE-----...","refused":[]}}` |
//! | daemon | `{"link":{"up":true,"sinceMs":1790000000000}}` |
//! | daemon | `{"pod":{"uid":"u","namespace":"default","name":"web","account":"default","tokens":["<SHA-256 in hex>"]}}` |
//! | daemon | `{"told":{}}` |
//! | daemon | `{"podGone":{"uid":"u"}}` |
//! | daemon | `{"ping":{}}` |
//! | helper | `{"pong":{}}` |
//! | helper | `{"counters":{"counters":{"text":"..."}}}` |
//! | daemon | `{"end":{}}` |
//!
//! A helper of another version or with other settings ends when `Daemon` comes, without an answer; the daemon starts
//! another one. Only the newest connection of each sort counts, and the end of one ends the other: the daemon connects
//! both again. Without a daemon the helper stays, takes the link as down, and keeps the pods that it knows.
//!
//! # Streams
//!
//! One stream is one request. Its bytes are those of the stream of the link, as described at `ApiRequest` in
//! `edge-protocol`: the daemon copies them and parses none. The helper numbers its streams from 1, and no number comes
//! twice on a connection.
//!
//! | frame | from | payload |
//! |---|---|---|
//! | [`Kind::Open`] | helper | JSON of an `ApiRequest` |
//! | [`Kind::Data`] | both | bytes of the stream, 1 to [`MAX_DATA`] |
//! | [`Kind::Credit`] | both | number of further bytes that the sender accepts, four bytes, big endian |
//! | [`Kind::End`] | both | reason as UTF-8; empty: the stream is complete |
//!
//! Each side may send [`INITIAL_CREDIT`] bytes on a new stream, the same as on the link, and then as many as it is
//! given by `Credit`. So the daemon's relay is:
//!
//! | event | the daemon's act |
//! |---|---|
//! | `Open` | `open_api`; an error, or no link: `End` with the reason |
//! | `Data` from the helper | `stream_send`, which has room; a helper that sends more than its credit gets `End` |
//! | `Credit` from the helper | `stream_consumed` |
//! | `End` from the helper | `stream_end` |
//! | `Data` of the link | `Data`, in pieces of at most [`MAX_DATA`] |
//! | `Room` of the link | `Credit` with the stream's room minus what the helper was given and has not used |
//! | `Closed` of the link | `End` with the reason, or empty |
//! | the link has ended | `End` with a reason for each stream |
//! | this connection has ended | `stream_end` with a reason for each stream |
//!
//! Frames of a stream that has ended are normal and have no effect, because both sides may end it at the same time. The
//! helper always reads: what waits in it is at most [`INITIAL_CREDIT`] a stream, and it opens at most [`MAX_REQUESTS`].

pub mod frame;
mod from_helper;
mod settings;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use frame::Kind;
pub use settings::Settings;

/// Changes with anything that an older helper or daemon would misunderstand: then the helper ends and another one starts.
pub const VERSION: u32 = 1;

/// Longest line in either direction, bytes without the line feed. Longer ones end the connection.
pub const MAX_LINE: usize = 1 << 20;

/// Bytes that each side may send on a new stream. The same as `INITIAL_CREDIT` of the link's streams.
pub const INITIAL_CREDIT: u32 = 64 << 10;

/// Most bytes of one [`Kind::Data`].
pub const MAX_DATA: usize = 16 << 10;

/// Requests under way at once, all pods together. The same as the link's own limit.
pub const MAX_REQUESTS: usize = 32;

/// A message to the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToHelper {
    /// The daemon connects for control.
    Daemon { version: u32, node: String, settings: Settings },
    /// The daemon connects for streams: frames follow the line feed.
    Streams { version: u32 },
    /// A pod that may use the API, or one whose tokens have changed.
    Pod(Pod),
    /// The pod of this uid is gone, or may use the API no more: its tokens are refused, and its requests end.
    PodGone { uid: String },
    /// The daemon has sent all pods: the helper removes any other.
    Told {},
    /// Whether the bridge passes requests on now, and since when: milliseconds of the Unix epoch. Sent once before
    /// `Told`, and with each change.
    Link { up: bool, since_ms: u64 },
    /// Answered by `Pong`; a helper without an answer counts as hung.
    Ping {},
    /// Exit: the module is off, or the node shuts down.
    End {},
}

/// A pod and its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Name of its ServiceAccount.
    pub account: String,
    /// SHA-256 of each token that the pod can read, in hex, lower case. The newest only: the helper accepts a replaced
    /// one for ten more minutes.
    pub tokens: Vec<String>,
}

/// A message of the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FromHelper {
    /// First line to a daemon.
    Hello { version: u32 },
    /// The helper has its certificate and listens. Sent after `Hello`, and again when `refused` changes.
    Ready {
        /// PEM, one block: what pods must trust beside the cluster's authority.
        certificate: String,
        /// Addresses at which it cannot listen, with the reason; it tries again every few seconds.
        refused: Vec<String>,
    },
    /// Answer to `Ping`.
    Pong {},
    /// For `edge-runtime status`, which shows the `text` in it; sent when it has changed, at most once a second.
    Counters { counters: Value },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_documented() {
        let line = |line: &str| serde_json::from_str::<ToHelper>(line).expect("a line");
        let settings = Settings {
            listen: vec!["10.88.0.1:6443".parse().expect("an address")],
            domain: "cluster.local".into(),
            folder: "/var/lib/edge-runtime/api".into(),
            cache_bytes: 8 << 20,
            secrets_in_memory: false,
        };
        assert_eq!(
            line(
                r#"{"daemon":{"version":1,"node":"n","settings":{"listen":["10.88.0.1:6443"],"domain":"cluster.local",
                "folder":"/var/lib/edge-runtime/api","cacheBytes":8388608,"secretsInMemory":false}}}"#
            ),
            ToHelper::Daemon { version: 1, node: "n".into(), settings }
        );
        assert_eq!(line(r#"{"link":{"up":true,"sinceMs":7}}"#), ToHelper::Link { up: true, since_ms: 7 });
        let pod = Pod {
            uid: "u".into(),
            namespace: "default".into(),
            name: "web".into(),
            account: "sa".into(),
            tokens: vec!["ab".into()],
        };
        let text = r#"{"pod":{"uid":"u","namespace":"default","name":"web","account":"sa","tokens":["ab"]}}"#;
        assert_eq!(line(text), ToHelper::Pod(pod.clone()));
        assert_eq!(serde_json::to_string(&ToHelper::Pod(pod)).expect("JSON"), text);
        assert_eq!(line(r#"{"podGone":{"uid":"u"}}"#), ToHelper::PodGone { uid: "u".into() });
        assert_eq!(line(r#"{"streams":{"version":1}}"#), ToHelper::Streams { version: 1 });
    }
}
