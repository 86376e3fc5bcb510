//! Lines out of a stream, with a bound.

use std::io;
use std::time::Duration;

use sampan_sys::lines::Splitter;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

const CHUNK: usize = 4_096;
/// Time for a caller to identify itself.
const GREETING: Duration = Duration::from_secs(5);

/// The reading side of a connection.
#[derive(Debug)]
pub struct Lines<S> {
    stream: S,
    splitter: Splitter,
}

impl<S: AsyncRead + Unpin> Lines<S> {
    /// `most`: bytes of a line without its end.
    pub const fn new(stream: S, most: usize) -> Self {
        Self { stream, splitter: Splitter::new(most) }
    }

    /// Returns the first line of a caller, without its end. A caller that says nothing has a few seconds.
    ///
    /// # Errors
    /// Same as [`next`](Self::next), or it has said nothing.
    pub async fn first(&mut self) -> io::Result<Vec<u8>> {
        timeout(GREETING, self.next()).await?
    }

    /// Returns the next line, without its end. Nothing is lost if the future is dropped.
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
                read => self.splitter.push(chunk.get(..read).unwrap_or_default()),
            }
        }
    }

    /// Returns the stream, and the bytes that were read after the last whole line.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.splitter.into_rest())
    }
}

/// Whether the line is the first one of a daemon, of any version.
#[must_use]
pub fn is_daemon(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(line).is_ok_and(|line| line.get("daemon").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    #[test]
    fn lines_come_whole_and_the_rest_is_left() {
        block_on(async {
            let mut lines = Lines::new(&b"a\n\nbc\nrest"[..], 100);
            for line in [&b"a"[..], b""] {
                assert_eq!(lines.next().await.ok().as_deref(), Some(line));
            }
            assert_eq!(lines.into_parts().1, b"bc\nrest");
            let mut lines = Lines::new(&b"bc\nrest"[..], 100);
            assert_eq!(lines.next().await.ok().as_deref(), Some(&b"bc"[..]));
            assert_eq!(lines.next().await.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
        });
    }

    #[test]
    fn a_line_without_end_ends_the_connection() {
        block_on(async {
            let end = Lines::new(tokio::io::repeat(b'x'), 100_000).next().await.map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::InvalidData));
        });
    }

    #[test]
    fn daemon_of_any_version_is_known_by_its_first_line() {
        assert!(is_daemon(br#"{"daemon":{"version":99,"words":"of another build"}}"#));
        for other in [&b"{\"client\":{}}"[..], b"[]", b"\"daemon\"", b"no JSON", b""] {
            assert!(!is_daemon(other), "{other:?}");
        }
    }
}
