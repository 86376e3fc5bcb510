//! The answer of a server to one call, from HTTP/2 events.

use std::time::Instant;

use sampan_nghttp2::{Fatal, Frame, Handler, Part, Refused, Then, code};

use super::outcome::Outcome;
use crate::fields::{Sum, is_grpc};
use crate::flood::Flood;
use crate::message::{Incoming, Messages, Outgoing};
use crate::{Code, Status, status};

#[derive(Debug)]
pub(super) struct Answers {
    pub(super) now: Instant,
    pub(super) flood: Flood,
    /// The call under way.
    pub(super) asked: Option<Asked>,
    /// Bytes of bodies since this was last looked at.
    pub(super) unread: usize,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) stream: i32,
    request: Outgoing,
    fields: Sum,
    http: Vec<u8>,
    is_grpc: bool,
    code: Option<Code>,
    text: Vec<u8>,
    body: Body,
    /// Something of the body is there.
    begun: bool,
    end: Option<End>,
}

/// What the server answers with.
#[derive(Debug)]
pub(super) enum Body {
    One(Incoming),
    Many(Messages),
}

impl Body {
    /// The message; an empty one for a stream, whose messages are taken before.
    fn finish(self) -> Result<Vec<u8>, Status> {
        match self {
            Self::One(message) => message.finish(),
            Self::Many(messages) => messages.finish().map(|()| Vec::new()),
        }
    }
}

#[derive(Debug)]
enum End {
    /// The server has said everything.
    Stream,
    /// And nothing is under way any more.
    Closed,
    Reset(u32),
    Wrong(Status),
}

impl Asked {
    pub(super) fn new(stream: i32, request: Outgoing, body: Body) -> Self {
        Self {
            stream,
            request,
            fields: Sum::default(),
            http: Vec::new(),
            is_grpc: false,
            code: None,
            text: Vec::new(),
            body,
            begun: false,
            end: None,
        }
    }

    /// Whether it has ended, and no message of it waits to be taken.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_some() && !matches!(&self.body, Body::Many(messages) if messages.has_next())
    }

    /// Whether the server has begun to answer, with a message or with the end.
    pub(super) const fn has_begun(&self) -> bool {
        self.begun || self.end.is_some()
    }

    /// Whether the connection holds nothing of the call any more.
    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.end, Some(End::Closed | End::Reset(_)))
    }

    /// Takes a part of the body.
    fn push(&mut self, bytes: &[u8]) {
        // An answer that is not gRPC is a page of text or similar.
        if !self.is_grpc {
            return;
        }
        self.begun = true;
        match &mut self.body {
            Body::One(message) => {
                if let Err(status) = message.push(bytes) {
                    self.wrong(status);
                }
            }
            Body::Many(messages) => messages.push(bytes),
        }
    }

    /// Reads on in what has arrived, of which `unread` bytes are new; returns the number of bytes that the server may send
    /// in addition.
    pub(super) fn read_on(&mut self, unread: usize) -> usize {
        match &mut self.body {
            Body::Many(messages) if self.is_grpc => messages.fill().unwrap_or_else(|status| {
                self.wrong(status);
                0
            }),
            _ => unread,
        }
    }

    /// The next message of a stream.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        match &mut self.body {
            Body::One(_) => None,
            Body::Many(messages) => messages.take(),
        }
    }

    /// An end that is there already stays.
    pub(super) fn wrong(&mut self, status: Status) {
        self.end.get_or_insert(End::Wrong(status));
    }

    pub(super) fn outcome(self) -> Outcome {
        match self.end {
            Some(End::Wrong(status)) => Outcome::Answered(Err(status)),
            Some(End::Reset(code::REFUSED_STREAM)) => {
                Outcome::Untaken(Status::new(Code::Unavailable, "the server does not take the call"))
            }
            Some(End::Reset(reset)) => {
                let why = format!("the server resets the call ({reset})");
                Outcome::Answered(Err(Status::new(Code::of_reset(reset), why)))
            }
            Some(End::Stream | End::Closed) => Outcome::Answered(self.answer()),
            None => Outcome::Answered(Err(Status::new(Code::Internal, "the call is not over"))),
        }
    }

    fn answer(self) -> Result<Vec<u8>, Status> {
        match self.code {
            Some(Code::Ok) => self.body.finish(),
            Some(code) => Err(Status::new(code, status::decode(&self.text))),
            None if self.http != b"200" => {
                let why = format!("HTTP status {}", String::from_utf8_lossy(&self.http));
                Err(Status::new(Code::of_http(&self.http), why))
            }
            None if !self.is_grpc => Err(Status::new(Code::Unknown, "the answer is not gRPC's")),
            None => Err(Status::new(Code::Internal, "the answer has no status")),
        }
    }
}

impl Answers {
    pub(super) const fn new(now: Instant) -> Self {
        Self { now, flood: Flood::new(now), asked: None, unread: 0 }
    }

    fn asked(&mut self, stream: i32) -> Option<&mut Asked> {
        self.asked.as_mut().filter(|asked| asked.stream == stream)
    }
}

impl Handler for Answers {
    fn frame(&mut self, frame: Frame) -> Result<(), Fatal> {
        self.flood.frame(self.now, frame)
    }

    fn field(&mut self, stream: i32, name: &[u8], value: &[u8]) -> Result<(), Refused> {
        let Some(asked) = self.asked(stream) else { return Ok(()) };
        if !asked.fields.add(name, value) {
            asked.wrong(Status::new(Code::ResourceExhausted, "the answer has too many header fields"));
            return Err(Refused);
        }
        match name {
            b":status" => asked.http = value.to_vec(),
            b"content-type" => asked.is_grpc = is_grpc(value),
            b"grpc-status" => asked.code = Some(Code::parse(value)),
            b"grpc-message" => asked.text = value.to_vec(),
            _ => {}
        }
        Ok(())
    }

    fn fields_end(&mut self, stream: i32, end: bool) {
        if end {
            self.data_end(stream);
        }
    }

    fn data(&mut self, stream: i32, bytes: &[u8]) {
        self.unread += bytes.len();
        if let Some(asked) = self.asked(stream) {
            asked.push(bytes);
        }
    }

    fn data_end(&mut self, stream: i32) {
        if let Some(asked) = self.asked(stream) {
            asked.end.get_or_insert(End::Stream);
        }
    }

    fn part(&mut self, stream: i32, room: usize) -> Option<Part<'_>> {
        let (bytes, last) = self.asked(stream)?.request.part(room);
        Some(Part { bytes, then: if last { Then::End } else { Then::More } })
    }

    fn closed(&mut self, stream: i32, code: u32) {
        let Some(asked) = self.asked(stream) else { return };
        match asked.end {
            Some(End::Stream) => asked.end = Some(End::Closed),
            None => asked.end = Some(End::Reset(code)),
            Some(_) => {}
        }
    }
}
