//! The requests of one connection, from their first field to the last byte of the answer, from HTTP/2's callbacks.
//! `exchange` sends the answers.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use sampan_nghttp2::{Fatal, Frame, Handler, Part, Refused, Then, frame};
use sampan_sys::vec_map::VecMap;

use super::room::Room;
use crate::fields::{Head, Sum, Wrong};
use crate::flood::Flood;
use crate::message::{Incoming, Outgoing};
use crate::{Code, Status};

/// Timeout for a request to be complete and answered, unless its client sets a shorter one: a longer one has no effect.
pub(super) const REQUEST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Streams {
    pub(super) now: Instant,
    /// Timeout for a request.
    pub(super) request: Duration,
    pub(super) flood: Flood,
    pub(super) open: VecMap<i32, Stream>,
    /// The client has taken our settings.
    pub(super) greeted: bool,
    /// Bytes of bodies since this was last looked at.
    pub(super) unread: usize,
}

#[derive(Debug)]
pub(super) struct Stream {
    /// When this phase is over at the latest.
    pub(super) until: Instant,
    pub(super) phase: Phase,
    /// The client has said everything.
    pub(super) ended: bool,
    pub(super) room: Option<Room>,
    /// Bytes of the body that the client may not send again yet.
    pub(super) unread: usize,
    fields: Sum,
}

#[derive(Debug)]
pub(super) enum Phase {
    Head(Head),
    Body {
        path: String,
        incoming: Incoming,
    },
    Complete {
        path: String,
        message: Vec<u8>,
    },
    /// It is being answered.
    Asked,
    /// The refusal must still be sent.
    Refused(Refusal),
    Answering(Outgoing),
    /// The end of it is on its way.
    Ending,
}

#[derive(Debug)]
pub(super) enum Refusal {
    /// Not a gRPC request that a gRPC status could answer: an HTTP status.
    Http(&'static str),
    Grpc(Status),
}

impl Streams {
    pub(super) const fn new(now: Instant) -> Self {
        Self { now, request: REQUEST, flood: Flood::new(now), open: VecMap::new(), greeted: false, unread: 0 }
    }
}

impl Stream {
    fn new(now: Instant, request: Duration) -> Self {
        Self {
            until: now + request,
            phase: Phase::Head(Head::default()),
            ended: false,
            room: None,
            unread: 0,
            fields: Sum::default(),
        }
    }

    /// Size of a message that waits for room, in bytes.
    pub(super) fn wants(&self) -> Option<usize> {
        match &self.phase {
            _ if self.room.is_some() => None,
            Phase::Body { incoming, .. } => incoming.length(),
            Phase::Complete { message, .. } => Some(message.len()),
            _ => None,
        }
    }

    pub(super) fn refuse(&mut self, status: Status) {
        self.phase = Phase::Refused(Refusal::Grpc(status));
        self.room = None;
    }

    fn begin(&mut self, now: Instant, head: Head) {
        let refusal = match head.finish() {
            Ok((path, timeout)) => {
                if let Some(until) = timeout.and_then(|timeout| now.checked_add(timeout)) {
                    self.until = self.until.min(until);
                }
                self.phase = Phase::Body { path, incoming: Incoming::default() };
                return;
            }
            Err(Wrong::Method) => Refusal::Http("405"),
            Err(Wrong::ContentType) => Refusal::Http("415"),
            Err(Wrong::Path) => Refusal::Grpc(Status::new(Code::Unimplemented, "no name of a method")),
            Err(Wrong::Timeout) => Refusal::Grpc(Status::new(Code::Internal, "no grpc-timeout")),
        };
        self.phase = Phase::Refused(refusal);
    }

    fn end(&mut self) {
        self.ended = true;
        self.phase = match std::mem::replace(&mut self.phase, Phase::Ending) {
            Phase::Body { path, incoming } => match incoming.finish() {
                Ok(message) => Phase::Complete { path, message },
                Err(status) => Phase::Refused(Refusal::Grpc(status)),
            },
            other => other,
        };
    }
}

impl Handler for Streams {
    fn frame(&mut self, frame: Frame) -> Result<(), Fatal> {
        self.greeted |= frame.kind == frame::SETTINGS && frame.flags & frame::ACK != 0;
        self.flood.frame(self.now, frame)
    }

    fn field(&mut self, stream: i32, name: &[u8], value: &[u8]) -> Result<(), Refused> {
        let stream = self.open.get_or_insert_with(stream, || Stream::new(self.now, self.request));
        if !stream.fields.add(name, value) {
            return Err(Refused);
        }
        if let Phase::Head(head) = &mut stream.phase {
            head.field(name, value);
        }
        Ok(())
    }

    fn fields_end(&mut self, stream: i32, end: bool) {
        let Some(stream) = self.open.get_mut(&stream) else { return };
        if let Phase::Head(head) = &mut stream.phase {
            let head = std::mem::take(head);
            stream.begin(self.now, head);
        }
        if end {
            stream.end();
        }
    }

    fn data(&mut self, stream: i32, bytes: &[u8]) {
        self.unread += bytes.len();
        let Some(stream) = self.open.get_mut(&stream) else { return };
        stream.unread += bytes.len();
        if let Phase::Body { incoming, .. } = &mut stream.phase
            && let Err(status) = incoming.push(bytes)
        {
            stream.refuse(status);
        }
    }

    fn data_end(&mut self, stream: i32) {
        if let Some(stream) = self.open.get_mut(&stream) {
            stream.end();
        }
    }

    fn part(&mut self, stream: i32, room: usize) -> Option<Part<'_>> {
        let Some(Phase::Answering(outgoing)) = self.open.get_mut(&stream).map(|stream| &mut stream.phase) else {
            return None;
        };
        let (bytes, last) = outgoing.part(room);
        let trailers = || Then::Trailers(vec![("grpc-status", Cow::Borrowed(b"0"))]);
        Some(Part { bytes, then: if last { trailers() } else { Then::More } })
    }

    fn closed(&mut self, stream: i32, _: u32) {
        self.open.remove(&stream);
    }
}
