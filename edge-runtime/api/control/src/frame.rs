//! Frames of the connection for streams: eight bytes number of the stream, one byte kind, four bytes length (both
//! numbers big endian), and that many bytes. No I/O.

use std::fmt;

/// Bytes before a frame's payload.
pub const HEADER: usize = 13;

/// Most bytes of a frame's payload: enough for the JSON of any request that is passed on.
pub const MAX_PAYLOAD: usize = 64 << 10;

/// Meaning of a frame. See the table of the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A new request.
    Open,
    /// Bytes of the stream.
    Data,
    /// The sender accepts more bytes.
    Credit,
    /// The stream has ended.
    End,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub stream: u64,
    pub kind: Kind,
    pub payload: Vec<u8>,
}

/// The peer sends no frames: its connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFrame;

impl fmt::Display for NoFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes that are no frame of a stream")
    }
}

impl std::error::Error for NoFrame {}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Data => 2,
            Self::Credit => 3,
            Self::End => 4,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Open,
            2 => Self::Data,
            3 => Self::Credit,
            4 => Self::End,
            _ => return None,
        })
    }
}

/// Appends a frame to `out`. `payload` is at most [`MAX_PAYLOAD`].
pub fn write(stream: u64, kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(kind.code());
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a [`Kind::Credit`] of so many bytes to `out`.
pub fn write_credit(stream: u64, bytes: u32, out: &mut Vec<u8>) {
    write(stream, Kind::Credit, &bytes.to_be_bytes(), out);
}

/// Returns the bytes of a [`Kind::Credit`] by its payload.
#[must_use]
pub fn credit(payload: &[u8]) -> Option<u32> {
    payload.try_into().ok().map(u32::from_be_bytes)
}

/// Cuts received bytes into frames.
#[derive(Debug, Default)]
pub struct Frames {
    held: Vec<u8>,
    /// Bytes at the beginning of `held` that were returned as frames.
    taken: usize,
}

impl Frames {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..std::mem::take(&mut self.taken));
        self.held.extend_from_slice(bytes);
    }

    /// Returns the next whole frame; `None` until more bytes arrive.
    ///
    /// # Errors
    /// The peer sends an unknown kind or announces more than [`MAX_PAYLOAD`].
    pub fn next_frame(&mut self) -> Result<Option<Frame>, NoFrame> {
        let held = self.held.get(self.taken..).unwrap_or_default();
        let Some((&[a, b, c, d, e, f, g, h, kind, w, x, y, z], rest)) = held.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([w, x, y, z]);
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_PAYLOAD).ok_or(NoFrame)?;
        let kind = Kind::of(kind).ok_or(NoFrame)?;
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = Frame { stream: u64::from_be_bytes([a, b, c, d, e, f, g, h]), kind, payload: payload.to_vec() };
        self.taken += HEADER + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut() {
        let mut bytes = Vec::new();
        let long = vec![7; MAX_PAYLOAD];
        write(1, Kind::Open, b"{}", &mut bytes);
        write(u64::MAX, Kind::Data, &long, &mut bytes);
        write_credit(2, 65_536, &mut bytes);
        write(2, Kind::End, b"", &mut bytes);
        for cut in [1, 5, 13, 4_096, bytes.len()] {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.push(piece);
                while let Ok(Some(frame)) = frames.next_frame() {
                    seen.push(frame);
                }
            }
            let short: Vec<_> = seen.iter().map(|frame| (frame.stream, frame.kind, frame.payload.len())).collect();
            assert_eq!(
                short,
                [(1, Kind::Open, 2), (u64::MAX, Kind::Data, MAX_PAYLOAD), (2, Kind::Credit, 4), (2, Kind::End, 0)],
                "cut at {cut}"
            );
            assert_eq!(credit(&seen[2].payload), Some(65_536));
        }
        assert_eq!(credit(b"abc"), None);
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused_before_they_have_come() {
        for wrong in [[0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1, 9, 0, 0, 0, 0]] {
            let mut frames = Frames::default();
            frames.push(&wrong);
            assert_eq!(frames.next_frame(), Err(NoFrame));
        }
    }
}
