//! A message on the wire, "gRPC over HTTP2", Length-Prefixed-Message: a flag for compression, the length, the bytes. There is
//! exactly one each way.

use super::{Code, Status};

/// Maximum size of a message, in bytes: the default of gRPC's own servers and clients.
pub const MAX_MESSAGE: usize = 4 << 20;
const PREFIX: usize = 5;

/// Puts the prefix before a message.
pub(super) fn framed(mut message: Vec<u8>) -> Result<Vec<u8>, Status> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MAX_MESSAGE);
    let length = length.ok_or_else(|| too_long(message.len()))?;
    message.reserve_exact(PREFIX);
    message.push(0);
    message.extend(length.to_be_bytes());
    message.rotate_right(PREFIX);
    Ok(message)
}

fn too_long(length: usize) -> Status {
    Status::new(Code::ResourceExhausted, format!("a message of {length} bytes, where {MAX_MESSAGE} are allowed"))
}

/// A message that comes in parts.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    prefix: [u8; PREFIX],
    prefixed: usize,
    /// Once the prefix is there.
    length: Option<usize>,
    bytes: Vec<u8>,
}

impl Incoming {
    /// # Errors
    /// It is too long, compressed, or there is more than one.
    pub(super) fn push(&mut self, mut part: &[u8]) -> Result<(), Status> {
        while self.length.is_none() {
            let Some((byte, rest)) = part.split_first() else { return Ok(()) };
            part = rest;
            if let Some(place) = self.prefix.get_mut(self.prefixed) {
                *place = *byte;
            }
            self.prefixed += 1;
            if self.prefixed == PREFIX {
                self.length = Some(parse(self.prefix)?);
            }
        }
        if self.bytes.len() + part.len() > self.length.unwrap_or(0) {
            return Err(Status::new(Code::Unimplemented, "more than one message, or one that is longer than it says"));
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Length in its header; `None` before the header is complete.
    pub(super) const fn length(&self) -> Option<usize> {
        self.length
    }

    /// # Errors
    /// The message is shorter than its header says, or missing.
    pub(super) fn finish(self) -> Result<Vec<u8>, Status> {
        if self.length == Some(self.bytes.len()) {
            Ok(self.bytes)
        } else if self.prefixed == 0 {
            Err(Status::new(Code::Unimplemented, "no message, where one is expected"))
        } else {
            Err(Status::new(Code::Internal, "the message ends before its end"))
        }
    }
}

fn parse([flag, length @ ..]: [u8; PREFIX]) -> Result<usize, Status> {
    match flag {
        0 => {}
        1 => return Err(Status::new(Code::Unimplemented, "a compressed message, and no compression was agreed on")),
        _ => return Err(Status::new(Code::Internal, "no gRPC message")),
    }
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE { Err(too_long(length)) } else { Ok(length) }
}

/// A message that goes out in parts.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    at: usize,
}

impl Outgoing {
    pub(super) const fn new(framed: Vec<u8>) -> Self {
        Self { bytes: framed, at: 0 }
    }

    /// The next part, and whether it is the last.
    pub(super) fn part(&mut self, room: usize) -> (&[u8], bool) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let part = rest.get(..room).unwrap_or(rest);
        self.at += part.len();
        (part, part.len() == rest.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(wire: &[u8], sizes: &[usize]) -> Result<Vec<u8>, Status> {
        let (mut incoming, mut rest) = (Incoming::default(), wire);
        for size in sizes.iter().cycle() {
            let (part, after) = rest.split_at((*size).min(rest.len()));
            incoming.push(part)?;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        incoming.finish()
    }

    proptest! {
        #[test]
        fn split_message_is_joined(
            message in prop::collection::vec(any::<u8>(), 0..300),
            sizes in prop::collection::vec(1..50_usize, 1..5),
        ) {
            let mut outgoing = Outgoing::new(framed(message.clone()).expect("short enough"));
            let mut wire = Vec::new();
            for size in sizes.iter().cycle() {
                let (part, last) = outgoing.part(*size);
                wire.extend_from_slice(part);
                if last {
                    break;
                }
            }
            prop_assert_eq!(read(&wire, &sizes), Ok(message));
            let short = read(&wire[..wire.len() - 1], &sizes).map_err(|status| status.code);
            prop_assert_eq!(short, Err(Code::Internal));
            wire.push(0);
            prop_assert_eq!(read(&wire, &sizes).map_err(|status| status.code), Err(Code::Unimplemented));
        }
    }

    #[test]
    fn unsupported_message_is_refused_by_its_prefix() {
        let code = |wire: &[u8]| read(wire, &[3]).map_err(|status| status.code);
        assert_eq!(code(&[1, 0, 0, 0, 1, 9]), Err(Code::Unimplemented));
        assert_eq!(code(&[2, 0, 0, 0, 1, 9]), Err(Code::Internal));
        assert_eq!(code(&[0, 0xff, 0xff, 0xff, 0xff]), Err(Code::ResourceExhausted));
        assert_eq!(code(&[0, 0, 0x40, 0, 1]), Err(Code::ResourceExhausted));
        assert_eq!(code(&[]), Err(Code::Unimplemented));
        let long = framed(vec![0; MAX_MESSAGE + 1]).map_err(|status| status.code);
        assert_eq!(long, Err(Code::ResourceExhausted));
        assert_eq!(framed(vec![7; MAX_MESSAGE]).map(|framed| framed.len()), Ok(MAX_MESSAGE + PREFIX));
    }
}
