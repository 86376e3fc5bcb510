//! One connection, seen from the node: frames and time in, frames and events out.
//!
//! Owns the order of events, the bracket of a full sync, the window of reports. Keeps nothing that must
//! survive: the caller's store does. Knows nothing of sockets, clocks, stores or pods.

mod held;
mod reports;

use crate::frame::{Decoded, Decoder, Message, encode};
use crate::liveness::Liveness;
use crate::message::{ObjectDigest, ObjectKey, ObjectRef, Position, Report, StreamId, ToCloud, ToEdge};
use crate::outgoing::Outgoing;
use crate::stream::{StreamError, StreamEvent, StreamFrame, Streams};
use crate::version::{self, Hello, ProtocolRange, Welcome};
use crate::{HEARTBEAT, SessionError, shorten};
use held::{Bracket, Doubts, Held};
use reports::{Pushed, Reports};
use std::collections::VecDeque;
use std::time::Duration;

pub use crate::message::Object;
pub use reports::WindowFull;

/// Changes handed out and not yet committed; a bridge that sends more ignores the window.
const MAX_UNCOMMITTED: usize = 16_384;

/// Keys or digests in one frame: about 40 KB.
const LIST_CHUNK: usize = 256;

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
    /// What was stored with the last committed change, see [`Change::position`].
    pub position: Option<Position>,
    /// Every object in the store, so that a full sync moves only what differs.
    pub held: Vec<ObjectDigest>,
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
        }
    }
}

/// One change to the store. Commit it together with its [`position`](Self::position), then call
/// [`EdgeSession::committed`]; or several at once, in order, with the position of the last.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Create or replace by key. `sync`: part of a full sync that is not complete yet, or that left doubts
    /// (the list was empty, and the bridge has not yet said of every object held whether it is gone).
    Put { object: Object, seq: u64, sync: bool },
    /// Remove the object of this key if it has this uid; else nothing.
    Delete { key: ObjectKey, uid: String, seq: u64, sync: bool },
    /// The full list is complete and every body it needed came before: what is `absent` (key and uid) is gone.
    /// Does not come for an empty list while objects are held: that deletes nothing.
    SyncComplete { seq: u64, absent: Vec<ObjectDigest> },
}

impl Change {
    pub fn seq(&self) -> u64 {
        match self {
            Self::Put { seq, .. } | Self::Delete { seq, .. } | Self::SyncComplete { seq, .. } => *seq,
        }
    }

    /// What to store as the node's position in the same transaction. None means: store that there is no
    /// position (a half-applied full sync fits no stream; the next connection starts a full sync again).
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
    Stream(StreamEvent),
}

/// One connection of a node. Call [`handle`](Self::handle) per frame, [`on_timeout`](Self::on_timeout) when
/// [`next_timeout`](Self::next_timeout) has passed; after each, drain [`poll_event`](Self::poll_event) and
/// write what [`poll_transmit`](Self::poll_transmit) returns. After an error flush `poll_transmit` once, then
/// close the socket and drop the session.
#[derive(Debug)]
pub struct EdgeSession {
    facts: Known,
    welcome: Option<Welcome>,
    held: Held,
    bracket: Option<Bracket>,
    /// Highest number of the live stream seen; every later one must be higher.
    newest: u64,
    /// Held, but not in the last full list, which was empty: kept until the bridge speaks of each.
    doubts: Doubts,
    /// Numbers of changes handed out, oldest first, until the caller commits them.
    uncommitted: VecDeque<u64>,
    ack: Option<u64>,
    reports: Reports,
    streams: Streams,
    liveness: Liveness,
    decoder: Decoder,
    out: Outgoing<ToCloud>,
    events: VecDeque<EdgeEvent>,
}

#[derive(Debug)]
struct Known {
    cluster: Option<String>,
    position: Option<Position>,
}

impl EdgeSession {
    /// A session over a connection just made; its first frame out is the hello.
    pub fn new(facts: EdgeFacts, now: Duration) -> Self {
        let mut out = Outgoing::new();
        let hello = ToCloud::Hello(Hello {
            protocol: version::SUPPORTED,
            features: version::FEATURES.iter().map(|f| (*f).to_owned()).collect(),
            node: facts.node,
            cluster: facts.cluster.clone(),
            boot_id: facts.boot_id,
            agent: facts.agent,
            position: facts.position.clone(),
        });
        let queued = out.control(hello);
        debug_assert!(queued, "the queue is empty at the start");
        Self {
            facts: Known { cluster: facts.cluster, position: facts.position },
            welcome: None,
            held: Held::new(facts.held),
            bracket: None,
            newest: 0,
            doubts: Doubts::default(),
            uncommitted: VecDeque::new(),
            ack: None,
            reports: Reports::default(),
            streams: Streams::default(),
            liveness: Liveness::new(HEARTBEAT, now),
            decoder: Decoder::default(),
            out,
            events: VecDeque::new(),
        }
    }

    /// Stream of this connection, to be stored with positions; empty before the welcome.
    pub fn stream(&self) -> &str {
        self.welcome.as_ref().map_or("", |w| &w.stream)
    }

    pub fn is_welcome(&self) -> bool {
        self.welcome.is_some()
    }

    /// When anything was last heard from the bridge.
    pub fn last_heard(&self) -> Duration {
        self.liveness.last_heard()
    }

    /// Bytes arrived that are not a whole frame yet: on a slow line the peer is alive all the same.
    pub fn heard(&mut self, now: Duration) {
        self.liveness.heard(now);
    }

    pub fn poll_event(&mut self) -> Option<EdgeEvent> {
        self.events.pop_front()
    }

    /// Latest time to call [`on_timeout`](Self::on_timeout).
    pub fn next_timeout(&self) -> Duration {
        self.liveness.deadline().min(self.liveness.next_ping())
    }

    /// # Errors
    /// [`SessionError::Silent`] if the bridge must be taken for dead.
    pub fn on_timeout(&mut self, now: Duration) -> Result<(), SessionError> {
        if let Some(silence) = self.liveness.dead(now) {
            return Err(SessionError::Silent(silence));
        }
        if self.liveness.take_ping(now) && self.welcome.is_some() {
            self.control(ToCloud::Ping {})?;
        }
        Ok(())
    }

    /// This change, and with it every one handed out before, is in the store for good.
    pub fn committed(&mut self, seq: u64) {
        if let Some(at) = self.uncommitted.iter().position(|s| *s == seq) {
            self.uncommitted.drain(..=at);
            self.ack = Some(seq);
        }
    }

    /// This object cannot be applied, and is not held. Commit the position past it all the same.
    pub fn nack(&mut self, key: &ObjectKey, uid: &str, reason: impl Into<String>) {
        self.held.forget(key, uid);
        let object = ObjectRef { key: key.clone(), uid: uid.to_owned() };
        // A full queue loses an explanation, not a promise: the bridge never waits for a nack.
        let _ = self.out.control(ToCloud::Nack { object, reason: shorten(reason.into()) });
    }

    /// Sends one outbox row. After a reconnect send again what was not acknowledged.
    ///
    /// # Errors
    /// The window is full: offer it again after an [`UpAcked`](EdgeEvent::UpAcked).
    pub fn up(&mut self, id: u64, report: Report) -> Result<(), WindowFull> {
        if let Pushed::TooLarge(size) = self.reports.push(id, report)? {
            // Sent, it would break this connection, and again every one after it.
            let reason = format!("report of {size} bytes is over the link's limit of {}", ToCloud::MAX);
            self.events.push_back(EdgeEvent::UpRefused(id, reason));
        }
        Ok(())
    }

    /// How many more rows [`up`](Self::up) takes now.
    pub fn up_room(&self) -> usize {
        self.reports.room()
    }

    /// Streams that end with this connection: tell whoever serves them when it breaks.
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

    /// Ends a stream; what was sent before still goes out unless there is an error.
    pub fn stream_end(&mut self, stream: StreamId, error: Option<String>) {
        self.streams.end(stream, error);
    }

    /// Next frame to write, most urgent first: control, acknowledgements, sync, reports, stream data.
    pub fn poll_transmit(&mut self, _now: Duration) -> Option<String> {
        if let Some(frame) = self.out.next() {
            return Some(frame);
        }
        self.welcome.as_ref()?;
        let text = self.next_text()?;
        self.out.begin(text)
    }

    fn next_text(&mut self) -> Option<String> {
        if let Some(message) = self.next_sync() {
            return Some(encode(&message));
        }
        if let Some(text) = self.reports.next() {
            return Some(text);
        }
        Some(encode(&match self.streams.poll()? {
            StreamFrame::Data { stream, data } => ToCloud::StreamData { stream, data },
            StreamFrame::Credit { stream, bytes } => ToCloud::StreamCredit { stream, bytes },
            StreamFrame::End { stream, error } => ToCloud::StreamEnd { stream, error },
            StreamFrame::Open { .. } => unreachable!("only the bridge opens streams"),
        }))
    }

    fn next_sync(&mut self) -> Option<ToCloud> {
        if let Some(seq) = self.ack.take() {
            return Some(ToCloud::Ack { seq });
        }
        if let Some(message) = self.bracket.as_mut().and_then(Bracket::next_message) {
            return Some(message);
        }
        self.doubts.next_question().map(|objects| ToCloud::Unlisted { objects })
    }

    /// Takes one text frame.
    ///
    /// # Errors
    /// Any error ends the connection, and deletes nothing.
    pub fn handle(&mut self, frame: &str, now: Duration) -> Result<(), SessionError> {
        self.liveness.heard(now);
        match self.decoder.decode::<ToEdge>(frame)? {
            Decoded::Message(message) => self.dispatch(message),
            Decoded::Unknown(name) => self.control(ToCloud::Unsupported { message: name }),
            Decoded::Incomplete => Ok(()),
        }
    }

    fn dispatch(&mut self, message: ToEdge) -> Result<(), SessionError> {
        match message {
            ToEdge::Welcome(welcome) => return self.on_welcome(welcome),
            ToEdge::Refuse { reason, message } => return Err(SessionError::Refused { reason, message }),
            _ if self.welcome.is_none() => return Err(SessionError::violation("a message before the welcome")),
            _ => {}
        }
        let stream_event = match message {
            ToEdge::SyncBegin { seq, count } => return self.on_sync_begin(seq, count),
            ToEdge::SyncDigests { objects } => return bracket(&mut self.bracket)?.digests(&objects, &mut self.held),
            ToEdge::SyncEnd { seq, count } => return bracket(&mut self.bracket)?.end(seq, count),
            ToEdge::SyncDone { seq } => return self.on_sync_done(seq),
            ToEdge::Put { seq, sync, object } => return self.on_put(seq, sync, object),
            ToEdge::Delete { seq, object } => return self.on_delete(seq, object),
            ToEdge::UpAck { ids } => {
                for id in ids {
                    // An id that is not in flight was acknowledged twice: nothing to tell.
                    if self.reports.settle(id) {
                        self.events.push_back(EdgeEvent::UpAcked(id));
                    }
                }
                None
            }
            ToEdge::UpRefuse { id, reason } => {
                if self.reports.settle(id) {
                    self.events.push_back(EdgeEvent::UpRefused(id, reason));
                }
                None
            }
            ToEdge::StreamOpen { stream, request, credit } => self.streams.opened(stream, request, credit),
            ToEdge::StreamData { stream, data } => self.streams.data(stream, data),
            ToEdge::StreamCredit { stream, bytes } => self.streams.credit(stream, bytes),
            ToEdge::StreamEnd { stream, error } => self.streams.ended(stream, error),
            ToEdge::Pong {} | ToEdge::Unsupported { .. } => None,
            ToEdge::Welcome(_) | ToEdge::Refuse { .. } | ToEdge::Part { .. } => None, // dealt with before
        };
        self.events.extend(stream_event.map(EdgeEvent::Stream));
        if self.streams.flooded() {
            return Err(SessionError::violation("too many stream frames that need an answer"));
        }
        Ok(())
    }

    fn on_welcome(&mut self, welcome: Welcome) -> Result<(), SessionError> {
        if self.welcome.is_some() {
            return Err(SessionError::violation("a second welcome"));
        }
        let ProtocolRange { min, max } = version::SUPPORTED;
        if !(min..=max).contains(&welcome.protocol) {
            return Err(SessionError::violation(format!("welcome to protocol {} not offered", welcome.protocol)));
        }
        if welcome.cluster.is_empty() || welcome.stream.is_empty() {
            return Err(SessionError::violation("a welcome without cluster or stream"));
        }
        if self.facts.cluster.as_ref().is_some_and(|known| *known != welcome.cluster) {
            let message = format!("this bridge serves cluster {}", shorten(welcome.cluster));
            return Err(SessionError::Refused { reason: version::RefuseReason::WrongCluster, message });
        }
        if welcome.resume {
            let offered = self.facts.position.take().filter(|p| p.stream == welcome.stream);
            let Some(position) = offered else {
                return Err(SessionError::violation("resume of a stream not offered"));
            };
            self.newest = position.seq;
        }
        // Between a second and an hour: a lie must neither flood the line nor hide a dead peer for ever.
        let heartbeat = Duration::from_millis(welcome.heartbeat_ms.clamp(1_000, 3_600_000));
        self.liveness.set_heartbeat(heartbeat);
        self.events.push_back(EdgeEvent::Welcome(welcome.clone()));
        self.welcome = Some(welcome);
        Ok(())
    }

    fn on_sync_begin(&mut self, seq: u64, count: u64) -> Result<(), SessionError> {
        if self.bracket.is_some() {
            return Err(SessionError::violation("a full sync inside a full sync"));
        }
        if seq < self.newest {
            return Err(SessionError::violation(format!("full sync at {seq} after change {}", self.newest)));
        }
        self.held.begin();
        self.doubts = Doubts::default();
        self.bracket = Some(Bracket::new(seq, count)?);
        Ok(())
    }

    fn on_put(&mut self, seq: u64, sync: bool, object: Object) -> Result<(), SessionError> {
        if sync {
            bracket(&mut self.bracket)?.body(seq, &object.digest)?;
        } else {
            self.advance(seq)?;
            self.doubts.settle(|doubt| doubt.key == object.digest.key);
        }
        let sync = sync || !self.doubts.is_empty();
        let ObjectDigest { key, .. } = &object.digest;
        if let Some(uid) = self.held.put(&object.digest) {
            self.change(Change::Delete { key: key.clone(), uid, seq, sync })?;
        }
        self.change(Change::Put { object, seq, sync })
    }

    fn on_delete(&mut self, seq: u64, object: ObjectRef) -> Result<(), SessionError> {
        self.advance(seq)?;
        self.doubts.settle(|doubt| doubt.key == object.key && doubt.uid == object.uid);
        let sync = !self.doubts.is_empty();
        let ObjectRef { key, uid } = object;
        self.held.forget(&key, &uid);
        self.change(Change::Delete { key, uid, seq, sync })
    }

    fn on_sync_done(&mut self, seq: u64) -> Result<(), SessionError> {
        let bracket = self.bracket.take().ok_or_else(|| SessionError::violation("end of no full sync"))?;
        let authoritative = bracket.done(seq)?;
        self.newest = seq;
        let absent = self.held.unlisted();
        if authoritative || absent.is_empty() {
            absent.iter().for_each(|o| self.held.forget(&o.key, &o.uid));
            return self.change(Change::SyncComplete { seq, absent });
        }
        // An empty list deletes nothing: more likely than a node that lost all its pods at once is a mistake
        // above. The bridge looks each one up and sends tombstones for what is really gone. Until it has, no
        // position is stored, so that a cut connection begins again here.
        self.doubts = Doubts::new(absent);
        Ok(())
    }

    /// Live numbers only rise; gaps are normal, since only the newest value of a key travels.
    fn advance(&mut self, seq: u64) -> Result<(), SessionError> {
        if self.bracket.is_some() {
            return Err(SessionError::violation(format!("live change {seq} inside a full sync")));
        }
        if seq <= self.newest {
            return Err(SessionError::violation(format!("change {seq} after change {}", self.newest)));
        }
        self.newest = seq;
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), SessionError> {
        if self.uncommitted.len() >= MAX_UNCOMMITTED {
            return Err(SessionError::violation("more changes in flight than any window allows"));
        }
        // A Delete that goes with a Put shares its number; one entry stands for both.
        if self.uncommitted.back() != Some(&change.seq()) {
            self.uncommitted.push_back(change.seq());
        }
        self.events.push_back(EdgeEvent::Change(change));
        Ok(())
    }

    fn control(&mut self, message: ToCloud) -> Result<(), SessionError> {
        if self.out.control(message) {
            return Ok(());
        }
        Err(SessionError::violation("the peer asks for more answers than it reads"))
    }
}

fn bracket(bracket: &mut Option<Bracket>) -> Result<&mut Bracket, SessionError> {
    bracket.as_mut().ok_or_else(|| SessionError::violation("part of a full sync without its begin"))
}
