//! A stream of messages of a server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::connection::Connection;
use super::outcome::Outcome;
use crate::{Code, Status};

/// A stream of messages. It reads only in [`next`](Self::next), and holds one message and what fits into the window behind
/// it: a server that sends faster waits. Dropping it closes the connection, by which the server learns that the call is
/// cancelled.
#[derive(Debug)]
pub struct Streaming {
    since: Instant,
    deadline: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    New { socket: PathBuf, path: String, message: Vec<u8> },
    Open(Connection),
    Over,
}

impl Streaming {
    pub(super) fn new(socket: PathBuf, path: &str, message: &[u8], deadline: Duration) -> Self {
        let state = State::New { socket, path: path.to_owned(), message: message.to_owned() };
        Self { since: Instant::now(), deadline, state }
    }

    /// Returns the next message; `None` after the end of the stream. An error is the last item. Dropping this before its end
    /// loses nothing: it can be called again.
    ///
    /// # Errors
    /// The server's status, or one of those of [`Client::call`](crate::Client::call); UNAVAILABLE also if the connection ends
    /// before the stream does, INTERNAL if the stream ends within a message.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, Status>> {
        let next = self.advance().await;
        if !matches!(next, Some(Ok(_))) {
            self.state = State::Over;
        }
        next
    }

    async fn advance(&mut self) -> Option<Result<Vec<u8>, Status>> {
        let (since, deadline) = (self.since, self.deadline);
        let left = || deadline.saturating_sub(since.elapsed());
        let late =
            || Some(Err(Status::new(Code::DeadlineExceeded, format!("no answer within {} ms", deadline.as_millis()))));
        if let State::New { socket, path, message } = &self.state {
            let Ok(connected) = timeout(left(), Connection::new(socket)).await else { return late() };
            let mut connection = match connected {
                Ok(connection) => connection,
                Err(status) => return Some(Err(status)),
            };
            if let Err(outcome) = connection.begin(path, message) {
                return end(outcome);
            }
            self.state = State::Open(connection);
        }
        let State::Open(connection) = &mut self.state else { return None };
        loop {
            if let Some(message) = connection.message() {
                return Some(Ok(message));
            }
            let ended = if connection.has_begun() {
                connection.turn().await
            } else {
                let Ok(ended) = timeout(left(), connection.turn()).await else { return late() };
                ended
            };
            if let Some(outcome) = ended {
                return end(outcome);
            }
        }
    }
}

/// What comes at the end of a stream: nothing, or an error.
fn end(outcome: Outcome) -> Option<Result<Vec<u8>, Status>> {
    match outcome {
        Outcome::Answered(Ok(_)) => None,
        Outcome::Answered(Err(status)) | Outcome::Untaken(status) => Some(Err(status)),
    }
}
