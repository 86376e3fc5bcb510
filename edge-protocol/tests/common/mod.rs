//! A bridge and a node joined by nothing but function calls.
#![allow(dead_code)] // each test file uses its own part

use edge_protocol::SessionError;
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::frame::{Message, encode};
use edge_protocol::message::{Object, ObjectDigest, ObjectKey, ToEdge};
use edge_protocol::state::NodeState;
use edge_protocol::version::Welcome;
use std::time::Duration;

pub(crate) const NOW: Duration = Duration::ZERO;

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey { kind: "Pod".into(), namespace: "ns".into(), name: name.into() }
}

pub(crate) fn digest(name: &str, version: u64) -> ObjectDigest {
    ObjectDigest { key: key(name), uid: format!("uid-{name}"), digest: version.to_string() }
}

pub(crate) fn object(name: &str, version: u64) -> Object {
    Object { digest: digest(name, version), body: serde_json::json!({ "version": version }) }
}

pub(crate) fn welcome(resume: bool) -> ToEdge {
    ToEdge::Welcome(Welcome {
        protocol: 1,
        features: vec![],
        cluster: "c".into(),
        session: 1,
        stream: "s".into(),
        resume,
        heartbeat_ms: 15_000,
        identity: None,
        repeat_within_ms: None,
    })
}

/// Feeds messages as frames; stops at the first error.
pub(crate) fn feed(edge: &mut EdgeSession, messages: &[ToEdge]) -> Result<(), SessionError> {
    messages.iter().try_for_each(|m| edge.handle(&encode(m), NOW))
}

pub(crate) fn changes(edge: &mut EdgeSession) -> Vec<Change> {
    let events = std::iter::from_fn(|| edge.poll_event());
    events.filter_map(|e| if let EdgeEvent::Change(c) = e { Some(c) } else { None }).collect()
}

/// All frames that wait, as messages.
pub(crate) fn sent<T: Message>(poll: impl FnMut() -> Option<String>) -> Vec<T> {
    std::iter::from_fn(poll).map(|f| serde_json::from_str(&f).expect("a message of this direction")).collect()
}

pub(crate) struct Pair {
    pub(crate) state: NodeState,
    pub(crate) bridge: BridgeSession,
    pub(crate) edge: EdgeSession,
    pub(crate) edge_events: Vec<EdgeEvent>,
    pub(crate) bridge_events: Vec<BridgeEvent>,
    /// The API is read at once when the node has said hello.
    pub(crate) lists: bool,
}

impl Pair {
    pub(crate) fn new(state: NodeState, facts: EdgeFacts) -> Self {
        Self::with(state, facts, BridgeSettings::new("n", "c", 1))
    }

    pub(crate) fn with(mut state: NodeState, facts: EdgeFacts, settings: BridgeSettings) -> Self {
        let bridge = BridgeSession::new(settings, &mut state, NOW);
        let edge = EdgeSession::new(facts, NOW);
        Self { state, bridge, edge, edge_events: Vec::new(), bridge_events: Vec::new(), lists: true }
    }

    /// Moves frames until both are silent; commits everything at once. Returns the number of frames.
    pub(crate) fn run(&mut self, now: Duration) -> Result<usize, SessionError> {
        let mut frames = 0;
        loop {
            let before = frames;
            while let Some(frame) = self.edge.poll_transmit(now) {
                frames += 1;
                self.bridge.handle(&mut self.state, &frame, now)?;
            }
            while let Some(event) = self.bridge.poll_event() {
                if matches!(event, BridgeEvent::Connected { resumed: false, .. }) && self.lists {
                    self.state.listed(self.bridge.session());
                }
                self.bridge_events.push(event);
            }
            while let Some(frame) = self.bridge.poll_transmit(&self.state, now) {
                frames += 1;
                self.edge.handle(&frame, now)?;
            }
            while let Some(event) = self.edge.poll_event() {
                if let EdgeEvent::Change(change) = &event {
                    self.edge.committed(change.seq());
                }
                self.edge_events.push(event);
            }
            if frames == before {
                return Ok(frames);
            }
        }
    }

    pub(crate) fn changes(&self) -> Vec<&Change> {
        self.edge_events.iter().filter_map(|e| if let EdgeEvent::Change(c) = e { Some(c) } else { None }).collect()
    }
}

pub(crate) fn listed(stream: &str) -> NodeState {
    let mut state = NodeState::new(stream);
    state.listed(0);
    state
}
