//! Compression of frames: raw deflate (RFC 1951), each frame separately; texts with a dictionary that both sides have
//! from the start. [`wire`](crate::wire) decides which frames are compressed, and marks them.
//!
//! Frames are separate, not a stream: a stream compresses a little better, but costs the bridge 300 KB for every node
//! all the time. The dictionary recovers most of that, as frames of different connections are similar. Does not know
//! sockets, sessions or the meaning of a frame.

use crate::frame::MAX_FRAME;
use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use std::sync::{Mutex, PoisonError};

/// Shorter texts are not packed: a ping would become longer.
pub const MIN: usize = 256;

/// What frames look like. Part of the feature `deflate1`: it never changes; another one gets another name.
const DICTIONARY: &[u8] = include_bytes!("compress/dictionary1.txt");

/// zlib's usual compromise between time and size.
const LEVEL: i32 = 6;

/// Level for bytes of streams: there are many, and a device has little processor time.
const STREAM_LEVEL: i32 = 1;

/// Beginning of stream texts, which contain base64. They have nothing in common with the dictionary, and loading it for
/// each frame took three quarters of the time of a copy. Compression can save only a quarter of such a text, which any
/// level does.
const STREAM_DATA: &str = "{\"streamData\":";

/// A compressor that has read the dictionary: copying it takes a fraction of the time of reading the dictionary again.
/// 300 KB, which [`release`] frees.
static PRIMED: Mutex<Option<Box<CompressorOxide>>> = Mutex::new(None);

/// Why a packed frame cannot be read. The connection is of no use any more.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnpackError {
    /// Detected at the limit, so no more memory than that is used.
    #[error("a packed frame of {packed} bytes holds more than {MAX_FRAME}")]
    TooLarge { packed: usize },
    #[error("a packed frame is damaged")]
    Damaged,
    #[error("a packed frame holds no text")]
    NotText,
    #[error("a binary frame of a stream has no number of a stream")]
    NoStream,
    #[error("a binary frame came that was not agreed on")]
    NotAgreed,
}

/// The text as a packed frame, if that is worth it.
pub fn pack(text: &str) -> Option<Vec<u8>> {
    if text.len() < MIN {
        return None;
    }
    let state = if text.starts_with(STREAM_DATA) { Some(compressor(STREAM_LEVEL)) } else { primed() };
    deflate(text.as_bytes(), state?)
}

/// Bytes of a stream packed, if they get shorter.
pub(crate) fn pack_bytes(data: &[u8]) -> Option<Vec<u8>> {
    deflate(data, compressor(STREAM_LEVEL))
}

/// Frees the compressor that is kept for speed; the next text creates it again. Call it when few texts are expected.
pub fn release() {
    *PRIMED.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Boxed: on the stack its 64 KB would stay with the process.
fn compressor(level: i32) -> Box<CompressorOxide> {
    Box::new(CompressorOxide::new(create_comp_flags_from_zip_params(level, -15, 0)))
}

/// Returns a compressor that has read the dictionary.
fn primed() -> Option<Box<CompressorOxide>> {
    let mut kept = PRIMED.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.is_none() {
        let mut state = compressor(LEVEL);
        // The dictionary comes first, up to a byte boundary, and is not sent: the peer has it in its window.
        let mut known = vec![0; DICTIONARY.len() + 64];
        let (status, read, _) = compress(&mut state, DICTIONARY, &mut known, TDEFLFlush::Sync);
        if status != TDEFLStatus::Okay || read != DICTIONARY.len() {
            return None;
        }
        *kept = Some(state);
    }
    kept.clone()
}

fn deflate(data: &[u8], mut state: Box<CompressorOxide>) -> Option<Vec<u8>> {
    // Whatever does not fit into less than the data is not worth it.
    let mut packed = vec![0; data.len().checked_sub(1)?];
    let (status, _, written) = compress(&mut state, data, &mut packed, TDEFLFlush::Finish);
    packed.truncate(written);
    (status == TDEFLStatus::Done).then_some(packed)
}

/// The text of a packed frame.
///
/// # Errors
/// It is damaged, or its text is over [`MAX_FRAME`].
pub fn unpack(packed: &[u8]) -> Result<String, UnpackError> {
    String::from_utf8(inflate(packed, DICTIONARY)?).map_err(|_| UnpackError::NotText)
}

/// The bytes that [`pack_bytes`] packed.
pub(crate) fn unpack_bytes(packed: &[u8]) -> Result<Vec<u8>, UnpackError> {
    inflate(packed, &[])
}

fn inflate(packed: &[u8], dictionary: &[u8]) -> Result<Vec<u8>, UnpackError> {
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let limit = dictionary.len() + MAX_FRAME;
    let mut state = Box::<DecompressorOxide>::default();
    let mut window = dictionary.to_vec();
    let (mut read, mut filled) = (0, window.len());
    loop {
        // Room grows as it is used, so that a small frame that promises much takes little.
        let room = (filled + packed.len().max(filled) * 2).min(limit);
        window.resize(room, 0);
        let (status, taken, written) = decompress(&mut state, &packed[read..], &mut window, filled, flags);
        (read, filled) = (read + taken, filled + written);
        match status {
            TINFLStatus::Done if read == packed.len() => break,
            TINFLStatus::HasMoreOutput if filled < limit => {}
            TINFLStatus::HasMoreOutput => return Err(UnpackError::TooLarge { packed: packed.len() }),
            _ => return Err(UnpackError::Damaged),
        }
    }
    window.truncate(filled);
    window.drain(..dictionary.len());
    Ok(window)
}

#[cfg(test)]
mod tests;
