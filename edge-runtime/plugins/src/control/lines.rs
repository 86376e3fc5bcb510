//! Lines out of a stream, with a bound.

use std::io;

use sampan_plugins_control::MAX_LINE;
use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK: usize = 4_096;

#[derive(Debug)]
pub(super) struct Lines<S> {
    stream: S,
    bytes: Vec<u8>,
}

impl<S: AsyncRead + Unpin> Lines<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// The next line, without its end. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The stream has ended or failed, or the line is too long.
    pub(super) async fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut looked = 0;
        loop {
            let end = self.bytes.iter().skip(looked).position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let rest = self.bytes.split_off(looked + end + 1);
                let mut line = std::mem::replace(&mut self.bytes, rest);
                line.pop();
                return Ok(line);
            }
            looked = self.bytes.len();
            if looked > MAX_LINE {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a line of more than {MAX_LINE} bytes"),
                ));
            }
            let mut chunk = [0; CHUNK];
            match self.stream.read(&mut chunk).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.bytes.extend_from_slice(chunk.get(..read).unwrap_or_default()),
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
