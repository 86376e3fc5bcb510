//! Messages as lines of a stream; a line has a bound.

use std::io;

use serde::Serialize;
use serde_json::Value;
use smol::io::{AsyncRead, AsyncReadExt};

use crate::sys::from_json::from_json;
use crate::sys::lines::Splitter;

/// Bytes asked for at once.
const CHUNK: usize = 4096;

/// The reading side. Unprocessed input survives when a future of it is dropped.
#[derive(Debug)]
pub struct Lines<S> {
    stream: S,
    splitter: Splitter,
}

impl<S: AsyncRead + Unpin> Lines<S> {
    /// `most`: bytes of a line without its end.
    pub fn new(stream: S, most: usize) -> Self {
        Self { stream, splitter: Splitter::new(most) }
    }

    /// Returns the next line, without its end.
    ///
    /// # Errors
    /// The stream has ended or failed, or the line is too long.
    pub async fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let line = self.splitter.next_line();
            if let Some(line) = line.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                return Ok(line);
            }
            let mut chunk = [0; CHUNK];
            match self.stream.read(&mut chunk).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.splitter.push(&chunk[..read]),
            }
        }
    }
}

/// Returns a message as a line with its end.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    // Messages have no maps with other keys than texts: only those fail.
    let mut text = serde_json::to_vec(message).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Checks the first line of a helper.
///
/// # Errors
/// It is no greeting, or one of another version.
pub(super) fn check_greeting(line: &[u8], version: u32) -> io::Result<()> {
    let greeting: Value = from_json(line)?;
    match greeting["hello"]["version"].as_u64() {
        Some(its) if its == u64::from(version) => Ok(()),
        Some(its) => Err(io::Error::other(format!("it speaks version {its}, and this program {version}"))),
        None => Err(io::Error::other("its first line is no greeting")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_lines_are_joined() {
        let text = b"{\"a\":1}\n\"x\\ny\"\n\nrest".as_slice();
        smol::block_on(async {
            let mut lines = Lines::new(text, 100);
            for line in [b"{\"a\":1}".as_slice(), b"\"x\\ny\"", b""] {
                assert_eq!(lines.next().await.ok().as_deref(), Some(line));
            }
            let end = lines.next().await.map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::UnexpectedEof));
        });
    }

    #[test]
    fn a_line_without_end_ends_the_connection() {
        smol::block_on(async {
            let mut lines = Lines::new(smol::io::repeat(b'x'), 100_000);
            let end = lines.next().await.map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::InvalidData));
        });
    }

    #[test]
    fn greeting_of_another_version_is_refused() {
        let checked = |line: &str| check_greeting(line.as_bytes(), 3).map_err(|error| error.to_string());
        assert_eq!(checked(r#"{"hello":{"version":3}}"#), Ok(()));
        let older = checked(r#"{"hello":{"version":2}}"#);
        assert_eq!(older, Err("it speaks version 2, and this program 3".to_owned()));
        for other in [r#"{"pong":{}}"#, r#"{"hello":{"version":-3}}"#, r#"{"hello":3}"#, "3", "[]"] {
            assert_eq!(checked(other), Err("its first line is no greeting".to_owned()), "{other}");
        }
        assert!(checked("hello").is_err());
    }
}
