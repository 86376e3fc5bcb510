//! Header blocks: names and values, and the zlib stream that they travel in for the life of a connection.
//!
//! Coming, they are inflated with the dictionary into a bounded block. Going, they are stored without compression,
//! which is zlib, too: what is sent from here has next to no headers.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_HAS_MORE_INPUT};

use super::dictionary;

/// Bytes of an inflated block. Those of Kubernetes have a hundred.
const MAX_BLOCK: usize = 16 << 10;
/// The window of deflate.
const WINDOW: usize = 32 << 10;

/// Names in lower case with their values, in order.
pub(crate) type Headers = Vec<(String, String)>;

/// The value of a header.
pub(crate) fn get<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Why a block is not understood. The connection cannot go on: the compressor's state is lost.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum HeaderError {
    #[error("a header block that is no zlib stream with SPDY's dictionary")]
    NoZlib,
    #[error("a header block that does not inflate")]
    Corrupt,
    #[error("a header block of more than {MAX_BLOCK} bytes")]
    TooLong,
    #[error("a header block whose lengths do not fit")]
    Malformed,
}

/// Inflates the blocks of one direction, in order.
pub(super) struct Inflater {
    state: Box<DecompressorOxide>,
    window: Box<[u8]>,
    at: usize,
    started: bool,
}

impl Default for Inflater {
    fn default() -> Self {
        let mut window = vec![0; WINDOW].into_boxed_slice();
        let words = dictionary::bytes();
        window[..words.len()].copy_from_slice(&words);
        Self { state: Box::default(), window, at: words.len(), started: false }
    }
}

impl Inflater {
    pub(super) fn block(&mut self, mut input: &[u8]) -> Result<Headers, HeaderError> {
        if !self.started {
            input = begin(input)?;
            self.started = true;
        }
        let mut block = Vec::new();
        loop {
            let from = self.at;
            let (status, read, written) =
                decompress(&mut self.state, input, &mut self.window, from, TINFL_FLAG_HAS_MORE_INPUT);
            block.extend_from_slice(&self.window[from..from + written]);
            if block.len() > MAX_BLOCK {
                return Err(HeaderError::TooLong);
            }
            input = &input[read..];
            self.at = (from + written) % WINDOW;
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput => return parse(&block),
                _ => return Err(HeaderError::Corrupt),
            }
        }
    }
}

/// Takes the header of the zlib stream off (RFC 1950, 2.2).
fn begin(input: &[u8]) -> Result<&[u8], HeaderError> {
    let (&[method, flags], rest) = input.split_first_chunk::<2>().ok_or(HeaderError::NoZlib)?;
    if method & 0x0f != 8 || (u16::from(method) << 8 | u16::from(flags)) % 31 != 0 {
        return Err(HeaderError::NoZlib);
    }
    if flags & 0x20 == 0 {
        return Ok(rest);
    }
    let (id, rest) = rest.split_first_chunk::<4>().ok_or(HeaderError::NoZlib)?;
    if u32::from_be_bytes(*id) == dictionary::ADLER32 { Ok(rest) } else { Err(HeaderError::NoZlib) }
}

fn parse(block: &[u8]) -> Result<Headers, HeaderError> {
    fn number(block: &mut &[u8]) -> Result<usize, HeaderError> {
        let (bytes, rest) = block.split_first_chunk::<4>().ok_or(HeaderError::Malformed)?;
        *block = rest;
        Ok(u32::from_be_bytes(*bytes) as usize)
    }
    fn text(block: &mut &[u8]) -> Result<String, HeaderError> {
        let length = number(block)?;
        let (bytes, rest) = block.split_at_checked(length).ok_or(HeaderError::Malformed)?;
        *block = rest;
        String::from_utf8(bytes.to_vec()).map_err(|_| HeaderError::Malformed)
    }
    let mut rest = block;
    let count = number(&mut rest)?;
    let mut headers = Headers::new();
    // Each takes eight bytes at least, so that a wrong count ends soon.
    for _ in 0..count {
        headers.push((text(&mut rest)?.to_ascii_lowercase(), text(&mut rest)?));
    }
    if rest.is_empty() { Ok(headers) } else { Err(HeaderError::Malformed) }
}

/// Writes the blocks of the other direction.
#[derive(Debug, Default)]
pub(super) struct Storer {
    started: bool,
}

impl Storer {
    /// A block of less than 64 KiB.
    pub(super) fn block(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let length = |text: usize| u32::try_from(text).unwrap_or_default().to_be_bytes();
        let mut block = length(headers.len()).to_vec();
        for (name, value) in headers {
            block.extend(length(name.len()));
            block.extend(name.as_bytes());
            block.extend(length(value.len()));
            block.extend(value.as_bytes());
        }
        let mut out = if std::mem::replace(&mut self.started, true) { Vec::new() } else { vec![0x78, 0x01] };
        let size = u16::try_from(block.len()).unwrap_or_default();
        out.push(0);
        out.extend(size.to_le_bytes());
        out.extend((!size).to_le_bytes());
        out.extend(block);
        // An empty block makes the reader give out what it has.
        out.extend([0, 0, 0, 0xff, 0xff]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two blocks of one stream, as Python's zlib compresses them with the dictionary and a sync flush after each.
    const FIRST: &[u8] = &[
        0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0x25, 0x3a, 0x70, 0x3a, 0x2b, 0x29, 0x4a, 0x4d, 0xcc, 0x85, 0x16,
        0x25, 0xac, 0xa9, 0xa0, 0x80, 0x86, 0x14, 0xcb, 0x45, 0xa0, 0x24, 0xcc, 0x64, 0x61, 0x00, 0x24, 0x39, 0x8b,
        0x20, 0x91, 0x98, 0x09, 0x4a, 0xdc, 0x8c, 0x06, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff,
    ];
    const SECOND: &[u8] = &[0xc2, 0xaa, 0x15, 0x54, 0x0a, 0x25, 0x12, 0xd2, 0x09, 0x00, 0x00, 0x00, 0xff, 0xff];

    fn hold(headers: &[(&str, &str)]) -> Headers {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn blocks_compressed_elsewhere_are_read() {
        let mut inflater = Inflater::default();
        let first = hold(&[("streamtype", "error"), ("port", "80"), ("requestid", "0")]);
        assert_eq!(inflater.block(FIRST).unwrap(), first);
        let second = hold(&[("streamtype", "data"), ("port", "80"), ("requestid", "0")]);
        assert_eq!(inflater.block(SECOND).unwrap(), second);
        assert_eq!(get(&second, "streamType"), Some("data"));
    }

    #[test]
    fn stored_blocks_are_read_over_the_edge_of_the_window() {
        let (mut storer, mut inflater) = (Storer::default(), Inflater::default());
        let value = "x".repeat(5000);
        for _ in 0..20 {
            let block = storer.block(&[("name", &value)]);
            assert_eq!(inflater.block(&block).unwrap(), hold(&[("name", &value)]));
        }
        assert_eq!(inflater.block(&storer.block(&[])).unwrap(), hold(&[]));
    }

    #[test]
    fn hostile_blocks_are_refused() {
        let of = |bytes: &[u8]| Inflater::default().block(bytes);
        assert_eq!(of(&[]), Err(HeaderError::NoZlib));
        assert_eq!(of(b"GET / HTTP"), Err(HeaderError::NoZlib));
        assert_eq!(of(&[0x78, 0xbb, 1, 2, 3, 4]), Err(HeaderError::NoZlib), "another dictionary");
        assert_eq!(of(&[0x78, 0x01, 0xff, 0xff]), Err(HeaderError::Corrupt));
        assert_eq!(of(&FIRST[..FIRST.len() / 2]), Err(HeaderError::Malformed));
        let long = "x".repeat(MAX_BLOCK + 1);
        assert_eq!(of(&Storer::default().block(&[("name", &long)])), Err(HeaderError::TooLong));
        // A thousand million headers are announced.
        assert_eq!(
            of(&[0x78, 1, 0, 4, 0, 0xfb, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
            Err(HeaderError::Malformed)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_bounded_headers_or_refused(bytes in proptest::collection::vec(0_u8.., 0..600), started: bool) {
            let mut inflater = Inflater { started, ..Inflater::default() };
            for _ in 0..2 {
                let headers = inflater.block(&bytes).unwrap_or_default();
                let size: usize = headers.iter().map(|(name, value)| 8 + name.len() + value.len()).sum();
                proptest::prop_assert!(size <= MAX_BLOCK, "{} headers of {size} bytes", headers.len());
            }
        }
    }
}
