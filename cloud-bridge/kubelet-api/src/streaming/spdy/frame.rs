//! Frames of SPDY/3.1 (draft 3.1, 2.2): bytes to frames as they arrive, and frames to bytes.
//!
//! Only the part that Kubernetes uses. It has only TCP's flow control, because the clients do not have another one.

use bytes::{Buf, Bytes, BytesMut};

use super::headers::{HeaderError, Headers, Inflater, Storer};

/// Bytes of a control frame. Only header blocks are longer than a few words.
const MAX_CONTROL: usize = 16 << 10;
const VERSION: u16 = 3;
const FIN: u8 = 1;
const HEADER: usize = 8;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// Why a stream is reset.
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const REFUSED_STREAM: u32 = 3;
pub(crate) const CANCEL: u32 = 5;
pub(crate) const INTERNAL_ERROR: u32 = 6;

/// What the peer says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    SynStream {
        stream: u32,
        fin: bool,
        headers: Headers,
    },
    SynReply {
        stream: u32,
        fin: bool,
    },
    Reset {
        stream: u32,
        status: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// More headers of a stream.
    Headers {
        stream: u32,
        fin: bool,
    },
    /// A part of a data frame, so that a long one needs no memory; `fin` comes with the last.
    Data {
        stream: u32,
        fin: bool,
        data: Bytes,
    },
    /// Settings, window updates and what is not known.
    Other,
}

/// Why the connection cannot go on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FrameError {
    #[error("a control frame of SPDY version {0} came where version 3 is spoken")]
    Version(u16),
    #[error("a control frame of {0} bytes came where {MAX_CONTROL} are allowed")]
    TooLong(usize),
    #[error("a control frame of type {0} is too short")]
    TooShort(u16),
    #[error(transparent)]
    Headers(#[from] HeaderError),
}

/// Cuts bytes, as they come, into frames.
#[derive(Default)]
pub(crate) struct Decoder {
    held: BytesMut,
    inflater: Inflater,
    /// Stream, bytes that are still to come, and whether they are its last.
    data: Option<(u32, usize, bool)>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next frame that is whole, or the next part of a data frame.
    ///
    /// # Errors
    /// The peer does not speak SPDY/3.1 or wants too much: end the connection.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some((stream, left, fin)) = self.data {
            return Ok(self.part(stream, left, fin));
        }
        let Some(head) = self.held.first_chunk::<HEADER>().copied() else { return Ok(None) };
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let (flags, length) = (head[4], u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize);
        if word >> 31 == 0 {
            self.held.advance(HEADER);
            return Ok(self.part(word, length, flags & FIN != 0));
        }
        let [a, b, c, d] = (word & 0x7fff_ffff).to_be_bytes();
        let (version, kind) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if length > MAX_CONTROL {
            return Err(FrameError::TooLong(length));
        }
        if self.held.len() < HEADER + length {
            return Ok(None);
        }
        self.held.advance(HEADER);
        let body = self.held.split_to(length);
        self.control(kind, flags & FIN != 0, &body).map(Some)
    }

    fn part(&mut self, stream: u32, left: usize, fin: bool) -> Option<Frame> {
        let take = left.min(self.held.len());
        if take == 0 && left > 0 {
            self.data = Some((stream, left, fin));
            return None;
        }
        let data = self.held.split_to(take).freeze();
        self.data = (take < left).then_some((stream, left - take, fin));
        Some(Frame::Data { stream, fin: fin && take == left, data })
    }

    fn control(&mut self, kind: u16, fin: bool, body: &[u8]) -> Result<Frame, FrameError> {
        let number = |at: usize| {
            let bytes = body.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
            bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or(FrameError::TooShort(kind))
        };
        let rest = |from: usize| body.get(from..).ok_or(FrameError::TooShort(kind));
        let stream = |at: usize| number(at).map(|stream| stream & 0x7fff_ffff);
        Ok(match kind {
            // Then the associated stream, the priority and the credential slot, which are unused.
            SYN_STREAM => Frame::SynStream { stream: stream(0)?, fin, headers: self.inflater.block(rest(10)?)? },
            SYN_REPLY => {
                self.inflater.block(rest(4)?)?;
                Frame::SynReply { stream: stream(0)?, fin }
            }
            HEADERS => {
                self.inflater.block(rest(4)?)?;
                Frame::Headers { stream: stream(0)?, fin }
            }
            RST_STREAM => Frame::Reset { stream: stream(0)?, status: number(4)? },
            PING => Frame::Ping { id: number(0)? },
            GOAWAY => Frame::GoAway,
            _ => Frame::Other,
        })
    }
}

/// Writes frames.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    storer: Storer,
}

fn control(kind: u16, fin: bool, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + body.len());
    out.extend((0x8000 | VERSION).to_be_bytes());
    out.extend(kind.to_be_bytes());
    let length = u32::try_from(body.len()).unwrap_or_default();
    out.extend((u32::from(fin) << 24 | length & 0x00ff_ffff).to_be_bytes());
    out.extend(body);
    out
}

impl Encoder {
    /// Opens a stream. For the end that dials: tests.
    #[cfg(test)]
    pub(crate) fn syn_stream(&mut self, stream: u32, fin: bool, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut body = stream.to_be_bytes().to_vec();
        body.extend([0; 6]);
        body.extend(self.storer.block(headers));
        control(SYN_STREAM, fin, &body)
    }

    /// Accepts a stream.
    pub(crate) fn syn_reply(&mut self, stream: u32) -> Vec<u8> {
        let mut body = stream.to_be_bytes().to_vec();
        body.extend(self.storer.block(&[]));
        control(SYN_REPLY, false, &body)
    }
}

pub(crate) fn reset(stream: u32, status: u32) -> Vec<u8> {
    control(RST_STREAM, false, &[stream.to_be_bytes(), status.to_be_bytes()].concat())
}

pub(crate) fn ping(id: u32) -> Vec<u8> {
    control(PING, false, &id.to_be_bytes())
}

/// No stream after `last` will be served.
pub(crate) fn go_away(last: u32) -> Vec<u8> {
    control(GOAWAY, false, &[last.to_be_bytes(), [0; 4]].concat())
}

/// `data` is less than 16 MiB.
pub(crate) fn data(stream: u32, fin: bool, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + data.len());
    out.extend((stream & 0x7fff_ffff).to_be_bytes());
    let length = u32::try_from(data.len()).unwrap_or_default();
    out.extend((u32::from(fin) << 24 | length & 0x00ff_ffff).to_be_bytes());
    out.extend(data);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(decoder: &mut Decoder, bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        decoder.push(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = decoder.next_frame()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[test]
    fn frames_survive_any_cut() {
        let mut encoder = Encoder::default();
        let mut bytes = encoder.syn_stream(1, false, &[("streamtype", "stdin")]);
        bytes.extend(encoder.syn_stream(3, true, &[]));
        bytes.extend(encoder.syn_reply(1));
        bytes.extend(data(1, true, b"hello"));
        bytes.extend(data(3, true, b""));
        bytes.extend([reset(3, CANCEL), ping(7), go_away(3)].concat());
        for cut in [1, 3, 8, 11, bytes.len()] {
            let (mut decoder, mut frames, mut text) = (Decoder::default(), Vec::new(), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.extend(read(&mut decoder, piece).unwrap());
            }
            frames.retain_mut(|frame| match frame {
                Frame::Data { stream: 1, data, .. } => {
                    text.extend_from_slice(data);
                    false
                }
                _ => true,
            });
            let headers = vec![("streamtype".to_owned(), "stdin".to_owned())];
            assert_eq!(text, b"hello");
            assert_eq!(
                frames,
                [
                    Frame::SynStream { stream: 1, fin: false, headers },
                    Frame::SynStream { stream: 3, fin: true, headers: vec![] },
                    Frame::SynReply { stream: 1, fin: false },
                    Frame::Data { stream: 3, fin: true, data: Bytes::new() },
                    Frame::Reset { stream: 3, status: CANCEL },
                    Frame::Ping { id: 7 },
                    Frame::GoAway,
                ]
            );
        }
    }

    #[test]
    fn a_long_data_frame_comes_in_parts_and_ends_once() {
        let mut decoder = Decoder::default();
        let bytes = data(5, true, &[9; 40_000]);
        let (first, rest) = bytes.split_at(30_000);
        let fins = |frames: Vec<Frame>| -> Vec<(usize, bool)> {
            let part = |frame: Frame| match frame {
                Frame::Data { stream: 5, fin, data } => (data.len(), fin),
                other => panic!("{other:?}"),
            };
            frames.into_iter().map(part).collect()
        };
        assert_eq!(fins(read(&mut decoder, first).unwrap()), [(29_992, false)]);
        assert_eq!(fins(read(&mut decoder, rest).unwrap()), [(10_008, true)]);
    }

    #[test]
    fn what_is_not_spoken_ends_the_connection() {
        let of = |bytes: &[u8]| read(&mut Decoder::default(), bytes);
        assert_eq!(of(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]), Err(FrameError::Version(2)));
        assert_eq!(of(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]), Err(FrameError::TooLong(0x00ff_ffff)));
        for kind in [SYN_STREAM, SYN_REPLY, HEADERS, RST_STREAM, PING] {
            assert!(of(&control(kind, false, &[0, 0])).is_err(), "{kind}");
        }
        assert_eq!(of(&control(4, false, &[0; 12])), Ok(vec![Frame::Other]), "settings");
        assert_eq!(of(&control(9, false, &[0; 8])), Ok(vec![Frame::Other]), "a window update");
    }

    /// Frames in a form that does not show how their data came.
    fn said(frames: &[Frame]) -> Vec<String> {
        let mut all = Vec::new();
        for frame in frames {
            match frame {
                Frame::Data { stream, fin, data } => {
                    all.extend(data.iter().map(|byte| format!("{stream}: {byte}")));
                    all.extend(fin.then(|| format!("{stream}: end")));
                }
                other => all.push(format!("{other:?}")),
            }
        }
        all
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_give_the_same_however_they_are_cut(
            pieces in proptest::collection::vec(proptest::collection::vec(0_u8.., 0..60), 0..20)
        ) {
            let whole = read(&mut Decoder::default(), &pieces.concat()).map(|frames| said(&frames));
            let mut decoder = Decoder::default();
            let cut = pieces.iter().try_fold(Vec::new(), |mut frames, piece| {
                frames.extend(read(&mut decoder, piece)?);
                Ok::<_, FrameError>(frames)
            });
            proptest::prop_assert_eq!(cut.map(|frames| said(&frames)), whole);
        }
    }
}
