//! Limits of connections from anyone: their number, their duration, and their number per address. One gate for all
//! ports of the process.
//!
//! A connection *arrives* until its server says that it is [proven](Arrival::proven), or drops it. Meanwhile it waits
//! either for its peer or for the bridge. Waiting for the peer is bounded by its [`Patience`]; waiting for the bridge
//! does not count against the peer, and goes in order of arrival. Must not know requests or nodes.

mod arrival;
pub mod client;
mod kept;
mod lingering;
mod room;
mod unsent;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use apimachinery::flow::Flow;
pub use arrival::Arrival;
pub use kept::{Busy, Kept};
pub(crate) use lingering::Lingering;
use room::Room;

/// Timeouts for peers.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Time after which a slow peer loses its permit to the next, and counts as slow.
    pub grace: Duration,
    /// Total time for handshake and first request.
    pub arrival: Duration,
    /// Time until the next request of a proven connection.
    pub idle: Duration,
    /// Time for a client that reads nothing of an answer.
    pub unread: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            grace: Duration::from_millis(250),
            // A device on a slow line needs this long for both.
            arrival: ARRIVAL,
            // As for an API server's connections (K8s `IdleTimeout` of its HTTP server).
            idle: Duration::from_secs(90),
            unread: Duration::from_secs(30),
        }
    }
}

/// See [`Patience::arrival`].
pub(crate) const ARRIVAL: Duration = Duration::from_secs(20);

/// Maximum number of arriving connections, in total and from one address: all nodes of a large site may reconnect
/// through one NAT. A connection costs a descriptor and a kibibyte until its first byte.
const ARRIVING: (usize, usize) = (16_384, 8_192);
/// Maximum number of slow ones, in total and from one address. One more drops the slowest of the address, or of the
/// worst address.
const SLOW: (usize, usize) = (1_024, 256);
/// Maximum number of concurrent handshakes, in total and from one address.
const TURNS: (usize, usize) = (256, 128);
/// Maximum number of proven connections with requests and answers, in total and from one address. One more drops the
/// one that has been idle for longest.
const KEPT: (usize, usize) = (1_024, 512);
/// The same connections, in total and by user: one token has no more, from any number of addresses.
const OF_USERS: (usize, usize) = (1_024, 64);
/// Maximum number of connections of administrators and of components of the cluster, in total and from one address.
/// Other users cannot take these.
const OF_SYSTEM: (usize, usize) = (512, 256);

/// Written data that stays unacknowledged this long ends the connection (tcp(7), TCP_USER_TIMEOUT).
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after an error of accept(2).
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between two log lines about errors of accept(2).
const TOLD: Duration = Duration::from_secs(60);

/// A source of connections: an IPv4 address or a /64 network of IPv6, which is one subscriber's (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            v4 @ IpAddr::V4(_) => Self(v4),
            IpAddr::V6(v6) => Self(IpAddr::V6((u128::from(v6) >> 64 << 64).into())),
        }
    }
}

/// Counters of connections, shared by all listeners of a process.
#[derive(Debug)]
pub struct Gate {
    patience: Patience,
    arriving: Arc<Room>,
    slow: Arc<Room>,
    kept: Arc<Room>,
    of_users: Arc<Room>,
    of_system: Arc<Room>,
    turns: Arc<Semaphore>,
    sources: Mutex<HashMap<Source, Turns>>,
}

/// The permits of one address.
#[derive(Debug)]
struct Turns {
    arrivals: usize,
    turns: Arc<Semaphore>,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Self::with(Patience::default())
    }

    pub fn with(patience: Patience) -> Arc<Self> {
        Arc::new(Self {
            patience,
            arriving: Room::new(ARRIVING),
            slow: Room::new(SLOW),
            kept: Room::new(KEPT),
            of_users: Room::new(OF_USERS),
            of_system: Room::new(OF_SYSTEM),
            turns: Arc::new(Semaphore::new(TURNS.0)),
            sources: Mutex::default(),
        })
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<Source, Turns>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection from this address; `None` if there are too many.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Arrival>> {
        let source = Source::of(peer);
        let seat = self.arriving.enter(source)?;
        Some(Arrival::new(Arc::clone(self), source, seat))
    }

    /// Keeps a proven connection of this user from this address; `None` if all are busy.
    pub fn keep(&self, peer: IpAddr, flow: &Flow) -> Option<Arc<Kept>> {
        let source = Source::of(peer);
        let seats = match flow.name() {
            Some(name) if !flow.is_system() => vec![self.of_users.enter(name)?, self.kept.enter(source)?],
            _ => vec![self.of_system.enter(source)?],
        };
        Some(Kept::new(seats, self.patience.idle))
    }
}

/// Sends small pieces at once, since a peer waits for each, and ends a connection whose data is not acknowledged.
///
/// # Errors
/// The connection has ended already.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket2::SockRef::from(socket).set_tcp_user_timeout(Some(USER_TIMEOUT))
}

/// Accepts until dropped; each connection is served by a task of its own.
pub async fn each<F, S>(listener: TcpListener, gate: Arc<Gate>, port: &str, serve: S) -> Infallible
where
    S: Fn(TcpStream, SocketAddr, Arc<Arrival>) -> F,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut told = None::<tokio::time::Instant>;
    let mut tell = |problem: String| {
        if told.is_none_or(|at| at.elapsed() >= TOLD) {
            told = Some(tokio::time::Instant::now());
            log::warn!("{port}: {problem}");
        }
    };
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // No descriptors or memory, or an error of the connection (accept(2) lists a dozen): the next one may
                // work.
                tell(format!("accepting a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(arrival) = gate.admit(peer.ip()) else {
            tell(format!("too many connections arrive, of {} or of all: some are refused", peer.ip()));
            continue;
        };
        let served = serve(socket, peer, arrival);
        let port = port.to_owned();
        tokio::spawn(async move {
            if let Err(error) = served.await {
                log::debug!("{port}: {peer}: {error}");
            }
        });
    }
}

#[cfg(test)]
mod tests;
