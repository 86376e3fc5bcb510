//! What crosses the link between `edge-runtime` and `cloud-bridge`: start here.
//!
//! No I/O, no clock, no async runtime: frames and time go in, frames and events come out, so that
//! both programs and the simulation run the same code.
//!
//! | module | owns |
//! |---|---|
//! | [`message`] | [`ToEdge`](message::ToEdge) and [`ToCloud`](message::ToCloud): all that crosses |
//! | [`frame`] | text of a frame, size caps, slices of large messages |
//! | [`weight`] | what a text takes once it is parsed |
//! | [`compress`] | texts of frames made smaller, where both sides can |
//! | [`wire`] | frames as websocket messages: text, packed text, bytes of streams |
//! | [`version`] | hello, welcome, skew rules |
//! | `body` | the text of an object, once for all nodes, and the frames of a large one |
//! | [`state`] | [`NodeState`](state::NodeState): what one node should hold, as a numbered stream |
//! | [`bridge`] | [`BridgeSession`](bridge::BridgeSession): one connection, seen from the bridge |
//! | [`edge`] | [`EdgeSession`](edge::EdgeSession): one connection, seen from the node |
//! | [`stream`] | byte streams (logs, requests of pods to the API, ...) under credit |
//! | [`topic`] | topics and filters of MQTT |
//! | [`duration`] | durations as people type them |
//! | [`findings`] | how doctors print what they found |
//! | [`build`] | version, commit and Kubernetes level of this build |
//! | [`join_token`] | a join token with the node and bridges that it is for, in one word |
//! | [`channel`] | records inside a stream: exec, attach, port-forward |
//! | [`names`] | names that have to fit: of events, of log folders |
//! | [`node_labels`] | which labels a node may give itself |
//!
//! # Driving both sessions
//! Either side does the same four things: hand in each frame read from the socket, hand in the passing of
//! time, drain events, and write what [`poll_transmit`](edge::EdgeSession::poll_transmit) returns while the
//! socket takes it. Time is any monotonic clock as a `Duration`.
//! ```
//! use edge_protocol::{bridge::*, edge::*, message::*, state::NodeState};
//! use std::time::Duration;
//!
//! let now = Duration::ZERO;
//! // The bridge keeps one NodeState per node, and one BridgeSession per connection.
//! let mut state = NodeState::new("a-random-text");
//! let key = ObjectKey { kind: "Pod".into(), namespace: "default".into(), name: "web".into() };
//! let digest = ObjectDigest { key, uid: "u1".into(), digest: "d1".into() };
//! state.set(Object { digest, body: serde_json::json!({"spec": {}}) }).unwrap();
//! let settings = BridgeSettings::new("edge-1", "cluster-1", 1);
//! let mut bridge = BridgeSession::new(settings, &mut state, now);
//!
//! // The node reads what it holds from its store.
//! let mut edge = EdgeSession::new(EdgeFacts::new("edge-1", "boot-1"), now);
//!
//! let mut stored = Vec::new();
//! loop {
//!     let mut quiet = true;
//!     while let Some(frame) = edge.poll_transmit(now) {
//!         bridge.handle(&mut state, &frame, now).unwrap();
//!         quiet = false;
//!     }
//!     while let Some(event) = bridge.poll_event() {
//!         if let BridgeEvent::Connected { resumed: false, .. } = event {
//!             // Here: a complete list of the API entered in the state, then:
//!             state.listed(bridge.session());
//!         }
//!     }
//!     while let Some(frame) = bridge.poll_transmit(&state, now) {
//!         edge.handle(&frame, now).unwrap();
//!         quiet = false;
//!     }
//!     while let Some(event) = edge.poll_event() {
//!         if let EdgeEvent::Change(change) = event {
//!             // Here: one transaction with the change and its position, then:
//!             let seq = change.seq();
//!             stored.push((change.position(edge.stream()), change));
//!             edge.committed(seq);
//!         }
//!         quiet = false;
//!     }
//!     if quiet {
//!         break;
//!     }
//! }
//! assert!(matches!(&stored[0], (None, Change::Put { object, .. }) if object.digest.uid == "u1"));
//! assert!(matches!(&stored[1], (Some(_), Change::SyncComplete { absent, .. }) if absent.is_empty()));
//! assert_eq!(bridge.acked(), Some(state.seq()));
//! ```

mod body;
pub mod bridge;
pub mod build;
pub mod channel;
pub mod compress;
pub mod edge;
pub mod findings;
pub mod frame;
pub mod join_token;
mod liveness;
pub mod message;
pub mod names;
pub mod node_labels;
mod outgoing;
pub mod state;
pub mod stream;
pub mod topic;
pub mod version;
pub mod weight;
pub mod wire;

use std::time::Duration;

/// Default time between two pings of the edge.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// Why a connection must be dropped. Nothing is deleted anywhere because of it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SessionError {
    #[error(transparent)]
    Frame(#[from] frame::FrameError),
    #[error(transparent)]
    Packed(#[from] compress::UnpackError),
    /// The peer broke a rule of the protocol.
    #[error("protocol violation: {0}")]
    Violation(String),
    #[error("nothing heard from the peer for {0:?}")]
    Silent(Duration),
    /// Refused by the bridge (seen on both sides: flush `poll_transmit`, then close).
    #[error("refused ({reason:?}): {message}")]
    Refused { reason: version::RefuseReason, message: String },
}

impl SessionError {
    fn violation(what: impl Into<String>) -> Self {
        Self::Violation(what.into())
    }
}
