//! A message on the wire, "gRPC over HTTP2", Length-Prefixed-Message: a flag for compression, the length, the bytes. There is
//! exactly one each way, except in streams.

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
    pub(super) fn push(&mut self, part: &[u8]) -> Result<(), Status> {
        match self.fill(part)? {
            [] => Ok(()),
            _ => Err(Status::new(Code::Unimplemented, "more than one message, or one that is longer than it says")),
        }
    }

    /// Takes what belongs to this message, and returns what comes after it.
    fn fill<'a>(&mut self, mut part: &'a [u8]) -> Result<&'a [u8], Status> {
        while self.length.is_none() {
            let Some((byte, rest)) = part.split_first() else { return Ok(part) };
            part = rest;
            if let Some(place) = self.prefix.get_mut(self.prefixed) {
                *place = *byte;
            }
            self.prefixed += 1;
            if self.prefixed == PREFIX {
                self.length = Some(parse(self.prefix)?);
            }
        }
        let missing = self.length.unwrap_or(0).saturating_sub(self.bytes.len());
        let (own, after) = part.split_at(missing.min(part.len()));
        self.bytes.extend_from_slice(own);
        Ok(after)
    }

    fn is_complete(&self) -> bool {
        self.length == Some(self.bytes.len())
    }

    /// Length in its header; `None` before the header is complete.
    pub(super) const fn length(&self) -> Option<usize> {
        self.length
    }

    /// # Errors
    /// The message is shorter than its header says, or missing.
    pub(super) fn finish(self) -> Result<Vec<u8>, Status> {
        if self.is_complete() {
            Ok(self.bytes)
        } else if self.prefixed == 0 {
            Err(Status::new(Code::Unimplemented, "no message, where one is expected"))
        } else {
            Err(Status::new(Code::Internal, "the message ends before its end"))
        }
    }
}

/// Messages of a stream, one after the other. It reads on in what has arrived only when the message before is taken.
#[derive(Debug, Default)]
pub(super) struct Messages {
    current: Incoming,
    /// What has arrived behind it: no more than the window allows.
    rest: Vec<u8>,
    /// How much of that is in a message already.
    at: usize,
}

impl Messages {
    pub(super) fn push(&mut self, part: &[u8]) {
        self.rest.drain(..self.at.min(self.rest.len()));
        self.at = 0;
        self.rest.extend_from_slice(part);
    }

    /// Reads on, unless a message waits to be taken; returns the number of bytes that the sender may send in addition.
    ///
    /// # Errors
    /// A message is too long or compressed.
    pub(super) fn fill(&mut self) -> Result<usize, Status> {
        if self.current.is_complete() {
            return Ok(0);
        }
        let arrived = self.rest.get(self.at..).unwrap_or_default();
        let after = self.current.fill(arrived)?.len();
        let used = arrived.len() - after;
        self.at += used;
        if after == 0 {
            // A stream that waits for its next message holds nothing.
            (self.rest, self.at) = (Vec::new(), 0);
        }
        Ok(used)
    }

    /// Whether a message waits to be taken.
    pub(super) fn has_next(&self) -> bool {
        self.current.is_complete()
    }

    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.has_next().then(|| std::mem::take(&mut self.current).bytes)
    }

    /// # Errors
    /// The last message is shorter than its header says.
    pub(super) fn finish(self) -> Result<(), Status> {
        if self.current.prefixed == 0 { Ok(()) } else { self.current.finish().map(drop) }
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

    /// Messages that come in parts of these sizes and are taken as soon as they can be, and how the stream ends.
    fn read_all(wire: &[u8], sizes: &[usize]) -> (Vec<Vec<u8>>, Result<(), Status>) {
        let (mut messages, mut taken, mut used) = (Messages::default(), Vec::new(), 0);
        let mut rest = wire;
        for size in sizes.iter().cycle() {
            let (part, after) = rest.split_at((*size).min(rest.len()));
            messages.push(part);
            loop {
                match messages.fill() {
                    Ok(count) => used += count,
                    Err(status) => return (taken, Err(status)),
                }
                let Some(message) = messages.take() else { break };
                taken.push(message);
            }
            rest = after;
            assert_eq!(used, wire.len() - rest.len(), "all that has arrived is used");
            if rest.is_empty() {
                break;
            }
        }
        (taken, messages.finish())
    }

    proptest! {
        #[test]
        fn split_messages_of_a_stream_are_joined(
            all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..9),
            sizes in prop::collection::vec(1..150_usize, 1..5),
        ) {
            let wire: Vec<u8> = all.iter().flat_map(|one| framed(one.clone()).expect("short enough")).collect();
            prop_assert_eq!(read_all(&wire, &sizes), (all.clone(), Ok(())));
            let (taken, end) = read_all(&wire[..wire.len() - 1], &sizes);
            prop_assert_eq!(taken.len(), all.len() - 1);
            prop_assert_eq!(end.map_err(|status| status.code), Err(Code::Internal));
        }
    }

    #[test]
    fn message_that_is_not_taken_holds_up_those_behind_it() {
        let mut messages = Messages::default();
        let one = framed(vec![7; 11]).expect("short enough");
        messages.push(&one.repeat(3));
        assert_eq!((messages.fill(), messages.has_next()), (Ok(16), true));
        messages.push(&one);
        assert_eq!(messages.fill(), Ok(0));
        for _ in 0..3 {
            assert_eq!(messages.take(), Some(vec![7; 11]));
            assert_eq!(messages.fill(), Ok(16));
            assert!(messages.rest.len() <= 4 * 16);
        }
        assert_eq!((messages.take(), messages.take()), (Some(vec![7; 11]), None));
        assert_eq!((messages.fill(), messages.rest.capacity()), (Ok(0), 0));
        messages.push(&[1, 0, 0, 0, 0]);
        assert_eq!(messages.fill().map_err(|status| status.code), Err(Code::Unimplemented));
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
