//! Packets of one client out of bytes as they come (MQTT 3.1.1, 2.2). No I/O. Whatever a client sends is a packet, needs more
//! bytes, or ends the connection; it never needs more memory than one packet may have.

use super::super::packet::{Broken, remaining};
use super::packet::{self, CONNECT, PUBLISH, Packet};

/// Maximum packet held in memory. The payload of a longer message is skipped, and the connection continues.
pub(super) const MAX_PACKET: usize = 64 << 10;
/// Maximum packet that is skipped.
const MAX_PASSED: usize = 1 << 20;
/// Bytes of memory that are kept for the next packet.
const KEPT: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
    /// Those before this are taken.
    start: usize,
    /// Remaining bytes of the payload to skip.
    skip: usize,
    /// It has said CONNECT.
    greeted: bool,
}

/// Size and position of a packet in the bytes.
#[derive(Debug)]
pub(super) struct Size {
    taken: usize,
    skip: usize,
    connect: bool,
}

fn broken<T>(why: &str) -> Result<T, Broken> {
    Err(Broken(why.to_owned()))
}

impl Decoder {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes.get(skipped..).unwrap_or_default());
    }

    /// Bytes that it has room for.
    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether a part of a packet has come.
    pub(super) const fn is_midway(&self) -> bool {
        self.skip > 0 || self.start < self.bytes.len()
    }

    /// The next packet, if it is there as a whole; it is so until it is [taken](Self::take).
    ///
    /// # Errors
    /// The bytes are not a packet that a client may send now.
    pub(super) fn peek(&self) -> Result<Option<(Packet<'_>, Size)>, Broken> {
        let Some((&first, rest)) = self.bytes.get(self.start..).and_then(<[u8]>::split_first) else { return Ok(None) };
        packet::check_head(first)?;
        let kind = first >> 4;
        match (self.greeted, kind == CONNECT) {
            (false, false) => return broken("the first packet is no CONNECT [MQTT-3.1.0-1]"),
            (true, true) => return broken("it connects twice [MQTT-3.1.0-2]"),
            _ => {}
        }
        let Some((length, header)) = remaining(rest)? else { return Ok(None) };
        let body = rest.get(header..).unwrap_or_default();
        if length > MAX_PACKET {
            return match kind {
                PUBLISH if length <= MAX_PASSED => passed_over(first, header, length, body),
                _ => broken("a packet is longer than anybody needs"),
            };
        }
        let Some(body) = body.get(..length) else { return Ok(None) };
        let size = Size { taken: 1 + header + length, skip: 0, connect: kind == CONNECT };
        Ok(Some((packet::parse(first, body)?, size)))
    }

    pub(super) fn take(&mut self, Size { taken, skip, connect }: Size) {
        self.greeted |= connect;
        self.skip = skip;
        self.start += taken;
        if self.start >= self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT {
                // A burst leaves no memory behind.
                self.bytes = Vec::new();
            }
        }
    }
}

/// A message with topic and id, and without the payload.
fn passed_over(first: u8, header: usize, length: usize, body: &[u8]) -> Result<Option<(Packet<'_>, Size)>, Broken> {
    let with_id = first & 0x06 != 0;
    let Some(topic) = body.first_chunk().map(|size| usize::from(u16::from_be_bytes(*size))) else { return Ok(None) };
    let head = 2 + topic + if with_id { 2 } else { 0 };
    if head > MAX_PACKET {
        return broken("a topic is longer than anybody needs");
    }
    let Some(head) = body.get(..head) else { return Ok(None) };
    let packet = packet::publish_without_payload(first, head)?;
    let there = length.min(body.len());
    Ok(Some((packet, Size { taken: 1 + header + there, skip: length - there, connect: false })))
}
