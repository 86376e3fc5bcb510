//! What the answers of the port share, and what one connection brings.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use tokio::sync::Semaphore;

use super::answered::Answered;
use crate::accept::Arrival;
use crate::bridge::Bridge;
use crate::pki::authority::Authority;

/// Context of the listener's answers.
pub struct ListenerContext {
    pub bridge: Bridge,
    pub authority: Arc<Authority>,
    /// The bridge's own client, for tokens.
    pub client: Client,
    /// Joins whose answer may not have arrived.
    pub answered: Mutex<Answered>,
}

impl ListenerContext {
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
