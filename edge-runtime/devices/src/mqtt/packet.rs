//! Packets of MQTT 3.1.1 as bytes (OASIS standard, sections 2 and 3), as far as a client needs them that publishes and
//! subscribes with QoS 1. No I/O. Whatever a broker sends is a packet, needs more bytes, or ends the connection.

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

/// Name and password of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) client_id: String,
    pub(super) username: String,
    pub(super) password: Vec<u8>,
}

/// A clean session.
pub(super) fn connect(login: &Login, keep_alive: u16) -> Vec<u8> {
    const CLEAN: u8 = 0x02;
    let (mut flags, mut payload) = (CLEAN, Vec::new());
    text(&mut payload, login.client_id.as_bytes());
    if !login.username.is_empty() {
        flags |= 0x80;
        text(&mut payload, login.username.as_bytes());
        if !login.password.is_empty() {
            flags |= 0x40;
            text(&mut payload, &login.password);
        }
    }
    let mut body = Vec::new();
    text(&mut body, b"MQTT");
    body.extend([4, flags]);
    body.extend(keep_alive.to_be_bytes());
    body.extend(payload);
    packet(0x10, &body)
}

/// Subscribes with QoS 1.
pub(super) fn subscribe(id: u16, filters: &[impl AsRef<str>]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    for filter in filters {
        text(&mut body, filter.as_ref().as_bytes());
        body.push(1);
    }
    packet(0x82, &body)
}

pub(super) fn unsubscribe(id: u16, filters: &[String]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    for filter in filters {
        text(&mut body, filter.as_bytes());
    }
    packet(0xa2, &body)
}

/// Adds a PUBLISH; QoS 1 with an id.
pub(super) fn message(to: &mut Vec<u8>, topic: &str, payload: &[u8], id: Option<u16>, retained: bool) {
    to.push(0x30 | if id.is_some() { 2 } else { 0 } | u8::from(retained));
    length(to, 2 + topic.len() + id.map_or(0, |_| 2) + payload.len());
    text(to, topic.as_bytes());
    to.extend(id.into_iter().flat_map(u16::to_be_bytes));
    to.extend_from_slice(payload);
}

pub(super) const fn puback(id: u16) -> [u8; 4] {
    let [high, low] = id.to_be_bytes();
    [0x40, 2, high, low]
}

pub(super) const PINGREQ: [u8; 2] = [0xc0, 0];
pub(super) const DISCONNECT: [u8; 2] = [0xe0, 0];

/// Adds a text. Its length has two bytes; a longer text is cut.
pub(super) fn text(to: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    to.extend(length.to_be_bytes());
    to.extend(&bytes[..usize::from(length)]);
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 5);
    packet.push(first);
    length(&mut packet, body.len());
    packet.extend(body);
    packet
}

/// 2.2.3
pub(super) fn length(to: &mut Vec<u8>, mut length: usize) {
    loop {
        let [low, ..] = (length & 0x7f).to_le_bytes();
        length >>= 7;
        to.push(if length > 0 { low | 0x80 } else { low });
        if length == 0 {
            return;
        }
    }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8], cut: usize) -> Result<Vec<Packet>, Broken> {
        let (mut decoder, mut packets) = (Decoder::default(), Vec::new());
        for part in bytes.chunks(cut.max(1)) {
            decoder.feed(part);
            while let Some(packet) = decoder.next()? {
                packets.push(packet);
            }
            assert!(decoder.bytes.len() <= MAX_PACKET + 5 + cut, "it holds {} bytes", decoder.bytes.len());
        }
        Ok(packets)
    }

    fn from_broker(first: u8, topic: &str, id: Option<u16>, payload: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        text(&mut body, topic.as_bytes());
        body.extend(id.into_iter().flat_map(u16::to_be_bytes));
        body.extend(payload);
        packet(first, &body)
    }

    #[test]
    fn a_login_is_as_the_standard_has_it() {
        let login = Login { client_id: "c".into(), username: "u".into(), password: b"p".to_vec() };
        let wanted = b"\x10\x13\x00\x04MQTT\x04\xc2\x00\x1e\x00\x01c\x00\x01u\x00\x01p";
        assert_eq!(connect(&login, 30), wanted);
        assert_eq!(connect(&Login { client_id: "c".into(), ..Login::default() }, 30)[9], 0x02);
        assert_eq!(subscribe(1, &["a/#"]), b"\x82\x08\x00\x01\x00\x03a/#\x01");
        assert_eq!(unsubscribe(3, &["a".to_owned()]), b"\xa2\x05\x00\x03\x00\x01a");
        let mut said = Vec::new();
        message(&mut said, "a", b"x", Some(7), false);
        assert_eq!(said, b"\x32\x06\x00\x01a\x00\x07x");
        assert_eq!(puback(258), [0x40, 2, 1, 2]);
    }

    #[test]
    fn split_packets_are_joined() {
        let mut bytes = vec![0x20, 2, 0, 0, 0x90, 3, 0, 1, 1, 0x40, 2, 0, 7, 0xd0, 0];
        bytes.extend(from_broker(0x33, "a/b", Some(9), b"{}"));
        bytes.extend(from_broker(0x30, "c", None, b""));
        let wanted = || {
            vec![
                Packet::ConnAck(0),
                Packet::SubAck(1, vec![1]),
                Packet::PubAck(7),
                Packet::PingResp,
                Packet::Publish(Publish {
                    topic: "a/b".into(),
                    payload: Some(b"{}".to_vec()),
                    retained: true,
                    id: Some(9),
                }),
                Packet::Publish(Publish { topic: "c".into(), payload: Some(vec![]), retained: false, id: None }),
            ]
        };
        for cut in 1..bytes.len() {
            assert_eq!(all(&bytes, cut), Ok(wanted()));
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_passed_over() {
        for (first, id) in [(0x32, Some(3)), (0x30, None)] {
            let mut bytes = from_broker(first, "big", id, &vec![b'x'; 3 << 20]);
            bytes.extend([0xd0, 0]);
            for cut in [1 << 10, 1 << 16, 5, 4 << 20] {
                let big = Publish { topic: "big".into(), payload: None, retained: false, id };
                assert_eq!(all(&bytes, cut), Ok(vec![Packet::Publish(big), Packet::PingResp]), "{cut}");
            }
        }
    }

    #[test]
    fn malformed_packet_ends_the_connection() {
        for bytes in [
            &[0x20, 1, 0][..],
            &[0x10, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x34, 5, 0, 1, b'a', 0, 1],
            &[0x32, 4, 0, 9, b'a', 0],
            &[0x30, 1, 0],
            &[0xd0, 1, 0],
            &[0x90, 0x80, 0x80, 0x80, 1],
        ] {
            assert!(all(bytes, 1).is_err(), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1_usize..300) {
            // Packets, an error or nothing: but no panic, and no memory without end.
            let _ = all(&bytes, cut);
        }
    }
}
