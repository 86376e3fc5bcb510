//! What the answers of the port share, and what one connection brings.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use tokio::sync::Semaphore;

use super::answered::Answered;
use super::rates::Rates;
use crate::accept::Arrival;
use crate::bridge::Bridge;
use crate::pki::authority::Authority;

/// Context of the listener's answers.
pub struct ListenerContext {
    pub bridge: Bridge,
    pub authority: Arc<Authority>,
    /// The bridge's own client, for tokens and requests.
    pub client: Client,
    /// Joins whose answer may not have arrived.
    answered: Mutex<Answered>,
    /// Rates of requests to enrol.
    rates: Mutex<Rates>,
    /// Held while a use of a claim token is written: boards that come together would conflict with each other.
    pub(super) counting: tokio::sync::Mutex<()>,
}

impl ListenerContext {
    pub fn new(bridge: Bridge, authority: Arc<Authority>, client: Client) -> Self {
        let (answered, rates, counting) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { bridge, authority, client, answered, rates, counting }
    }

    pub(super) fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn answered(&self) -> MutexGuard<'_, Answered> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Context of one connection.
#[derive(Clone)]
pub(super) struct Arrived {
    pub(super) peer: SocketAddr,
    pub(super) arrival: Arc<Arrival>,
    pub(super) context: Arc<ListenerContext>,
    pub(super) coming_in: Arc<Semaphore>,
}
