//! Length-prefixed JSON on a byte stream: four bytes big-endian length, then that many bytes.

use sampan_sys::from_json::from_json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// No message of the protocol comes near this; more is a broken peer.
pub const MAX_FRAME: usize = 4 << 20;

#[derive(Debug, Error)]
pub enum FrameError {
    #[error("frame of {0} bytes is longer than {MAX_FRAME}")]
    TooLong(usize),
    #[error("message of the monitor socket")]
    Json(#[from] serde_json::Error),
}

/// Appends one message to `out`.
pub fn encode(message: &impl Serialize, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut *out, message)?;
    let length = out.len() - start - 4;
    let prefix = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME).ok_or(FrameError::TooLong(length))?;
    out[start..start + 4].copy_from_slice(&prefix.to_be_bytes());
    Ok(())
}

/// Takes the first whole frame out of `buffer`; `None` until one is complete.
pub fn take(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, FrameError> {
    let Some(prefix) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*prefix) as usize;
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length));
    }
    if buffer.len() < 4 + length {
        return Ok(None);
    }
    let frame = buffer[4..4 + length].to_vec();
    buffer.drain(..4 + length);
    Ok(Some(frame))
}

/// The message of one frame.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, FrameError> {
    Ok(from_json(frame)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut() {
        let mut bytes = Vec::new();
        encode(&"one", &mut bytes).unwrap();
        encode(&"two", &mut bytes).unwrap();
        for cut in 0..=bytes.len() {
            let mut buffer = bytes[..cut].to_vec();
            let mut got: Vec<String> = Vec::new();
            while let Some(frame) = take(&mut buffer).unwrap() {
                got.push(decode(&frame).unwrap());
            }
            buffer.extend_from_slice(&bytes[cut..]);
            while let Some(frame) = take(&mut buffer).unwrap() {
                got.push(decode(&frame).unwrap());
            }
            assert_eq!(got, ["one", "two"]);
        }
    }

    #[test]
    fn a_long_claim_is_refused_before_it_is_read() {
        let mut buffer = u32::MAX.to_be_bytes().to_vec();
        assert!(matches!(take(&mut buffer), Err(FrameError::TooLong(_))));
    }
}
