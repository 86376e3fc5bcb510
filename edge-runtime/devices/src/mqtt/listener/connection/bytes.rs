//! Bytes from a client and to it.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::ready;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::mqtt::listener::frame::Decoder;

/// Bytes that are read at once.
const READ: usize = 8 << 10;
/// Bytes of memory that are kept for what is written next.
const KEPT: usize = 1_024;

/// Whether there may be more to read at once.
pub(super) async fn fill(read: &mut ReadHalf<'_>, decoder: &mut Decoder) -> io::Result<bool> {
    // A silent connection holds no buffer.
    poll_fn(|context| {
        let mut bytes = [MaybeUninit::uninit(); READ];
        let mut bytes = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut *read).poll_read(context, &mut bytes))?;
        if bytes.filled().is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into()).into();
        }
        decoder.feed(bytes.filled());
        Ok(bytes.remaining() == 0).into()
    })
    .await
}

/// Bytes that are being written.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) bytes: Vec<u8>,
    /// Those before this are written.
    start: usize,
}

impl Out {
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes as much as is taken now.
    pub(super) async fn flush(&mut self, write: &mut WriteHalf<'_>) -> io::Result<()> {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        let written = poll_fn(|context| Pin::new(&mut *write).poll_write(context, rest)).await?;
        self.start += written;
        if self.start >= self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT {
                self.bytes = Vec::new();
            }
        }
        Ok(())
    }
}
