//! Compressed layers as one stream of plain bytes. Told apart by their first bytes: media types lie.

use std::io::{self, BufRead, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Skippable zstd frames end in these three bytes (RFC 8878 3.1.2); zstd:chunked layers hold some.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
/// The largest window of `zstd --ultra` without `--long`.
const LARGEST_WINDOW: u64 = 128 << 20;

/// The plain bytes of a gzip, zstd or uncompressed stream, every member and frame of it.
///
/// # Errors
/// The first bytes cannot be read.
pub fn plain<'a>(mut source: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = Vec::with_capacity(4);
    (&mut source).take(4).read_to_end(&mut head)?;
    let gzip = head.starts_with(&GZIP);
    let zstd = head == ZSTD || (head.len() == 4 && head[1..] == ZSTD_SKIPPABLE && head[0] & 0xf0 == 0x50);
    let whole = Cursor::new(head).chain(source);
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(MultiGzDecoder::new(whole)),
        (_, true) => Box::new(ZstdFrames::new(whole)),
        _ => Box::new(whole),
    })
}

/// Frame after frame: the decoder itself ends with the first one.
struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(LARGEST_WINDOW);
        Self { source, decoder, in_frame: false }
    }

    /// Goes to the next frame with content; false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.in_frame && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if !self.in_frame || self.decoder.is_finished() {
                self.in_frame = self.next_frame()?;
                if !self.in_frame {
                    return Ok(0);
                }
            }
            self.decoder
                .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|error| broken(&error))?;
        }
    }
}

fn broken(error: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gunzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        plain(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn every_member_and_frame_is_read() {
        let long: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(gunzip(b"plain").unwrap(), b"plain");
        assert_eq!(gunzip(b"").unwrap(), b"");
        assert_eq!(gunzip(&[gzip(b"one"), gzip(&long)].concat()).unwrap(), [b"one", &long[..]].concat());
        let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
        let frames = [skippable.clone(), zstd(b"one"), skippable.clone(), zstd(&long), skippable].concat();
        assert_eq!(gunzip(&frames).unwrap(), [b"one", &long[..]].concat());
    }

    #[test]
    fn a_cut_stream_is_an_error() {
        let long = vec![7; 500_000];
        for whole in [gzip(&long), zstd(&long)] {
            for cut in [5, whole.len() / 2, whole.len() - 1] {
                assert!(gunzip(&whole[..cut]).is_err(), "cut at {cut} of {}", whole.len());
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_end_in_an_answer(kind in 0..3_usize, bytes in proptest::collection::vec(0..=255_u8, 0..200)) {
            let head: &[u8] = [&GZIP[..], &ZSTD, &[]][kind];
            let out = gunzip(&[head, &bytes].concat());
            if head.is_empty() && !matches!(bytes.first(), Some(0x1f | 0x28 | 0x50..=0x5f)) {
                proptest::prop_assert_eq!(out.unwrap(), bytes, "without the head of a compressed one, it is plain");
            }
        }
    }
}
