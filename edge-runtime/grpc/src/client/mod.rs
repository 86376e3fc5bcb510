//! Calls at one socket, one after the other. The connection is made when it is needed, kept while it works, and made again when
//! it is gone. A stream has a connection of its own.
//!
//! | file | owns |
//! |---|---|
//! | `answer` | what a server says to one call |
//! | `exchange` | one connection without its socket |
//! | `connection` | one connection with its socket |
//! | `outcome` | how a call ended |
//! | `streaming` | a stream of messages |

mod answer;
mod connection;
pub(super) mod exchange;
mod outcome;
mod streaming;

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::timeout;

use self::connection::Connection;
pub(super) use self::outcome::Outcome;
pub use self::streaming::Streaming;
use super::{Code, Status};

/// A server, by its socket.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    kept: Option<Connection>,
}

impl Client {
    #[must_use]
    pub const fn new(socket: PathBuf) -> Self {
        Self { socket, kept: None }
    }

    /// `path`: `/package.Service/Method`. The deadline includes connecting. Dropping this before the end closes the
    /// connection.
    ///
    /// # Errors
    /// The server's status; UNAVAILABLE if it cannot be reached or does not speak HTTP/2, DEADLINE_EXCEEDED if it does
    /// not answer in time, RESOURCE_EXHAUSTED if a message is too long, INTERNAL, UNKNOWN or UNIMPLEMENTED if its
    /// answer is malformed.
    pub async fn call(&mut self, path: &str, message: &[u8], deadline: Duration) -> Result<Vec<u8>, Status> {
        // Not back before the end: nothing half done is found by the next call.
        let kept = self.kept.take();
        let late = |_| Status::new(Code::DeadlineExceeded, format!("no answer within {} ms", deadline.as_millis()));
        let (answer, connection) =
            timeout(deadline, self.attempt(kept, path, message, deadline)).await.map_err(late)??;
        self.kept = connection.still();
        answer
    }

    /// Begins a call whose answer is any number of messages, on a connection of its own: calls of this client go on beside it.
    /// Nothing is sent before the first [`Streaming::next`]. The deadline runs from now until the server has sent the first
    /// byte of a message or the end; after that there is none.
    #[must_use]
    pub fn stream(&self, path: &str, message: &[u8], deadline: Duration) -> Streaming {
        Streaming::new(self.socket.clone(), path, message, deadline)
    }

    async fn attempt(
        &self,
        kept: Option<Connection>,
        path: &str,
        message: &[u8],
        deadline: Duration,
    ) -> Result<(Result<Vec<u8>, Status>, Connection), Status> {
        // It may have ended since the last call, or end before it takes this one.
        if let Some(mut connection) = kept.and_then(Connection::still)
            && let Outcome::Answered(answer) = connection.call(path, message, deadline).await
        {
            return Ok((answer, connection));
        }
        let mut connection = Connection::new(&self.socket).await?;
        match connection.call(path, message, deadline).await {
            Outcome::Answered(answer) => Ok((answer, connection)),
            Outcome::Untaken(status) => Err(status),
        }
    }
}
