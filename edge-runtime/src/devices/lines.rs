//! JSON texts, one per line, over a stream; a line has a bound.

use std::io;

use sampan_devices_control::Splitter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::sys::from_json::from_json;

/// Bytes asked for at once.
const CHUNK: usize = 4096;

/// The reading side. Unprocessed input survives when a future of it is dropped.
#[derive(Debug)]
pub struct Lines<S> {
    stream: S,
    splitter: Splitter,
}

impl<S: AsyncRead + Unpin> Lines<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, splitter: Splitter::new() }
    }

    /// The next message.
    ///
    /// # Errors
    /// The stream has ended or failed, a line is too long or nothing that this build knows.
    pub async fn next<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        loop {
            let line = self.splitter.next_line();
            if let Some(line) = line.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                return from_json(&line).map_err(io::Error::from);
            }
            let mut chunk = [0; CHUNK];
            match self.stream.read(&mut chunk).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.splitter.push(&chunk[..read]),
            }
        }
    }
}

/// # Errors
/// The stream fails.
pub async fn write<T: Serialize>(stream: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    stream.write_all(&text).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_lines_are_joined() {
        let text = b"{\"a\":1}\n\"x\\ny\"\n[1,2]\n".as_slice();
        smol::block_on(async {
            let mut lines = Lines::new(text);
            assert_eq!(lines.next::<serde_json::Value>().await.ok(), Some(serde_json::json!({"a": 1})));
            assert_eq!(lines.next::<String>().await.ok(), Some("x\ny".to_owned()));
            assert_eq!(lines.next::<Vec<u8>>().await.ok(), Some(vec![1, 2]));
            let end = lines.next::<String>().await.map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::UnexpectedEof));
        });
    }

    #[test]
    fn a_line_without_end_ends_the_connection() {
        smol::block_on(async {
            let mut lines = Lines::new(smol::io::repeat(b'x'));
            let end = lines.next::<String>().await.map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::InvalidData));
        });
    }
}
