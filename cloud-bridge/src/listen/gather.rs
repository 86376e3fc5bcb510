//! A stream that collects small writes until it is flushed: a TLS record and a system call for each are expensive. Has
//! a buffer only while something waits. Does not interpret the data.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};

/// Maximum length of a TLS record (RFC 8446, 5.1).
const MOST: usize = 16 << 10;

pub(super) struct Gather<S> {
    inner: S,
    waiting: Vec<u8>,
    written: usize,
}

impl<S> Gather<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, waiting: Vec::new(), written: 0 }
    }
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        (self.waiting, self.written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= MOST {
            ready!(self.poll_drain(cx))?;
        }
        let taken = &bytes[..bytes.len().min(MOST - self.waiting.len())];
        self.waiting.extend_from_slice(taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::AsyncWriteExt;

    /// Accepts a few bytes at a time, and returns `Pending` every other time.
    #[derive(Default)]
    struct Narrow {
        bytes: Vec<u8>,
        most: usize,
        calls: usize,
        flushed: usize,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.calls += 1;
            if self.most < MOST && self.calls.is_multiple_of(2) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let taken = bytes.len().min(self.most);
            self.bytes.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushed = self.bytes.len();
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_flush(cx)
        }
    }

    #[tokio::test]
    async fn every_byte_arrives_in_order_and_few_calls_are_made() {
        for most in [1000, MOST] {
            let mut stream = Gather::new(Narrow { most, ..Narrow::default() });
            let bytes: Vec<u8> = (0..50_000_u32).map(|at| at.to_be_bytes()[2] ^ at.to_be_bytes()[3]).collect();
            for piece in bytes.chunks(1024) {
                stream.write_all(piece).await.unwrap();
            }
            assert!(stream.inner.bytes.len() < bytes.len(), "some wait");
            stream.flush().await.unwrap();
            assert_eq!((&stream.inner.bytes, stream.inner.flushed), (&bytes, bytes.len()));
            assert!(most < MOST || stream.inner.calls == 50_000_usize.div_ceil(MOST), "{}", stream.inner.calls);
            assert_eq!(stream.waiting.capacity(), 0, "no room is held");
        }
    }
}
