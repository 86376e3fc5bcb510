//! The gate of the process: its limits, its timeouts, and the places that are taken.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apimachinery::flow::Flow;
use tokio::sync::Semaphore;

use super::kept::Kept;
use super::room::{Room, Source};

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
pub(super) const TURNS: (usize, usize) = (256, 128);
/// Maximum number of proven connections with requests and answers, in total and from one address. One more drops the
/// one that has been idle for longest.
const KEPT: (usize, usize) = (1_024, 512);
/// The same connections, in total and by user: one token has no more, from any number of addresses.
const OF_USERS: (usize, usize) = (1_024, 64);
/// Maximum number of connections of administrators and of components of the cluster, in total and from one address.
/// Other users cannot take these.
const OF_SYSTEM: (usize, usize) = (512, 256);

/// Counters of connections, shared by all listeners of a process.
#[derive(Debug)]
pub struct Gate {
    pub(super) patience: Patience,
    pub(super) arriving: Arc<Room>,
    pub(super) slow: Arc<Room>,
    kept: Arc<Room>,
    of_users: Arc<Room>,
    of_system: Arc<Room>,
    pub(super) turns: Arc<Semaphore>,
    sources: Mutex<HashMap<Source, Turns>>,
}

/// The permits of one address.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) arrivals: usize,
    pub(super) turns: Arc<Semaphore>,
}

impl Turns {
    pub(super) fn new(turns: usize) -> Self {
        Self { arrivals: 0, turns: Arc::new(Semaphore::new(turns)) }
    }
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

    pub(super) fn sources(&self) -> MutexGuard<'_, HashMap<Source, Turns>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests;
