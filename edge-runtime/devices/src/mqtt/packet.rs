//! Packets of MQTT 3.1.1 as bytes (OASIS standard, sections 2 and 3), as far as a client needs them that publishes and
//! subscribes with QoS 1. No I/O. Whatever a broker sends is a packet, needs more bytes, or ends the connection.

mod write;

pub(super) use self::write::{DISCONNECT, Login, PINGREQ, connect, length, message, puback, subscribe, unsubscribe};

/// Maximum packet that is read. The payload of a longer message is skipped, and the connection continues.
pub(super) const MAX_PACKET: usize = 128 << 10;

const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const SUBACK: u8 = 9;
const UNSUBACK: u8 = 11;
const PINGRESP: u8 = 13;

/// A packet of a broker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// 0 if it takes the client.
    ConnAck(u8),
    Publish(Publish),
    PubAck(u16),
    /// A code for each filter; 0x80 is a refusal.
    SubAck(u16, Vec<u8>),
    UnsubAck,
    PingResp,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Publish {
    /// Invalid UTF-8 in it is replaced: no device has such a topic.
    pub(super) topic: String,
    /// `None` if it is too long.
    pub(super) payload: Option<Vec<u8>>,
    pub(super) retained: bool,
    /// Id to acknowledge.
    pub(super) id: Option<u16>,
}

/// Reason why a connection ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken(pub(super) String);

/// Makes packets of bytes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
    /// Remaining bytes of the payload to skip.
    skip: usize,
}

impl Decoder {
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        bytes = &bytes[skipped..];
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet, if it is there as a whole.
    ///
    /// # Errors
    /// The bytes are malformed, or a packet that a client must not get.
    pub(super) fn next(&mut self) -> Result<Option<Packet>, Broken> {
        let Some(&first) = self.bytes.first() else { return Ok(None) };
        let Some((length, header)) = remaining(&self.bytes[1..])? else { return Ok(None) };
        let (start, end) = (1 + header, 1 + header + length);
        if first >> 4 == PUBLISH && length > MAX_PACKET {
            return Ok(self.too_long(first, start, length)?.map(Packet::Publish));
        }
        if length > MAX_PACKET {
            return Err(Broken(format!("a packet of type {} has {length} bytes", first >> 4)));
        }
        let Some(body) = self.bytes.get(start..end) else { return Ok(None) };
        let packet = parse(first, body)?;
        self.bytes.drain(..end);
        if self.bytes.is_empty() {
            // A burst leaves no memory behind.
            self.bytes = Vec::new();
        }
        Ok(Some(packet))
    }

    fn too_long(&mut self, first: u8, start: usize, length: usize) -> Result<Option<Publish>, Broken> {
        // Topic and id have at most this many bytes, and the packet has more.
        const HEAD: usize = 2 + u16::MAX as usize + 2;
        let there = &self.bytes[start..];
        let Some(at) = there.first_chunk().map(|size| 2 + usize::from(u16::from_be_bytes(*size)) + 2) else {
            return Ok(None);
        };
        debug_assert!(at <= HEAD && HEAD <= MAX_PACKET, "the payload begins within the packet");
        let Some(head) = there.get(..at) else { return Ok(None) };
        let publish = publish(first, head)?;
        // Without an id, two bytes of the payload have been looked at.
        let passed = length.min(there.len());
        self.skip = length - passed;
        self.bytes.drain(..start + passed);
        Ok(Some(Publish { payload: None, ..publish }))
    }
}

/// Parses the remaining length of the fixed header, and returns the number of its bytes, too.
pub(super) fn remaining(bytes: &[u8]) -> Result<Option<(usize, usize)>, Broken> {
    let mut length = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((length, at + 1)));
        }
    }
    if bytes.len() >= 4 { Err(Broken("a length has more than four bytes".to_owned())) } else { Ok(None) }
}

fn parse(first: u8, body: &[u8]) -> Result<Packet, Broken> {
    match (first >> 4, body) {
        (CONNACK, [_, code]) => Ok(Packet::ConnAck(*code)),
        (PUBLISH, _) => publish(first, body).map(Packet::Publish),
        (PUBACK, [high, low]) => Ok(Packet::PubAck(u16::from_be_bytes([*high, *low]))),
        (SUBACK, [high, low, codes @ ..]) => Ok(Packet::SubAck(u16::from_be_bytes([*high, *low]), codes.to_vec())),
        (UNSUBACK, [_, _]) => Ok(Packet::UnsubAck),
        (PINGRESP, []) => Ok(Packet::PingResp),
        (kind, _) => Err(Broken(format!("a packet of type {kind} and {} bytes is not for a client", body.len()))),
    }
}

fn publish(first: u8, body: &[u8]) -> Result<Publish, Broken> {
    let short = || Broken("a PUBLISH is shorter than its topic".to_owned());
    let (size, rest) = body.split_first_chunk::<2>().ok_or_else(short)?;
    let (topic, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*size))).ok_or_else(short)?;
    let (id, payload) = match (first >> 1) & 3 {
        0 => (None, rest),
        1 => rest.split_first_chunk::<2>().map(|(id, rest)| (Some(u16::from_be_bytes(*id)), rest)).ok_or_else(short)?,
        qos => return Err(Broken(format!("a PUBLISH has QoS {qos}, and was subscribed with 1"))),
    };
    Ok(Publish {
        topic: String::from_utf8_lossy(topic).into_owned(),
        payload: Some(payload.to_vec()),
        retained: first & 1 == 1,
        id,
    })
}

/// Reads them as a whole and cut into pieces.
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let read = |size: usize| {
        let (mut decoder, mut packets) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(size) {
            decoder.feed(piece);
            loop {
                match decoder.next() {
                    Ok(Some(packet)) => packets.push(packet),
                    Ok(None) => break,
                    Err(broken) => return (packets, Some(broken)),
                }
            }
        }
        (packets, None)
    };
    assert_eq!(read(bytes.len().max(1)), read(usize::from(*cut) + 1), "the same, however it is cut");
}

#[cfg(test)]
mod tests;
