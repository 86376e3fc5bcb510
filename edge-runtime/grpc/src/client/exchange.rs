//! One connection without its socket: a call in, bytes for the server out, its bytes in, the answer out, or a stream of them.

use std::time::{Duration, Instant};

use sampan_nghttp2::{Error, Field, Session, Setting};

use super::answer::{Answers, Asked, Body};
use super::outcome::{Outcome, unavailable};
use crate::fields::{MAX_FIELDS, timeout};
use crate::flood::LIMITS;
use crate::message::{Incoming, Messages, Outgoing, framed};

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
        self.ask(path, message, Some(timeout(deadline).as_str()), Body::One(Incoming::default()))
    }

    /// The server is told of no deadline: none holds for the whole stream.
    ///
    /// # Errors
    /// Same as [`call`](Self::call).
    pub(crate) fn stream(&mut self, path: &str, message: &[u8]) -> Result<(), Outcome> {
        self.ask(path, message, None, Body::Many(Messages::default()))
    }

    fn ask(&mut self, path: &str, message: &[u8], timeout: Option<&str>, body: Body) -> Result<(), Outcome> {
        let framed = framed(message.to_vec()).map_err(|status| Outcome::Answered(Err(status)))?;
        let mut fields: Vec<Field<'_>> = vec![
            (":method", b"POST".into()),
            (":scheme", b"http".into()),
            (":path", path.as_bytes().into()),
            (":authority", b"localhost".into()),
            ("te", b"trailers".into()),
            ("content-type", b"application/grpc".into()),
        ];
        if let Some(timeout) = timeout {
            fields.push(("grpc-timeout", timeout.as_bytes().into()));
        }
        let stream = self.session.request(&fields).map_err(|error| Outcome::Untaken(unavailable(error)))?;
        self.session.handler().asked = Some(Asked::new(stream, Outgoing::new(framed), body));
        Ok(())
    }

    /// # Errors
    /// The connection is of no use any more, as with all that follows.
    pub(crate) fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        self.session.handler().now = now;
        self.session.receive(bytes)?;
        let answers = self.session.handler();
        let unread = std::mem::take(&mut answers.unread);
        self.session.consumed_by_all(unread)?;
        self.read_on(unread)
    }

    /// Lets the server send as much again as is read now of the one stream that there is. The window of a stream of messages
    /// opens when a message is taken, not when it has come.
    fn read_on(&mut self, unread: usize) -> Result<(), Error> {
        let Some(asked) = &mut self.session.handler().asked else { return Ok(()) };
        let (stream, count) = (asked.stream, asked.read_on(unread));
        self.session.consumed(stream, count)
    }

    /// The next message of a stream, once it is there.
    pub(crate) fn message(&mut self) -> Option<Vec<u8>> {
        let answers = self.session.handler();
        let message = answers.asked.as_mut()?.take()?;
        answers.flood.call();
        if let Err(error) = self.read_on(0) {
            self.give_up(error);
        }
        Some(message)
    }

    /// Whether the server has begun to answer; also without a call.
    pub(crate) fn has_begun(&mut self) -> bool {
        self.session.handler().asked.as_ref().is_none_or(Asked::has_begun)
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

    /// How the call ended, once it has and all messages of a stream are taken.
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

    /// Ends the call because the connection ends, for this reason, unless it has ended already.
    pub(crate) fn give_up(&mut self, why: impl ToString) {
        if let Some(asked) = &mut self.session.handler().asked {
            asked.wrong(unavailable(why));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Status};

    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    const END: u8 = 1;
    const END_HEADERS: u8 = 4;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// `:status: 200` from the table, and the content type by its name in the table.
    fn head() -> Vec<u8> {
        let payload = [&[0x88, 0x0f, 0x10, 16][..], b"application/grpc"].concat();
        frame(HEADERS, END_HEADERS, 1, &payload)
    }

    fn trailers(code: u8) -> Vec<u8> {
        frame(HEADERS, END_HEADERS | END, 1, &[&[0, 11][..], b"grpc-status", &[1, b'0' + code]].concat())
    }

    /// A client that has asked for a stream, and a server that has sent its settings and the head of an answer.
    fn asked() -> Exchange {
        let mut client = Exchange::new(Instant::now()).expect("memory");
        client.stream("/t.T/Stream", b"x").expect("a new connection takes it");
        said(&mut client);
        hear(&mut client, &[frame(SETTINGS, 0, 0, &[]), head()].concat());
        client
    }

    fn hear(client: &mut Exchange, bytes: &[u8]) {
        client.receive(Instant::now(), bytes).expect("HTTP/2");
    }

    fn said(client: &mut Exchange) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let before = out.len();
            client.output(&mut out).expect("HTTP/2");
            if out.len() == before {
                return out;
            }
        }
    }

    /// Whether the client opens the window of its stream.
    fn opens(client: &mut Exchange) -> bool {
        let out = said(client);
        let (mut rest, mut found) = (&out[..], false);
        while let Some((head, more)) = rest.split_at_checked(9) {
            let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).expect("fits");
            found |= head[3] == WINDOW_UPDATE && head[8] == 1;
            rest = &more[length..];
        }
        found
    }

    fn message(byte: u8) -> Vec<u8> {
        frame(DATA, 0, 1, &framed(vec![byte; 1019]).expect("short enough"))
    }

    #[test]
    fn window_opens_by_messages_that_are_taken() {
        let mut client = asked();
        said(&mut client);
        for number in 0..60 {
            hear(&mut client, &message(number));
        }
        assert!(!opens(&mut client), "nothing is taken yet");
        for number in 0..20 {
            assert_eq!(client.message(), Some(vec![number; 1019]));
        }
        assert!(!opens(&mut client), "nghttp2 opens it by half of it");
        for number in 20..40 {
            assert_eq!(client.message(), Some(vec![number; 1019]));
        }
        assert!(opens(&mut client));
        hear(&mut client, &[message(60), trailers(0)].concat());
        for number in 40..61 {
            assert!(client.outcome().is_none(), "the end comes behind all messages");
            assert_eq!(client.message(), Some(vec![number; 1019]));
        }
        assert!(client.message().is_none());
        assert!(matches!(client.outcome(), Some(Outcome::Answered(Ok(_)))));
    }

    #[test]
    fn long_message_of_a_stream_opens_the_window_while_it_comes() {
        let mut client = asked();
        said(&mut client);
        let wire = framed(vec![3; 100_000]).expect("short enough");
        let mut opened = false;
        for part in wire.chunks(16_000) {
            hear(&mut client, &frame(DATA, 0, 1, part));
            opened |= opens(&mut client);
        }
        assert!(opened);
        assert_eq!(client.message().map(|message| message.len()), Some(100_000));
    }

    #[test]
    fn stream_has_begun_with_its_first_bytes_or_its_end() {
        let mut client = asked();
        assert!(!client.has_begun(), "fields are no answer yet");
        hear(&mut client, &frame(DATA, 0, 1, &[0]));
        assert!(client.has_begun());
        let mut client = asked();
        hear(&mut client, &trailers(5));
        assert!(client.has_begun());
        let refused = matches!(client.outcome(), Some(Outcome::Answered(Err(Status { code: Code::NotFound, .. }))));
        assert!(refused);
    }
}
