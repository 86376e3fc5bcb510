//! Output of a process in a container, for its reader. Does not know processes or streams.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smol::Async;
use smol::io::AsyncRead;

/// Our end of a process's standard output or error.
pub struct Output {
    file: Async<File>,
    lines: Option<Lines>,
}

impl Output {
    /// Bytes as they come.
    #[must_use]
    pub fn plain(file: Async<File>) -> Self {
        Self { file, lines: None }
    }

    /// Output of a terminal that the OCI runtime feeds. runc removes the carriage returns from the command's output (it
    /// clears ONLCR of the terminal in the container, and expects the outer one to add them), but only once the command
    /// may already be running: its first lines may or may not have them.
    #[must_use]
    pub fn terminal(file: Async<File>) -> Self {
        Self { file, lines: Some(Lines::default()) }
    }
}

impl AsyncRead for Output {
    /// # Errors
    /// Those of the file; a terminal's end is reported as one ([`is_hung_up`](crate::sys::terminal::is_hung_up)).
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let Self { file, lines } = &mut *self;
        let Some(lines) = lines else { return Pin::new(file).poll_read(cx, buf) };
        if lines.owed && !buf.is_empty() {
            return Poll::Ready(Ok(lines.pay(buf)));
        }
        // Each byte may become two.
        let most = buf.len().div_ceil(2);
        let count = ready!(Pin::new(file).poll_read(cx, &mut buf[..most]))?;
        Poll::Ready(Ok(lines.end(buf, count)))
    }
}

/// Ends every line in carriage return and line feed, whether it came so or not.
#[derive(Default)]
struct Lines {
    last: u8,
    /// A line feed that had no room behind its carriage return.
    owed: bool,
}

impl Lines {
    fn pay(&mut self, buf: &mut [u8]) -> usize {
        self.owed = false;
        buf[0] = b'\n';
        1
    }

    /// Takes the first `count` bytes of `buf`, which are new; returns how many to read there next.
    fn end(&mut self, buf: &mut [u8], count: usize) -> usize {
        let came = buf[..count].to_vec();
        let mut at = 0;
        for byte in came {
            if byte == b'\n' && self.last != b'\r' {
                buf[at] = b'\r';
                at += 1;
                if at == buf.len() {
                    (self.last, self.owed) = (byte, true);
                    break;
                }
            }
            buf[at] = byte;
            at += 1;
            self.last = byte;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str], room: usize) -> String {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for piece in pieces {
            for part in piece.as_bytes().chunks(room.div_ceil(2)) {
                let mut buf = vec![0; room];
                buf[..part.len()].copy_from_slice(part);
                let count = lines.end(&mut buf, part.len());
                all.extend_from_slice(&buf[..count]);
                if lines.owed {
                    let count = lines.pay(&mut buf);
                    all.extend_from_slice(&buf[..count]);
                }
            }
        }
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn line_ends_are_unified() {
        for room in 1..20 {
            assert_eq!(
                read(&["a\r\nb\nc", "\r", "\n\n", "\n", "d\r", "e"], room),
                "a\r\nb\r\nc\r\n\r\n\r\nd\re",
                "{room}"
            );
        }
    }
}
