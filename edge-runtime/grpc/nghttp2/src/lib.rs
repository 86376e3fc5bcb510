//! HTTP/2 (RFC 9113) without I/O: sessions of nghttp2 with a safe interface. Bytes go in and out; callbacks of a
//! handler report their meaning. Does not know what is sent over it.
//!
//! nghttp2 takes every `:authority` that RFC 3986 allows, percent-encoded paths of sockets among them, as gRPC's clients send
//! them.

mod callbacks;
mod session;

use std::borrow::Cow;
use std::fmt;

pub use session::Session;

/// A header field. Names in lower case.
pub type Field<'a> = (&'static str, Cow<'a, [u8]>);

/// What begins a frame, RFC 9113 section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: i32,
    pub length: usize,
}

/// Kinds of frames and their flags, RFC 9113 section 6.
pub mod frame {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const SETTINGS: u8 = 4;
    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
}

/// Error codes, RFC 9113 section 7.
pub mod code {
    pub const NO_ERROR: u32 = 0;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
    pub const INADEQUATE_SECURITY: u32 = 12;
}

/// Settings, RFC 9113 section 6.5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Setting {
    HeaderTableSize = 1,
    EnablePush = 2,
    MaxConcurrentStreams = 3,
    InitialWindowSize = 4,
    MaxHeaderListSize = 6,
}

/// Bounds on what a peer may cost, beyond which nghttp2 ends the connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Answers to PING and SETTINGS that wait to be sent.
    pub acks: usize,
    /// Entries of a SETTINGS frame.
    pub settings: usize,
    /// CONTINUATION frames after one HEADERS.
    pub continuations: usize,
    /// RST_STREAM of the peer: at once, and per second.
    pub resets: (u64, u64),
    /// Frames that mean nothing, such as for streams that are closed: at once, and per second.
    pub glitches: (u64, u64),
    /// Bytes of the table that this side's own header fields are compressed with.
    pub table: usize,
}

/// A part of a body.
#[derive(Debug)]
pub struct Part<'a> {
    /// No more than there is room for.
    pub bytes: &'a [u8],
    pub then: Then,
}

/// What follows a part.
#[derive(Debug)]
pub enum Then {
    More,
    /// The end of the stream.
    End,
    /// These fields, and the end of the stream.
    Trailers(Vec<Field<'static>>),
}

/// The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal;

/// The stream is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Receives what a peer sends, and returns what to send. Must not panic: nghttp2, through which a panic would unwind,
/// is C.
pub trait Handler {
    /// A frame begins.
    ///
    /// # Errors
    /// It is one too many.
    fn frame(&mut self, frame: Frame) -> Result<(), Fatal>;

    /// A field of a header block, of the first or of trailers.
    ///
    /// # Errors
    /// It is one too many, or too long.
    fn field(&mut self, stream: i32, name: &[u8], value: &[u8]) -> Result<(), Refused>;

    /// A header block is complete, and with `end` so is the stream.
    fn fields_end(&mut self, stream: i32, end: bool);

    /// A part of the body. The peer may send as much again when it was `consumed`.
    fn data(&mut self, stream: i32, bytes: &[u8]);

    /// The body, and with it the stream, is complete.
    fn data_end(&mut self, stream: i32);

    /// The next part of the body to be sent, of `room` bytes at most; none to reset the stream.
    fn part(&mut self, stream: i32, room: usize) -> Option<Part<'_>>;

    /// The stream has ended, for this reason (RFC 9113 section 7).
    fn closed(&mut self, stream: i32, code: u32);
}

/// An error code of nghttp2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(i32);

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(session::text(*self))
    }
}

impl std::error::Error for Error {}
