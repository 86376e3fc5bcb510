//! HTTP/2 frames (RFC 9113), as far as one call of a client needs them. Bytes to values, no I/O.

/// Maximum payload to a peer that did not allow more.
pub(super) const MAX_PAYLOAD: usize = 16_384;
pub(super) const HEAD: usize = 9;
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

/// Flag of `SETTINGS` and `PING`; the same bit is [`END_STREAM`] in other frames.
pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// One frame; `stream` 0 is the connection itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        out.extend_from_slice(&length[1..]);
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.payload);
    }

    /// Removes a frame from the front of the input; `None` until it is complete.
    ///
    /// # Errors
    /// It is larger than allowed: most likely the peer does not speak HTTP/2.
    pub(super) fn read(seen: &mut Vec<u8>) -> Result<Option<Self>, &'static str> {
        let Some(head) = seen.first_chunk::<HEAD>() else { return Ok(None) };
        let [a, b, c, kind, flags, stream @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
        if length > MAX_PAYLOAD {
            return Err("the server does not speak HTTP/2");
        }
        if seen.len() < HEAD + length {
            return Ok(None);
        }
        let rest = seen.split_off(HEAD + length);
        let payload = seen.split_off(HEAD);
        *seen = rest;
        Ok(Some(Self { kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff, payload }))
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Payload of `DATA` and `HEADERS` without padding and priority.
    pub(super) fn body(&self) -> &[u8] {
        let mut body = self.payload.as_slice();
        if self.has(PADDED)
            && let Some((padding, rest)) = body.split_first()
        {
            body = rest.get(..rest.len().saturating_sub(usize::from(*padding))).unwrap_or_default();
        }
        if self.kind == HEADERS && self.has(PRIORITY) {
            body = body.get(5..).unwrap_or_default();
        }
        body
    }
}
