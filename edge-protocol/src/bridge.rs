//! One connection, seen from the bridge: frames and time in, frames and events out.
//!
//! Owns the hello's rules, fencing, the choice between resume and full sync, the window of changes.
//! What the node should hold is [`NodeState`]'s. Knows nothing of sockets, clocks or the Kubernetes API.

mod answers;
mod down;
mod names;
mod receive;
mod rules;
mod settings;
mod streams;
mod transmit;

use crate::SessionError;
use crate::compress::UnpackError;
use crate::frame::{Decoded, Decoder, shorten};
use crate::liveness::Liveness;
use crate::message::{ToCloud, ToEdge};
use crate::outgoing::Outgoing;
use crate::state::NodeState;
use crate::stream::Streams;
use crate::version::RefuseReason;
use crate::wire::{self, Content};
use down::Down;

pub use settings::{BridgeEvent, BridgeSettings};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Bytes of the reports that a node may have under way; its own window is smaller.
const MAX_REPORT_BYTES: usize = 4 << 20;

/// One connection of a node, at the bridge. Call [`handle`](Self::handle) per frame, and
/// [`on_timeout`](Self::on_timeout) when [`next_timeout`](Self::next_timeout) has passed. After each, and after each
/// change to the [`NodeState`], drain [`poll_event`](Self::poll_event) and write the frames of
/// [`poll_transmit`](Self::poll_transmit), one at a time as the socket accepts them. Unwritten changes are not queued,
/// so they coalesce. After an error flush `poll_transmit` once, then close the socket and drop the session.
#[derive(Debug)]
pub struct BridgeSession {
    settings: BridgeSettings,
    phase: Phase,
    down: Down,
    /// Under way, with their sizes.
    reports: HashMap<u64, Size>,
    report_bytes: usize,
    report_weight: usize,
    acks: Vec<u64>,
    tokens: HashSet<u64>,
    renewing: bool,
    /// Number of the batch of device reports that is not acknowledged.
    devices: Option<u64>,
    takes_devices: bool,
    takes_api: bool,
    rules: rules::Rules,
    streams: Streams,
    liveness: Liveness,
    compresses: bool,
    raw_streams: bool,
    rtt_ms: Option<u32>,
    decoder: Decoder,
    out: Outgoing<ToEdge>,
    events: VecDeque<BridgeEvent>,
}

/// Size of a report.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: usize,
    weight: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AwaitHello,
    Welcome,
    Refused,
}

impl BridgeSession {
    /// A session over a connection just accepted; fences every older one of this node.
    pub fn new(settings: BridgeSettings, state: &mut NodeState, now: Duration) -> Self {
        state.fence(settings.session);
        Self {
            liveness: Liveness::new(settings.heartbeat, now),
            down: Down::new(settings.window, settings.large_by_turns),
            settings,
            phase: Phase::AwaitHello,
            compresses: false,
            raw_streams: false,
            rtt_ms: None,
            reports: HashMap::new(),
            report_bytes: 0,
            report_weight: 0,
            acks: Vec::new(),
            tokens: HashSet::new(),
            renewing: false,
            devices: None,
            takes_devices: false,
            takes_api: false,
            rules: rules::Rules::default(),
            streams: Streams::default(),
            decoder: Decoder::default(),
            out: Outgoing::new(),
            events: VecDeque::new(),
        }
    }

    pub fn session(&self) -> u64 {
        self.settings.session
    }

    pub fn is_welcome(&self) -> bool {
        self.phase == Phase::Welcome
    }

    /// Time of the last input from the node: proof of life for its Lease.
    pub fn last_heard(&self) -> Duration {
        self.liveness.last_heard()
    }

    /// Incomplete frames arrived: on a slow line the peer counts as alive.
    pub fn heard(&mut self, now: Duration) {
        self.liveness.heard(now);
    }

    /// Last change the node has committed on this connection.
    pub fn acked(&self) -> Option<u64> {
        self.down.acked()
    }

    /// Whether the node takes and may send compressed frames.
    pub fn compresses(&self) -> bool {
        self.compresses
    }

    /// Round trip as the node last measured it, in milliseconds.
    pub fn rtt_ms(&self) -> Option<u32> {
        self.rtt_ms
    }

    /// Bytes of reports that are not in the API yet.
    pub fn report_bytes(&self) -> usize {
        self.report_bytes
    }

    /// Memory that these reports take, in bytes.
    pub fn report_weight(&self) -> usize {
        self.report_weight
    }

    /// Limits what the next messages may take in memory, in bytes: a heavier one ends the connection.
    pub fn set_room(&mut self, room: usize) {
        self.decoder.set_room(room);
    }

    /// Whether the next change is a large object that has to be [allowed](Self::allow_large).
    pub fn wants_large(&self) -> bool {
        self.down.wants_large()
    }

    /// Lets one large object through.
    pub fn allow_large(&mut self) {
        self.down.allow_large();
    }

    /// Whether a large object may be sent now.
    pub fn may_send_large(&self) -> bool {
        self.down.may_send_large()
    }

    /// Whether a large object may be sent, or has been started and the node has not committed it yet.
    pub fn sends_large(&self) -> bool {
        self.down.may_send_large() || self.out.slicing() || self.down.large_in_flight()
    }

    /// Bytes of changes sent and not yet acknowledged.
    pub fn in_flight(&self) -> usize {
        self.down.in_flight()
    }

    pub fn poll_event(&mut self) -> Option<BridgeEvent> {
        let event = self.events.pop_front();
        // Thousands of sessions are idle: none keeps the capacity of an earlier burst.
        if event.is_none() && self.events.capacity() > 0 {
            self.events = VecDeque::new();
        }
        event
    }

    /// Latest time to call [`on_timeout`](Self::on_timeout).
    pub fn next_timeout(&self) -> Duration {
        self.liveness.deadline()
    }

    /// # Errors
    /// [`SessionError::Silent`] if the node must be taken for dead.
    pub fn on_timeout(&mut self, now: Duration) -> Result<(), SessionError> {
        self.liveness.dead(now).map_or(Ok(()), |silence| Err(SessionError::Silent(silence)))
    }

    /// Sends the node away. Flush `poll_transmit`, then close.
    pub fn refuse(&mut self, reason: RefuseReason, message: impl Into<String>) -> SessionError {
        let message = shorten(message.into());
        self.phase = Phase::Refused;
        // The socket is closed after this frame anyway: whether it fits decides only how clear the node's log is.
        let _ = self.out.control(ToEdge::Refuse { reason, message: message.clone() });
        SessionError::Refused { reason, message }
    }

    /// Takes one binary frame.
    ///
    /// # Errors
    /// Any error ends the connection.
    pub fn handle_binary(&mut self, state: &mut NodeState, frame: &[u8], now: Duration) -> Result<(), SessionError> {
        if !self.compresses {
            return Err(UnpackError::NotAgreed.into());
        }
        match wire::read(frame, self.raw_streams)? {
            Content::Text(text) => self.handle(state, &text, now),
            Content::Data { stream, data } => {
                self.hear(state, now)?;
                self.dispatch(state, ToCloud::StreamData { stream, data })
            }
        }
    }

    fn hear(&mut self, state: &NodeState, now: Duration) -> Result<(), SessionError> {
        if state.session() != self.settings.session {
            return Err(self.refuse(RefuseReason::Superseded, "a newer connection of this node has taken over"));
        }
        self.liveness.heard(now);
        Ok(())
    }

    /// Takes one text frame.
    ///
    /// # Errors
    /// Any error ends the connection.
    pub fn handle(&mut self, state: &mut NodeState, frame: &str, now: Duration) -> Result<(), SessionError> {
        self.hear(state, now)?;
        match self.decoder.decode::<ToCloud>(frame)? {
            Decoded::Message(message) => self.dispatch(state, message),
            Decoded::Unknown(name) => self.control(ToEdge::Unsupported { message: name }),
            Decoded::Incomplete => Ok(()),
        }
    }
}
