//! One connection without its socket: a call in, bytes for the server out, its bytes in, the answer out.

use std::time::{Duration, Instant};

use sampan_nghttp2::{Error, Field, Session, Setting};

use super::answer::{Answers, Asked};
use super::outcome::{Outcome, unavailable};
use crate::fields::{MAX_FIELDS, timeout};
use crate::flood::LIMITS;
use crate::message::{Outgoing, framed};

/// Bytes for the socket at once, and a frame.
const OUTPUT: usize = 16 << 10;
/// Bytes of an answer that may be under way.
const WINDOW: u32 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Exchange {
    session: Session<Answers>,
}

impl Exchange {
    pub(crate) fn new(now: Instant) -> Result<Self, Error> {
        let mut session = Session::client(Answers::new(now), &LIMITS)?;
        session.settings(&[
            (Setting::EnablePush, 0),
            (Setting::InitialWindowSize, WINDOW),
            (Setting::MaxHeaderListSize, u32::try_from(MAX_FIELDS).unwrap_or(u32::MAX)),
        ])?;
        Ok(Self { session })
    }

    /// # Errors
    /// The call is not made: it is too large, or the connection does not accept calls.
    pub(crate) fn call(&mut self, path: &str, message: &[u8], deadline: Duration) -> Result<(), Outcome> {
        let framed = framed(message.to_vec()).map_err(|status| Outcome::Answered(Err(status)))?;
        let timeout = timeout(deadline);
        let fields: [Field<'_>; 7] = [
            (":method", b"POST".into()),
            (":scheme", b"http".into()),
            (":path", path.as_bytes().into()),
            (":authority", b"localhost".into()),
            ("te", b"trailers".into()),
            ("content-type", b"application/grpc".into()),
            ("grpc-timeout", timeout.as_bytes().into()),
        ];
        let stream = self.session.request(&fields).map_err(|error| Outcome::Untaken(unavailable(error)))?;
        self.session.handler().asked = Some(Asked::new(stream, Outgoing::new(framed)));
        Ok(())
    }

    /// # Errors
    /// The connection is of no use any more, as with all that follows.
    pub(crate) fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        self.session.handler().now = now;
        self.session.receive(bytes)?;
        let answers = self.session.handler();
        let unread = std::mem::take(&mut answers.unread);
        let stream = answers.asked.as_ref().map(|asked| asked.stream);
        self.session.consumed_by_all(unread)?;
        // All of it was of the one stream that there is.
        stream.map_or(Ok(()), |stream| self.session.consumed(stream, unread))
    }

    /// Appends the next bytes to send, if any.
    pub(crate) fn output(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        while out.len() < OUTPUT {
            let more = self.session.send()?;
            if more.is_empty() {
                break;
            }
            out.extend_from_slice(more);
        }
        Ok(())
    }

    /// How the call ended, once it has.
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        let answers = self.session.handler();
        let asked = answers.asked.take_if(|asked| asked.is_over())?;
        answers.flood.call();
        let closed = asked.is_closed();
        let outcome = asked.outcome();
        if !closed {
            // The server answers before it has the whole request, or sends too much: the call is cancelled.
            let _ = self.session.terminate(sampan_nghttp2::code::CANCEL);
        }
        Some(outcome)
    }

    /// How it ends when the connection does, for this reason.
    pub(crate) fn give_up(&mut self, why: impl ToString) -> Outcome {
        match self.session.handler().asked.take_if(|asked| asked.is_over()) {
            Some(asked) => asked.outcome(),
            None => Outcome::Answered(Err(unavailable(why))),
        }
    }

    /// Whether it takes another call.
    pub(crate) fn is_usable(&self) -> bool {
        self.session.takes_requests() && !self.session.is_over()
    }

    /// Whether nothing remains to be received or sent.
    pub(crate) fn is_over(&self) -> bool {
        self.session.is_over()
    }
}
