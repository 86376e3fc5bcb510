//! One connection without its socket: bytes of a client in, its requests out, answers in, bytes for the client out.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use sampan_nghttp2::{Error, Field, Session, Setting, code};

use super::room::{Own, Room};
use super::streams::{Phase, Refusal, Stream, Streams};
use crate::fields::MAX_FIELDS;
use crate::flood::LIMITS;
use crate::message::Outgoing;
use crate::{Code, Status, status};

/// Timeout for a client that reads its answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Timeout for a request whose message occupies shared memory: over a local socket it arrives at once.
const SHARED: Duration = Duration::from_secs(2);
/// Calls at once of one client: the framework's have one.
const STREAMS: u32 = 16;
/// Bytes of a request that come before there is room for it.
const WINDOW: u32 = 32 << 10;
/// Bytes for the socket at once, and a frame.
const OUTPUT: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Exchange {
    session: Session<Streams>,
    own: Own,
    /// Answered before the client has said everything: to be reset when the answer is out (RFC 9113 section 8.1).
    early: Vec<i32>,
}

/// A request whose answer is waited for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) stream: i32,
    pub(crate) path: String,
    pub(crate) message: Vec<u8>,
    /// Memory of the message, held until its last user drops it.
    pub(crate) room: Room,
}

impl Exchange {
    pub(crate) fn new(now: Instant) -> Result<Self, Error> {
        let mut session = Session::server(Streams::new(now), &LIMITS)?;
        // First of all: some clients wait for them before they call.
        session.settings(&[
            (Setting::MaxConcurrentStreams, STREAMS),
            (Setting::InitialWindowSize, WINDOW),
            (Setting::MaxHeaderListSize, u32::try_from(MAX_FIELDS).unwrap_or(u32::MAX)),
        ])?;
        Ok(Self { session, own: Own::new(), early: Vec::new() })
    }

    /// Sets the timeout for a request to be complete and answered. One of the client counts if it is shorter.
    pub(super) fn set_request(&mut self, limit: Duration) {
        self.session.handler().request = limit;
    }

    /// # Errors
    /// The connection is of no use any more, as with all that follows.
    pub(crate) fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        self.session.handler().now = now;
        self.session.receive(bytes)?;
        let unread = std::mem::take(&mut self.session.handler().unread);
        self.session.consumed_by_all(unread)?;
        self.settle(now)
    }

    /// Processes the received input and expired timeouts.
    pub(crate) fn settle(&mut self, now: Instant) -> Result<(), Error> {
        let streams: Vec<i32> = self.session.handler().open.keys().copied().collect();
        for id in streams {
            let own = &self.own;
            let Some(stream) = self.session.handler().open.get_mut(&id) else { continue };
            if let Some(bytes) = stream.wants() {
                stream.room = own.take(bytes);
            }
            if stream.until <= now {
                match stream.phase {
                    Phase::Answering(_) | Phase::Ending => {
                        stream.phase = Phase::Ending;
                        stream.until = now + ANSWER;
                        self.session.reset(id, code::CANCEL)?;
                        continue;
                    }
                    _ => stream.refuse(Status::new(Code::DeadlineExceeded, "the time for this call is over")),
                }
            }
            if let Phase::Refused(_) = stream.phase {
                self.refuse(now, id)?;
            } else if stream.room.is_some() && stream.unread > 0 {
                let unread = std::mem::take(&mut stream.unread);
                self.session.consumed(id, unread)?;
            }
        }
        Ok(())
    }

    fn refuse(&mut self, now: Instant, id: i32) -> Result<(), Error> {
        let streams = self.session.handler();
        let Some(stream) = streams.open.get_mut(&id) else { return Ok(()) };
        let Phase::Refused(refusal) = std::mem::replace(&mut stream.phase, Phase::Ending) else { return Ok(()) };
        stream.until = now + ANSWER;
        if !stream.ended {
            self.early.push(id);
        }
        // Counts like an empty frame: a client can send these forever at little cost.
        let calm = streams.flood.count(now).is_ok();
        match refusal {
            Refusal::Http(status) => {
                let fields: [Field<'_>; 2] = [(":status", status.as_bytes().into()), ("allow", b"POST".into())];
                let count = if status == "405" { 2 } else { 1 };
                self.session.respond(id, fields.get(..count).unwrap_or(&fields), false)?;
            }
            Refusal::Grpc(status) => {
                let number = (status.code as u8).to_string();
                let fields: [Field<'_>; 4] = [
                    (":status", b"200".into()),
                    ("content-type", b"application/grpc".into()),
                    ("grpc-status", number.as_bytes().into()),
                    ("grpc-message", Cow::Owned(status::encode(&status.message))),
                ];
                self.session.respond(id, &fields, false)?;
            }
        }
        if calm { Ok(()) } else { self.session.terminate(code::ENHANCE_YOUR_CALM) }
    }

    /// A request for which other room is needed than the connection's own, and how much.
    pub(crate) fn wants(&mut self) -> Option<(i32, usize)> {
        self.session.handler().open.iter().find_map(|(id, stream)| Some((*id, stream.wants()?)))
    }

    pub(crate) fn grant(&mut self, now: Instant, id: i32, room: Room) -> Result<(), Error> {
        if let Some(stream) = self.session.handler().open.get_mut(&id)
            && stream.wants().is_some()
        {
            stream.room = Some(room);
            if !stream.ended {
                stream.until = stream.until.min(now + SHARED);
            }
        }
        self.settle(now)
    }

    pub(crate) fn has_request(&mut self) -> bool {
        self.session.handler().open.values().any(is_ready)
    }

    /// A request that is complete.
    pub(crate) fn request(&mut self) -> Option<Request> {
        let streams = self.session.handler();
        let (id, stream) = streams.open.iter_mut().find(|(_, stream)| is_ready(stream))?;
        let room = stream.room.take()?;
        streams.flood.call();
        match std::mem::replace(&mut stream.phase, Phase::Asked) {
            Phase::Complete { path, message } => Some(Request { stream: *id, path, message, room }),
            other => {
                stream.phase = other;
                None
            }
        }
    }

    /// Whether the client still waits for this answer.
    pub(crate) fn is_asked(&mut self, id: i32) -> bool {
        self.session.handler().open.get(&id).is_some_and(|stream| matches!(stream.phase, Phase::Asked))
    }

    /// The message with its prefix, and what it takes.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        id: i32,
        answer: Result<(Vec<u8>, Room), Status>,
    ) -> Result<(), Error> {
        if !self.is_asked(id) {
            return Ok(());
        }
        let Some(stream) = self.session.handler().open.get_mut(&id) else { return Ok(()) };
        match answer {
            Ok((framed, room)) => {
                stream.phase = Phase::Answering(Outgoing::new(framed));
                stream.room = Some(room);
                stream.until = now + ANSWER;
                let fields: [Field<'_>; 2] = [(":status", b"200".into()), ("content-type", b"application/grpc".into())];
                self.session.respond(id, &fields, true)
            }
            Err(status) => {
                stream.refuse(status);
                self.refuse(now, id)
            }
        }
    }

    /// Appends the next bytes to send, if any.
    pub(crate) fn output(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        while out.len() < OUTPUT {
            let more = self.session.send()?;
            out.extend_from_slice(more);
            if more.is_empty() {
                if self.early.is_empty() {
                    break;
                }
                for id in std::mem::take(&mut self.early) {
                    self.session.reset(id, code::NO_ERROR)?;
                }
            }
        }
        Ok(())
    }

    /// The next time at which to settle.
    pub(crate) fn wake(&mut self) -> Option<Instant> {
        self.session.handler().open.values().map(|stream| stream.until).min()
    }

    /// Whether a request is complete and its answer not yet sent. An incomplete request does not count.
    pub(crate) fn is_busy(&mut self) -> bool {
        let works = |stream: &Stream| is_ready(stream) || matches!(stream.phase, Phase::Asked | Phase::Answering(_));
        self.session.handler().open.values().any(works)
    }

    /// The client has taken our settings.
    pub(crate) fn is_greeted(&mut self) -> bool {
        self.session.handler().greeted
    }

    /// Whether nothing remains to be received or sent.
    pub(crate) fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Tells the client to connect again for further calls (GOAWAY).
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        self.session.terminate(code::NO_ERROR)
    }
}

const fn is_ready(stream: &Stream) -> bool {
    matches!(stream.phase, Phase::Complete { .. }) && stream.room.is_some()
}
