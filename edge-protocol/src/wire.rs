//! Frames as websocket messages: texts as they are or packed, bytes of streams as binary frames of their own.
//!
//! A binary message is a packed text ([`compress`](crate::compress)) unless its first byte is one that begins no
//! deflate data (block type 3): then it is a stream's data, where both sides have the feature
//! [`RAW_STREAMS`](crate::version::RAW_STREAMS):
//!
//! | bytes | |
//! |---|---|
//! | 1 | 6: the bytes as they are, 7: raw deflate of them, without a dictionary |
//! | 1 to 10 | number of the stream, seven bits a byte, lowest first, the high bit says that more follow |
//! | rest | the bytes, at most [`MAX_FRAME`] |
//!
//! Text frames stay possible at any time. Knows nothing of sockets, sessions or credit.

use crate::body::Slice;
use crate::compress::{self, UnpackError};
use crate::frame::MAX_FRAME;
use crate::message::StreamId;
use std::sync::Arc;

const PLAIN: u8 = 6;
const DEFLATED: u8 = 7;

/// Fewer bytes of a stream are not packed: there is nothing to find, and to look costs more than to send them.
const MIN: usize = 128;
/// Number of bytes of a chunk that decide whether it is worth packing.
const SAMPLE: usize = 512;
/// Number of different byte values in a sample above which it is not packed: random bytes have about 220 of 256,
/// programs 150, texts less than 100.
const DENSE: u32 = 192;

/// A message for the websocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    Text(String),
    Binary(Vec<u8>),
    /// A binary message that others are sent, too; from bridges only.
    Shared(Arc<[u8]>),
}

/// The next frame. It can be encoded without the session, which takes time.
#[derive(Debug)]
pub struct Frame {
    what: What,
    /// The peer reads packed frames.
    packed: bool,
}

#[derive(Debug)]
enum What {
    Own(Content),
    Shared(Slice),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Text(String),
    /// Only for peers that read it.
    Data {
        stream: StreamId,
        data: Vec<u8>,
    },
}

impl Frame {
    pub fn new(content: Content, packed: bool) -> Self {
        Self { what: What::Own(content), packed }
    }

    pub(crate) fn shared(slice: Slice, packed: bool) -> Self {
        Self { what: What::Shared(slice), packed }
    }

    /// The message, packed where that is worth it.
    pub fn wire(self) -> Wire {
        match self.what {
            What::Own(Content::Text(text)) if self.packed => {
                compress::pack(&text).map_or_else(|| Wire::Text(text), Wire::Binary)
            }
            What::Own(Content::Text(text)) => Wire::Text(text),
            What::Own(Content::Data { stream, data }) => Wire::Binary(stream_frame(stream, &data)),
            What::Shared(slice) if self.packed => slice.packed().map_or_else(|| Wire::Text(slice.text()), Wire::Shared),
            What::Shared(slice) => Wire::Text(slice.text()),
        }
    }
}

fn stream_frame(stream: StreamId, data: &[u8]) -> Vec<u8> {
    let packed = if data.len() < MIN || is_dense(data) { None } else { compress::pack_bytes(data) };
    let (kind, data) = packed.as_deref().map_or((PLAIN, data), |packed| (DEFLATED, packed));
    let mut frame = Vec::with_capacity(data.len() + 4);
    frame.push(kind);
    let mut rest = stream;
    while rest > 0x7f {
        frame.push(0x80 | rest.to_le_bytes()[0]);
        rest >>= 7;
    }
    frame.push(rest.to_le_bytes()[0]);
    frame.extend_from_slice(data);
    frame
}

/// Whether nothing can be gained, by a few bytes from all over the chunk.
fn is_dense(data: &[u8]) -> bool {
    let mut seen = [false; 256];
    data.iter().step_by((data.len() / SAMPLE).max(1)).take(SAMPLE).for_each(|byte| seen[usize::from(*byte)] = true);
    let values = seen.iter().map(|seen| u32::from(*seen)).sum::<u32>();
    data.len() >= SAMPLE && values > DENSE
}

/// Whether a binary message is a stream's data.
#[must_use]
pub fn is_stream(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(&(PLAIN | DEFLATED)))
}

/// Content of a binary message.
///
/// # Errors
/// It is damaged, too large, or of a kind that was not agreed on.
pub fn read(bytes: &[u8], raw: bool) -> Result<Content, UnpackError> {
    match bytes {
        _ if bytes.len() > MAX_FRAME => Err(UnpackError::TooLarge { packed: bytes.len() }),
        [PLAIN | DEFLATED, ..] if !raw => Err(UnpackError::NotAgreed),
        [kind @ (PLAIN | DEFLATED), rest @ ..] => {
            let (stream, data) = stream_id(rest).ok_or(UnpackError::NoStream)?;
            let data = if *kind == PLAIN { data.to_vec() } else { compress::unpack_bytes(data)? };
            Ok(Content::Data { stream, data })
        }
        packed => compress::unpack(packed).map(Content::Text),
    }
}

fn stream_id(bytes: &[u8]) -> Option<(StreamId, &[u8])> {
    let mut id = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        // The tenth byte has room for the last of 64 bits only.
        if at == 9 && *byte > 1 {
            return None;
        }
        id |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((id, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests;
