//! One connection with its socket.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use sampan_nghttp2::Error;
use tokio::net::UnixStream;
use tokio::task::yield_now;

use super::exchange::Exchange;
use super::outcome::{Outcome, unavailable};
use crate::Status;

const CHUNK: usize = 16 << 10;
/// Maximum bytes that a server may have sent between two calls.
const SAID_MEANWHILE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    exchange: Exchange,
    out: Vec<u8>,
    sent: usize,
}

fn broken(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Connection {
    pub(super) async fn new(socket: &Path) -> Result<Self, Status> {
        let named = |error: io::Error| unavailable(format!("{}: {error}", socket.display()));
        let stream = UnixStream::connect(socket).await.map_err(named)?;
        let exchange = Exchange::new(Instant::now()).map_err(unavailable)?;
        Ok(Self { stream, exchange, out: Vec::new(), sent: 0 })
    }

    /// Returns itself if another call can use it: no call is in progress, and the server has not announced an end.
    pub(super) fn still(mut self) -> Option<Self> {
        for _ in 0..SAID_MEANWHILE / CHUNK {
            match self.read() {
                Ok(Some(0)) | Err(_) => return None,
                Ok(Some(_)) => {}
                Ok(None) => {
                    let flushed = self.flush().ok()?;
                    return (flushed && self.exchange.is_usable()).then_some(self);
                }
            }
        }
        None
    }

    pub(super) async fn call(&mut self, path: &str, message: &[u8], deadline: Duration) -> Outcome {
        if let Err(outcome) = self.exchange.call(path, message, deadline) {
            return outcome;
        }
        loop {
            if let Some(outcome) = self.turn().await {
                return outcome;
            }
        }
    }

    /// Begins a stream; the connection takes no other call.
    pub(super) fn begin(&mut self, path: &str, message: &[u8]) -> Result<(), Outcome> {
        self.exchange.stream(path, message)
    }

    /// Whether the server has begun to answer.
    pub(super) fn has_begun(&mut self) -> bool {
        self.exchange.has_begun()
    }

    /// The next message of a stream, if it has arrived.
    pub(super) fn message(&mut self) -> Option<Vec<u8>> {
        self.exchange.message()
    }

    /// Sends and receives once, or returns how the call has ended. May be dropped and called again.
    pub(super) async fn turn(&mut self) -> Option<Outcome> {
        let flushed = match self.flush() {
            Ok(flushed) => flushed,
            Err(error) => return self.ended(&error),
        };
        if let Some(outcome) = self.exchange.outcome() {
            return Some(outcome);
        }
        if flushed && self.exchange.is_over() {
            return self.give_up("the server ends the connection");
        }
        tokio::select! {
            ready = self.stream.readable() => {
                match ready.and_then(|()| self.read()) {
                    Ok(Some(0)) => return self.give_up("the server hangs up"),
                    Ok(_) => yield_now().await,
                    Err(error) => return self.ended(&error),
                }
            }
            ready = self.stream.writable(), if !flushed => {
                if let Err(error) = ready {
                    return self.ended(&error);
                }
            }
        }
        None
    }

    /// Messages before the end still count, such as a refusal of the call.
    fn ended(&mut self, error: &io::Error) -> Option<Outcome> {
        while let Ok(Some(1..)) = self.read() {}
        self.give_up(error)
    }

    /// Returns the outcome, unless messages of a stream wait to be taken: then it comes after them.
    fn give_up(&mut self, why: impl ToString) -> Option<Outcome> {
        self.exchange.give_up(why);
        self.exchange.outcome()
    }

    /// How many bytes there were; none if there is nothing yet.
    fn read(&mut self) -> io::Result<Option<usize>> {
        let mut chunk = [0; CHUNK];
        match self.stream.try_read(&mut chunk) {
            Ok(count) => {
                let bytes = chunk.get(..count).unwrap_or(&chunk);
                if count > 0 {
                    self.exchange.receive(Instant::now(), bytes).map_err(broken)?;
                }
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether everything is sent.
    fn flush(&mut self) -> io::Result<bool> {
        loop {
            while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
                match self.stream.try_write(rest) {
                    Ok(count) => self.sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            self.out.clear();
            self.sent = 0;
            self.exchange.output(&mut self.out).map_err(broken)?;
            if self.out.is_empty() {
                // A connection that says nothing holds nothing.
                self.out = Vec::new();
                return Ok(true);
            }
        }
    }
}
