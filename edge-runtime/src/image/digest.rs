//! SHA-256 digests as registries write them. Knows bytes, not what they are the digest of.

use std::fmt::Write;
use std::io::{self, Read};

use ring::digest::{Context, SHA256};

/// `sha256:` and 64 lower-case hex digits: the only algorithm in use, and safe as a file name.
pub fn is_sha256(digest: &str) -> bool {
    digest
        .strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

/// The part of a digest that names files: the hex digits.
pub fn hex(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

/// `sha256:<hex>` of bytes in memory.
pub fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// `sha256:<hex>` of everything that `reader` still gives.
///
/// # Errors
/// Those of the reader.
pub fn sha256_of(reader: impl Read) -> io::Result<String> {
    let mut reader = HashingReader::new(reader, u64::MAX);
    io::copy(&mut reader, &mut io::sink())?;
    Ok(reader.finish().0)
}

/// A digest in the making.
#[derive(Clone)]
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// `sha256:<hex>`.
    pub fn finish(self) -> String {
        let mut text = "sha256:".to_owned();
        for byte in self.0.finish().as_ref() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// Passes bytes through and hashes them; refuses to pass more than `limit`.
pub struct HashingReader<R> {
    inner: R,
    pub(super) hasher: Hasher,
    pub(super) read: u64,
    limit: u64,
}

impl<R: Read> HashingReader<R> {
    pub fn new(inner: R, limit: u64) -> Self {
        Self { inner, hasher: Hasher::default(), read: 0, limit }
    }

    /// Digest and length of all that was read.
    pub fn finish(self) -> (String, u64) {
        (self.hasher.finish(), self.read)
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read += n as u64;
        if self.read > self.limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {} bytes", self.limit)));
        }
        self.hasher.update(&buffer[..n]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        assert_eq!(sha256(b""), EMPTY);
        assert_eq!(sha256_of(io::empty()).unwrap(), EMPTY);
        assert!(is_sha256(EMPTY));
        assert_eq!(hex(EMPTY).len(), 64);
    }

    #[test]
    fn reader_hashes_and_stops_at_its_limit() {
        let mut reader = HashingReader::new(&b"abc"[..], 3);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.finish(), (sha256(b"abc"), 3));
        let mut reader = HashingReader::new(&b"abcd"[..], 3);
        assert!(io::copy(&mut reader, &mut io::sink()).is_err());
    }

    #[test]
    fn malformed_digests_are_refused() {
        for bad in ["", "sha256:", "sha256:../../etc", "sha512:00", &EMPTY.to_uppercase(), &EMPTY[..70]] {
            assert!(!is_sha256(bad), "{bad}");
        }
    }
}
