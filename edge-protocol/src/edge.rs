//! One connection, seen from the node: frames and time in, frames and events out.
//!
//! Owns the order of events, the bracket of a full sync, the window of reports. Keeps nothing that must
//! survive: the caller's store does. Knows nothing of sockets, clocks, stores or pods.

mod change;
mod held;
mod receive;
mod reports;
mod requests;
mod streams;
mod transmit;

use crate::compress::UnpackError;
use crate::frame::{Decoded, Decoder, shorten};
use crate::liveness::Liveness;
use crate::message::{ObjectKey, ObjectRef, Position, Report, ToCloud, ToEdge};
use crate::outgoing::Outgoing;
use crate::stream::Streams;
use crate::version::{self, Hello, Welcome};
use crate::wire::{self, Content};
use crate::{HEARTBEAT, SessionError};
use held::{Bracket, Doubts, Held};
use reports::{Pushed, Reports};
use std::collections::VecDeque;
use std::time::Duration;

pub use change::{Change, EdgeEvent, EdgeFacts};
pub use reports::WindowFull;

/// Changes handed out and not yet committed; a bridge that sends more ignores the window.
const MAX_UNCOMMITTED: usize = 16_384;

/// One connection of a node. Call [`handle`](Self::handle) per frame, and [`on_timeout`](Self::on_timeout) when
/// [`next_timeout`](Self::next_timeout) has passed. After each, drain [`poll_event`](Self::poll_event) and write the
/// frames of [`poll_transmit`](Self::poll_transmit). After an error flush `poll_transmit` once, then close the socket
/// and drop the session.
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
    /// Number and text of the batch that waits to be sent.
    devices: Option<(u64, String)>,
    /// Number of the batch that is not acknowledged.
    devices_under_way: Option<u64>,
    /// Texts of messages and answers of rules that wait to be sent.
    rules: VecDeque<String>,
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
            features: version::features(facts.compress, facts.wants).map(str::to_owned).collect(),
            node: facts.node,
            cluster: facts.cluster.clone(),
            boot_id: facts.boot_id,
            agent: facts.agent,
            position: facts.position.clone(),
            interests: facts.interests,
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
            devices: None,
            devices_under_way: None,
            rules: VecDeque::new(),
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

    /// Time of the last input from the bridge.
    pub fn last_heard(&self) -> Duration {
        self.liveness.last_heard()
    }

    /// Whether the bridge takes and may send compressed frames.
    pub fn compresses(&self) -> bool {
        self.agreed(version::COMPRESS)
    }

    fn agreed(&self, feature: &str) -> bool {
        self.welcome.as_ref().is_some_and(|w| w.features.iter().any(|f| f == feature))
    }

    /// Time from the last ping that was answered to its answer.
    pub fn rtt(&self) -> Option<Duration> {
        self.liveness.rtt()
    }

    /// Fencing number of this connection; none before the welcome.
    pub fn session(&self) -> Option<u64> {
        self.welcome.as_ref().map(|w| w.session)
    }

    /// Incomplete frames arrived: on a slow line the peer counts as alive.
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
            let rtt_ms = self.liveness.rtt_news();
            self.control(ToCloud::Ping { rtt_ms })?;
        }
        Ok(())
    }

    /// The way to the bridge has changed, and perhaps this connection did not survive it: asks for a sign of life
    /// and takes the bridge for dead without one within `patience`.
    ///
    /// # Errors
    /// More waits to be written than the bridge takes.
    pub fn doubt(&mut self, now: Duration, patience: Duration) -> Result<(), SessionError> {
        self.liveness.doubt(now, patience);
        if self.welcome.is_some() { self.control(ToCloud::Ping { rtt_ms: None }) } else { Ok(()) }
    }

    /// This change, and with it every one handed out before, is durably in the store.
    pub fn committed(&mut self, seq: u64) {
        if let Some(at) = self.uncommitted.iter().position(|s| *s == seq) {
            self.uncommitted.drain(..=at);
            self.ack = Some(seq);
        }
    }

    /// Refuses a value that cannot be applied: the caller keeps the earlier value of the key. Commit the position past
    /// it anyway.
    pub fn nack(&mut self, key: &ObjectKey, uid: &str, reason: impl Into<String>) {
        self.held.refused(key, uid);
        let object = ObjectRef { key: key.clone(), uid: uid.to_owned() };
        // A full queue loses an explanation, not a promise: the bridge never waits for a nack.
        let _ = self.out.control(ToCloud::Nack { object, reason: shorten(reason.into()) });
    }

    /// Sends one outbox row. After a reconnect send again what was not acknowledged.
    ///
    /// # Errors
    /// The window is full: offer it again after an [`UpAcked`](EdgeEvent::UpAcked).
    pub fn up(&mut self, id: u64, report: Report) -> Result<(), WindowFull> {
        if let Pushed::TooLarge(reason) = self.reports.push(id, report)? {
            // Sent, it would break this connection, and again every one after it.
            self.events.push_back(EdgeEvent::UpRefused(id, reason));
        }
        Ok(())
    }

    /// How many more rows [`up`](Self::up) takes now.
    pub fn up_room(&self) -> usize {
        self.reports.room()
    }

    /// Takes one binary frame.
    ///
    /// # Errors
    /// Any error ends the connection, and deletes nothing.
    pub fn handle_binary(&mut self, frame: &[u8], now: Duration) -> Result<(), SessionError> {
        if !self.compresses() {
            return Err(UnpackError::NotAgreed.into());
        }
        match wire::read(frame, self.agreed(version::RAW_STREAMS))? {
            Content::Text(text) => self.handle(&text, now),
            Content::Data { stream, data } => {
                self.liveness.heard(now);
                self.dispatch(ToEdge::StreamData { stream, data })
            }
        }
    }

    /// Takes one text frame.
    ///
    /// # Errors
    /// Any error ends the connection, and deletes nothing.
    pub fn handle(&mut self, frame: &str, now: Duration) -> Result<(), SessionError> {
        self.liveness.heard(now);
        match self.decoder.decode::<ToEdge>(frame)? {
            Decoded::Message(message) => {
                if message == (ToEdge::Pong {}) {
                    self.liveness.answered(now);
                }
                self.dispatch(message)
            }
            Decoded::Unknown(name) => self.control(ToCloud::Unsupported { message: name }),
            Decoded::Incomplete => Ok(()),
        }
    }
}
