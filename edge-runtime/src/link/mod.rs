//! The connection to the bridge: dial, keep up, move frames. Knows nothing of pods and writes no SQL.
//!
//! [`start`] makes one task that dials the bridges in turn, forever. It talks to the node loop by
//! [`LinkEvent`]s over a channel that the loop bounds, and the loop talks back by [`LinkHandle`], whose methods
//! act on the session at once: nothing waits, so that the two can never wait for each other.
//!
//! One connection, as the loop sees it:
//! 1. `NeedFacts`: TLS is up. Answer with [`LinkHandle::facts`], read from the store **after** everything
//!    received before this event is committed or dropped.
//! 2. `Connected`: the bridge said welcome; store the cluster id. Offer the outbox with [`LinkHandle::up`].
//! 3. `Changes`: commit them with the position of the last ([`Change::position`]), then call
//!    [`LinkHandle::committed`] with its number. `UpAcked`, `UpRefused`: drop those outbox rows and offer more.
//! 4. `Disconnected`: every stream is over (a `Closed` came for each). The link tries again by itself.

pub mod address;
pub mod backoff;
mod certificate;
mod csr;
pub mod dial;
#[cfg(test)]
mod fake;
mod http;
pub mod identity;
pub mod join;
mod network;
mod pump;
mod renew;
pub mod status;
mod tasks;
pub mod tls;

use crate::net::proxy::Proxy;
use crate::paths::Paths;
use edge_protocol::edge::{Change, EdgeFacts, EdgeSession, WindowFull};
use edge_protocol::message::{
    ApiRequest, DeviceRefusal, ObjectKey, RenewAnswer, Report, StreamId, TokenAnswer, TokenRequest,
};
use edge_protocol::stream::{StreamError, StreamEvent};
use edge_protocol::version::{IdentityTerms, RefuseReason, Welcome};
use identity::Identity;
use smol::channel::{Receiver, Sender};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
pub use tasks::{LinkSettings, start};
use tls::Time;

/// What the link tells the node loop.
#[derive(Debug)]
pub enum LinkEvent {
    /// The bridge, or the proxy before it, is about to be dialled at these addresses.
    Resolved(Vec<SocketAddr>),
    /// A connection is ready for its hello: answer with [`LinkHandle::facts`].
    NeedFacts,
    Connected(Welcome),
    /// Reason of a disconnect, for the log and the node's own status; the link reconnects by itself.
    Disconnected(String),
    /// In order; commit all with the position of the last, or one by one.
    Changes {
        stream: String,
        changes: Vec<Change>,
    },
    UpAcked(Vec<u64>),
    UpRefused(u64, String),
    /// Answer to [`LinkHandle::request_token`].
    Token {
        id: u64,
        answer: TokenAnswer,
    },
    /// Answer to [`LinkHandle::devices`].
    DevicesAcked {
        batch: u64,
        refused: Vec<DeviceRefusal>,
    },
    /// Answer to [`LinkHandle::message`].
    MessagesAcked(Vec<u64>),
    /// Requires an answer by [`LinkHandle::answer`].
    Call {
        id: u64,
        call: serde_json::Value,
    },
    /// Answer to [`LinkHandle::request`].
    Response {
        id: u64,
        response: serde_json::Value,
    },
    Stream(StreamEvent),
    /// The bridge sent the node away; `Disconnected` follows. Retried, at the slowest pace.
    Refused(RefuseReason, String),
}

/// The node loop's hand on the link. Cheap to clone. Without a connection every method does nothing: what
/// matters is in the store, and is offered again after the next `Connected`.
#[derive(Clone)]
pub struct LinkHandle {
    shared: Rc<Shared>,
}

pub(crate) struct Shared {
    session: RefCell<Option<EdgeSession>>,
    facts: RefCell<Option<EdgeFacts>>,
    wake: Sender<()>,
    /// Present identity of this node; a renewal replaces it.
    identity: RefCell<Identity>,
    /// TLS configuration for dialling as this node. `None` before the link has started.
    config: RefCell<Option<Arc<rustls::ClientConfig>>>,
    time: Time,
    paths: Paths,
    proxy: Proxy,
    renewal: Sender<News>,
}

impl LinkHandle {
    /// Answer to [`LinkEvent::NeedFacts`].
    pub fn facts(&self, facts: EdgeFacts) {
        *self.shared.facts.borrow_mut() = Some(facts);
        self.shared.wake();
    }

    /// This change and all before it are in the store.
    pub fn committed(&self, seq: u64) {
        self.with(|s| s.committed(seq));
    }

    /// Refuses an object that cannot be applied. Commit past it anyway.
    pub fn nack(&self, key: &ObjectKey, uid: &str, reason: impl Into<String>) {
        self.with(|s| s.nack(key, uid, reason));
    }

    /// Sends an outbox row, if connected.
    ///
    /// # Errors
    /// The window is full: offer it again after the next `UpAcked` or `UpRefused`.
    pub fn up(&self, id: u64, report: Report) -> Result<(), WindowFull> {
        self.with(|s| if s.is_welcome() { s.up(id, report) } else { Ok(()) }).unwrap_or(Ok(()))
    }

    /// Asks for a service account token. False when it cannot be asked for now: no connection, or a bridge that
    /// knows no tokens.
    pub fn request_token(&self, id: u64, request: TokenRequest) -> bool {
        self.with(|s| s.request_token(id, request)).unwrap_or(false)
    }

    /// Sends the namespaces whose Services the node requests. Returns false without a connection, or if the bridge does
    /// not support it; the next hello has them, too.
    pub fn interests(&self, namespaces: Vec<String>) -> bool {
        self.with(|s| s.interests(namespaces)).unwrap_or(false)
    }

    /// Sends reports of devices when the previous batch is acknowledged. Returns false without a connection, if the
    /// bridge does not support them, or if the batch is too large.
    pub fn devices(&self, batch: u64, devices: Vec<serde_json::Value>) -> bool {
        self.with(|s| s.devices(batch, devices)).unwrap_or(false)
    }

    /// Sends a message of rules, which expires after the given time. Returns false if it cannot be sent, as in
    /// [`devices`](Self::devices).
    pub fn message(&self, id: u64, left_ms: u64, message: serde_json::Value) -> bool {
        self.with(|s| s.message(id, left_ms, message)).unwrap_or(false)
    }

    /// Answers a call of rules. False as of [`message`](Self::message).
    pub fn answer(&self, id: u64, answer: serde_json::Value) -> bool {
        self.with(|s| s.answer(id, answer)).unwrap_or(false)
    }

    /// Sends a request of rules; its answer comes with this connection or never. False as of [`message`](Self::message).
    pub fn request(&self, id: u64, request: serde_json::Value) -> bool {
        self.with(|s| s.request(id, request)).unwrap_or(false)
    }

    /// Rows that [`up`](Self::up) takes now; 0 without a connection.
    pub fn up_room(&self) -> usize {
        self.shared.session.borrow().as_ref().filter(|s| s.is_welcome()).map_or(0, EdgeSession::up_room)
    }

    /// Until when the certificate of this node is good, in seconds since 1970.
    pub fn certificate_end(&self) -> Option<u64> {
        self.shared.identity.borrow().certificate_end()
    }

    pub fn is_connected(&self) -> bool {
        self.shared.session.borrow().as_ref().is_some_and(EdgeSession::is_welcome)
    }

    /// Whether the bridge passes requests of pods on to the API.
    pub fn passes_api(&self) -> bool {
        self.shared.session.borrow().as_ref().is_some_and(EdgeSession::passes_api)
    }

    /// Sends a pod's request to the API. Its stream is one of [`LinkEvent::Stream`].
    ///
    /// # Errors
    /// Why it cannot be sent: no connection, or what the session has against it.
    pub fn open_api(&self, request: ApiRequest) -> Result<StreamId, String> {
        let open = |session: &mut EdgeSession| {
            session.is_welcome().then(|| session.open_api(request).map_err(|error| error.to_string()))
        };
        self.with(open).flatten().unwrap_or_else(|| Err("there is no link to the bridge".to_owned()))
    }

    /// Bytes that [`stream_send`](Self::stream_send) takes now; 0 for a stream that is over.
    pub fn stream_room(&self, stream: StreamId) -> usize {
        self.shared.session.borrow().as_ref().map_or(0, |s| s.stream_room(stream))
    }

    /// # Errors
    /// The stream is over, or the data is more than [`stream_room`](Self::stream_room).
    pub fn stream_send(&self, stream: StreamId, data: &[u8]) -> Result<(), StreamError> {
        self.with(|s| s.stream_send(stream, data)).unwrap_or(Err(StreamError::Closed(stream)))
    }

    /// Received bytes are dealt with.
    pub fn stream_consumed(&self, stream: StreamId, bytes: usize) {
        self.with(|s| s.stream_consumed(stream, bytes));
    }

    /// Ends a stream from this side.
    pub fn stream_end(&self, stream: StreamId, error: Option<String>) {
        self.with(|s| s.stream_end(stream, error));
    }

    fn with<R>(&self, act: impl FnOnce(&mut EdgeSession) -> R) -> Option<R> {
        let result = self.shared.session.borrow_mut().as_mut().map(act);
        if result.is_some() {
            self.shared.wake();
        }
        result
    }
}

impl Shared {
    fn wake(&self) {
        // Full means that the pump is about to look anyway.
        let _ = self.wake.try_send(());
    }
}

/// What the pump tells the renewal.
#[derive(Debug)]
enum News {
    Welcome(IdentityTerms),
    Answer(RenewAnswer),
    Ended,
}

pub(crate) struct Wakers {
    woken: Receiver<()>,
    network_changes: Receiver<()>,
}

#[cfg(test)]
mod tests;
