//! A connection to one socket, made when it is needed and again when it is gone.

use std::path::PathBuf;
use std::time::Duration;

use super::{Code, Status};

/// Calls at one socket, one after the other.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    #[must_use]
    pub const fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// `path`: `/package.Service/Method`. The deadline counts for connecting too.
    ///
    /// # Errors
    /// What the server says; UNAVAILABLE if there is none, DEADLINE_EXCEEDED if it does not answer in time, INTERNAL or
    /// RESOURCE_EXHAUSTED if its answer is none or too long.
    #[allow(clippy::unused_async)]
    pub async fn call(&mut self, path: &str, message: &[u8], deadline: Duration) -> Result<Vec<u8>, Status> {
        let _ = (path, message, deadline);
        Err(Status::new(Code::Unavailable, format!("{}: not yet", self.socket.display())))
    }
}
