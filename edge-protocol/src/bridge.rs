//! One connection, seen from the bridge: frames and time in, frames and events out.
//!
//! Owns the hello's rules, fencing, the choice between resume and full sync, the window of changes.
//! What the node should hold is [`NodeState`]'s. Knows nothing of sockets, clocks or the Kubernetes API.

mod down;
mod names;
mod receive;
mod rules;
mod settings;

use crate::SessionError;
use crate::compress::UnpackError;
use crate::frame::{Decoded, Decoder, shorten};
use crate::liveness::Liveness;
use crate::message::{DeviceRefusal, RenewAnswer, StreamId, StreamRequest, ToCloud, ToEdge, TokenAnswer};
use crate::outgoing::{Outgoing, Piece, Whole};
use crate::state::NodeState;
use crate::stream::{StreamError, StreamFrame, Streams};
use crate::version::RefuseReason;
use crate::wire::{self, Content, Frame};
use down::Down;

pub use settings::{BridgeEvent, BridgeSettings};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Reports a node may have under way, and their bytes; its own window is smaller.
const MAX_REPORTS: usize = 256;
const MAX_REPORT_BYTES: usize = 4 << 20;

/// Token requests a node may have under way.
const MAX_TOKENS: usize = 64;

/// Objects in doubt that are asked about at once.
const MAX_UNLISTED: usize = 256;

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

    /// This report is in the API (or was there already).
    pub fn reported(&mut self, id: u64) {
        if self.settle(id) {
            self.acks.push(id);
        }
    }

    /// This report will never be accepted; the node drops it.
    pub fn refuse_report(&mut self, id: u64, reason: impl Into<String>) {
        if self.settle(id) {
            // The queue cannot be full of these: a node has at most MAX_REPORTS under way. Should it be, the
            // row stays in the node's outbox and comes again with the next connection.
            let _ = self.out.control(ToEdge::UpRefuse { id, reason: shorten(reason.into()) });
        }
    }

    /// Answers a [`BridgeEvent::TokenRequest`].
    pub fn token(&mut self, id: u64, answer: TokenAnswer) {
        if self.tokens.remove(&id) {
            // A full queue loses an answer: the node asks again with its next connection.
            let _ = self.out.control(ToEdge::Token { id, answer });
        }
    }

    /// Answers a [`BridgeEvent::Renew`].
    pub fn renewed(&mut self, answer: RenewAnswer) {
        if std::mem::take(&mut self.renewing) {
            // A full queue loses the answer: the node asks again with its next connection.
            let _ = self.out.control(ToEdge::Renewed { answer });
        }
    }

    /// Answers a [`BridgeEvent::Devices`]: all of it is in the API, except `refused`.
    pub fn devices_written(&mut self, batch: u64, refused: Vec<DeviceRefusal>) {
        if self.devices.take_if(|under_way| *under_way == batch).is_some() {
            let shorter = |refusal: DeviceRefusal| DeviceRefusal { reason: shorten(refusal.reason), ..refusal };
            let refused = refused.into_iter().map(shorter).collect();
            // A full queue loses the answer: the node tells all again with its next connection.
            let _ = self.out.control(ToEdge::DevicesAck { batch, refused });
        }
    }

    fn settle(&mut self, id: u64) -> bool {
        let size = self.reports.remove(&id);
        let Size { bytes, weight } = size.unwrap_or_default();
        self.report_bytes -= bytes;
        self.report_weight -= weight;
        if self.reports.is_empty() {
            self.reports = HashMap::new();
        }
        size.is_some()
    }

    /// Asks the node to serve a stream.
    ///
    /// # Errors
    /// Too many streams are open.
    pub fn open_stream(&mut self, request: StreamRequest) -> Result<StreamId, StreamError> {
        self.streams.open(request)
    }

    /// Streams that end with this connection: notify their users when it breaks.
    pub fn open_streams(&self) -> Vec<StreamId> {
        self.streams.ids()
    }

    /// Bytes that `stream_send` takes now; 0 for a closed stream.
    pub fn stream_room(&self, stream: StreamId) -> usize {
        self.streams.room(stream)
    }

    /// # Errors
    /// The stream is closed, or the data is more than [`stream_room`](Self::stream_room).
    pub fn stream_send(&mut self, stream: StreamId, data: &[u8]) -> Result<(), StreamError> {
        self.streams.send(stream, data)
    }

    /// Received bytes are dealt with; the peer may send as many again.
    pub fn stream_consumed(&mut self, stream: StreamId, bytes: usize) {
        self.streams.consumed(stream, bytes);
    }

    /// Ends a stream. Data sent before is still delivered, unless there is an error.
    pub fn stream_end(&mut self, stream: StreamId, error: Option<String>) {
        self.streams.end(stream, error);
    }

    /// Sends the node away. Flush `poll_transmit`, then close.
    pub fn refuse(&mut self, reason: RefuseReason, message: impl Into<String>) -> SessionError {
        let message = shorten(message.into());
        self.phase = Phase::Refused;
        // The socket is closed after this frame anyway: whether it fits decides only how clear the node's log is.
        let _ = self.out.control(ToEdge::Refuse { reason, message: message.clone() });
        SessionError::Refused { reason, message }
    }

    /// Next frame to write, most urgent first: control, acknowledgements, sync and changes, stream data. For carriers
    /// of texts alone.
    pub fn poll_transmit(&mut self, state: &NodeState, _now: Duration) -> Option<String> {
        match self.next_piece(state) {
            Some(piece) => Some(piece.into_text()),
            None => Some(crate::frame::encode(&ToEdge::from(self.next_stream(state)?))),
        }
    }

    /// Next frame to write, in the form that was agreed on.
    pub fn poll_frame(&mut self, state: &NodeState, _now: Duration) -> Option<Frame> {
        let content = match self.next_piece(state) {
            Some(Piece::Text(text)) => Content::Text(text),
            Some(Piece::Shared(slice)) => return Some(Frame::shared(slice, self.compresses)),
            None => self.next_stream(state)?.content::<ToEdge>(self.raw_streams),
        };
        // The welcome announces that frames may be packed: before it this is not agreed.
        let greets = matches!(&content, Content::Text(text) if text.starts_with("{\"welcome\":"));
        Some(Frame::new(content, self.compresses && !greets))
    }

    fn may_speak(&self, state: &NodeState) -> bool {
        self.phase == Phase::Welcome && state.session() == self.settings.session
    }

    fn next_stream(&mut self, state: &NodeState) -> Option<StreamFrame> {
        if self.may_speak(state) { self.streams.poll() } else { None }
    }

    fn next_piece(&mut self, state: &NodeState) -> Option<Piece> {
        if let Some(frame) = self.out.next() {
            return Some(frame);
        }
        if !self.may_speak(state) {
            return None;
        }
        if !self.acks.is_empty() {
            let ids = std::mem::take(&mut self.acks);
            return Some(Piece::Text(crate::frame::encode(&ToEdge::UpAck { ids })));
        }
        if let Some(text) = self.rules.next_text() {
            return self.out.begin(Whole::Text(text));
        }
        let message = self.down.next(state)?;
        self.out.begin(message)
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
