//! Netlink messages as bytes: header, fixed part, nested attributes (netlink(7), rtnetlink(7)). Pure.

/// Bytes of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// Bytes of `struct nlattr`.
const ATTRIBUTE_HEADER: usize = 4;
/// Set in an attribute's type by newer kernels to mark a container; not part of the type.
const TYPE_MASK: u16 = 0x3fff;

/// One request under construction.
#[derive(Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// `kind` is `RTM_*`, `flags` `NLM_F_*` (`NLM_F_REQUEST` is always set); `fixed` the family's own header.
    pub fn new(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        let flags = u16::try_from(flags | nix::libc::NLM_F_REQUEST).unwrap_or_default();
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    pub fn attribute(self, kind: u16, payload: &[u8]) -> Self {
        self.nest(kind, |nest| nest.raw(payload))
    }

    /// A string with the terminating zero that `IFLA_IFNAME` and kind names need.
    pub fn text(self, kind: u16, text: &str) -> Self {
        self.nest(kind, |nest| nest.raw(text.as_bytes()).raw(&[0]))
    }

    /// An attribute of attributes, which `fill` adds.
    pub fn nest(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        let mut filled = fill(self.raw(&[0, 0]).raw(&kind.to_ne_bytes()));
        // All our messages are a few hundred bytes.
        let length = u16::try_from(filled.bytes.len() - start).unwrap_or(u16::MAX);
        filled.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        filled.bytes.resize(filled.bytes.len().next_multiple_of(4), 0);
        filled
    }

    /// Bytes inside a nest that are not an attribute (the fixed header of a veth's peer).
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The finished message with its sequence number; `ack` asks for an answer even on success.
    pub(super) fn finish(mut self, sequence: u32, ack: bool) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        if ack {
            let flags = u16_at(&self.bytes, 6).unwrap_or_default() | u16::try_from(nix::libc::NLM_F_ACK).unwrap_or(4);
            self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        }
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// One message of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub kind: u16,
    pub sequence: u32,
    /// What follows the netlink header.
    pub body: &'a [u8],
}

/// Splits a datagram into messages; stops at the first malformed one.
pub fn answers(datagram: &[u8]) -> impl Iterator<Item = Answer<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(rest, 0)?).ok()?;
        let message = rest.get(..length).filter(|message| message.len() >= HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Answer { kind: u16_at(message, 4)?, sequence: u32_at(message, 8)?, body: &message[HEADER..] })
    })
}

/// Attributes of a message body behind its fixed header, or of a nest: `(type, payload)`.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & TYPE_MASK;
        let payload = rest.get(ATTRIBUTE_HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A zero-terminated string payload.
pub fn text(payload: &[u8]) -> &str {
    let end = payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len());
    std::str::from_utf8(&payload[..end]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_message_is_parsed() {
        let request = Request::new(16, 0, &[7; 16]).text(3, "eth0").nest(18, |nest| nest.attribute(1, &[9, 9, 9]));
        let bytes = request.finish(42, true);
        let message = answers(&bytes).next().unwrap();
        assert_eq!((message.kind, message.sequence), (16, 42));
        let all: Vec<_> = attributes(&message.body[16..]).collect();
        assert_eq!(text(all[0].1), "eth0");
        assert_eq!(attributes(all[1].1).next().unwrap(), (1, &[9u8, 9, 9][..]));
        assert_eq!(u16_at(&bytes, 6).unwrap(), 5);
    }

    #[test]
    fn truncated_bytes_end_the_walk() {
        let bytes = Request::new(16, 0, &[0; 16]).attribute(1, &[1, 2, 3, 4]).finish(1, false);
        for cut in 0..bytes.len() {
            for message in answers(&bytes[..cut]) {
                attributes(message.body).for_each(drop);
            }
        }
        assert_eq!(attributes(&[2, 0, 1, 0]).count(), 0);
    }
}
