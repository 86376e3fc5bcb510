//! Compresses answers (gzip, RFC 1952) for browsers that accept that. Does not interpret them.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use http::{HeaderMap, header};

/// Minimum length: shorter answers fit into a packet anyway.
pub(super) const LEAST: usize = 1400;
/// Rows are similar: a higher level saves little, and takes several times as long.
const LEVEL: u32 = 3;
/// Maximum length of an uncompressed block (RFC 1951, 3.2.4).
const STORED: usize = 0xffff;

/// Whether the client accepts gzip (RFC 9110, 12.5.3).
pub(super) fn accepted(headers: &HeaderMap) -> bool {
    let all = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = all.flat_map(|value| value.split(',')).map(|one| one.split(';').map(str::trim));
    codings.any(|mut one| {
        let gzip = one.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let zero = |weight: &str| weight.parse().is_ok_and(|weight: f32| weight <= 0.0);
        gzip && !one.any(|parameter| parameter.strip_prefix("q=").is_some_and(zero))
    })
}

/// Compresses a text, or a part of one.
pub(super) type Pack = fn(&[u8]) -> io::Result<Bytes>;

/// Compresses beside the loop: thousands of rows take some milliseconds. `None` where it does not work.
pub(super) async fn aside(text: Bytes, pack: Pack) -> Option<Bytes> {
    tokio::task::spawn_blocking(move || pack(&text)).await.ok()?.ok()
}

/// Compresses a complete answer.
///
/// # Errors
/// Never: writing to memory succeeds.
pub(super) fn whole(text: &[u8]) -> io::Result<Bytes> {
    let mut packer = packer(text);
    packer.write_all(text)?;
    Ok(packer.finish()?.into())
}

/// Compresses the beginning of an answer that continues with [`part`] and [`more`]: up to a byte boundary, so that the
/// client can read all of it.
///
/// # Errors
/// Same as [`whole`].
pub(super) fn begun(text: &[u8]) -> io::Result<Bytes> {
    let mut packer = packer(text);
    packer.write_all(text)?;
    packer.flush()?;
    Ok(std::mem::take(packer.get_mut()).into())
}

/// Compresses a later part by itself: it refers to nothing before it.
///
/// # Errors
/// Same as [`whole`].
pub(super) fn part(text: &[u8]) -> io::Result<Bytes> {
    let mut packer = DeflateEncoder::new(Vec::with_capacity(text.len() / 4), Compression::new(LEVEL));
    packer.write_all(text)?;
    packer.flush()?;
    Ok(std::mem::take(packer.get_mut()).into())
}

/// A later part, uncompressed: compression would need 300 KB of memory for each reader all the time, for a few hundred
/// bytes.
pub(super) fn more(bytes: &Bytes) -> Bytes {
    let mut out = Vec::with_capacity(bytes.len() + 5 * (bytes.len() / STORED + 1));
    for part in bytes.chunks(STORED) {
        // The length of a chunk is limited to that.
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        out.push(0);
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(part);
    }
    out.into()
}

fn packer(text: &[u8]) -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::new(LEVEL))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn headers(value: &str) -> HeaderMap {
        [(header::ACCEPT_ENCODING, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn who_does_not_ask_for_it_gets_it_as_it_is() {
        for yes in ["gzip", "deflate, GZIP;q=0.5, br", "gzip ; q=1.0", "br,gzip"] {
            assert!(accepted(&headers(yes)), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "gzip; q=0.000", "gzipped", "*"] {
            assert!(!accepted(&headers(no)), "{no}");
        }
        assert!(!accepted(&HeaderMap::new()));
    }

    #[test]
    fn a_reader_has_each_part_of_a_stream_as_it_comes() {
        let first = "row ".repeat(1000);
        let large = Bytes::from(vec![b'x'; 3 * STORED + 7]);
        let mut sent = begun(first.as_bytes()).unwrap().to_vec();
        assert!(sent.len() < 200, "{}", sent.len());
        let read = |sent: &[u8], length: usize| {
            let mut text = vec![0; length];
            GzDecoder::new(sent).read_exact(&mut text).unwrap();
            text
        };
        assert_eq!(read(&sent, first.len()), first.as_bytes());
        let mut wanted = first.into_bytes();
        let second = "row and another ".repeat(1000);
        let packed = part(second.as_bytes()).unwrap();
        assert!(packed.len() < 1000, "{}", packed.len());
        sent.extend(packed);
        wanted.extend(second.into_bytes());
        assert_eq!(read(&sent, wanted.len()), wanted);
        for news in [Bytes::from_static(b"a"), large, Bytes::from_static(b"event: tick\n\n")] {
            sent.extend(more(&news));
            wanted.extend(news);
            assert_eq!(read(&sent, wanted.len()), wanted);
        }
    }

    #[test]
    fn a_whole_answer_ends() {
        let mut text = String::new();
        GzDecoder::new(&*whole("a".repeat(5000).as_bytes()).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text.len(), 5000);
    }
}
