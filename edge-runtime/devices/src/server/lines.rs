//! Lines out of a stream, with a bound.

use std::io;

use sampan_devices_control::MAX_LINE;
use sampan_sys::lines::Splitter;
use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK: usize = 4_096;

#[derive(Debug)]
pub(super) struct Lines<S> {
    stream: S,
    splitter: Splitter,
}

impl<S: AsyncRead + Unpin> Lines<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self { stream, splitter: Splitter::new(MAX_LINE) }
    }

    /// The next line, without its end.
    ///
    /// # Errors
    /// The stream has ended or failed, or the line is too long.
    pub(super) async fn next(&mut self) -> io::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    #[test]
    fn lines_come_whole() {
        block_on(async {
            let mut lines = Lines::new(&b"a\n\nbc\nrest"[..]);
            for line in [&b"a"[..], b"", b"bc"] {
                assert_eq!(lines.next().await.ok().as_deref(), Some(line));
            }
            assert_eq!(lines.next().await.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
        });
    }

    #[test]
    fn a_line_without_end_ends_the_connection() {
        block_on(async {
            let end = Lines::new(tokio::io::repeat(b'x')).next().await.map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::InvalidData));
        });
    }
}
