//! A socket that closes without losing the last answer. The kernel resets a connection that is closed while bytes of
//! its peer are unread, and drops data that it has yet to send: the sender of a refused body would not get the refusal.
//! So a server sends its end, and reads and drops until its peer ends too (RFC 9112, section 9.6; `closeWriteAndWait`
//! of Go's server). Does not interpret the data.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Time for the peer to end after us, and the maximum of bytes that it may send meanwhile: more than the largest body
/// that an API accepts.
const MOST: (Duration, usize) = (Duration::from_secs(5), 4 << 20);

/// Whether the connection may end at once: it was upgraded, so its halves end one by one, or it has no answer to lose.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtOnce(Arc<AtomicBool>);

impl AtOnce {
    /// Lets it end at once.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Notes whether this answer upgrades the connection.
    pub(crate) fn note<B>(&self, answer: &Response<B>) {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.set();
        }
    }
}

/// A socket that is read until its peer's end, after our own end was sent.
#[derive(Debug)]
pub(crate) struct Lingering<S> {
    socket: S,
    at_once: AtOnce,
    most: (Duration, usize),
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// The peer has ended, or the limits are reached.
    Over,
    /// Our end is sent; the deadline, and the bytes that may still be dropped.
    Ending(Pin<Box<Sleep>>, usize),
}

impl<S> Lingering<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, at_once: AtOnce::default(), most: MOST, state: State::Open }
    }

    /// Returns the handle that [notes](AtOnce::note) each answer.
    pub(crate) fn at_once(&self) -> AtOnce {
        self.at_once.clone()
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Drops received bytes, until the peer's end or a limit.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let State::Ending(until, left) = &mut self.state else { return Poll::Ready(()) };
        while *left > 0 && until.as_mut().poll(cx).is_pending() {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => *left = left.saturating_sub(buffer.filled().len()),
                Ok(()) | Err(_) => break,
            }
        }
        self.state = State::Over;
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        let done = ready!(Pin::new(&mut self.socket).poll_read(cx, buffer));
        if room > 0 && buffer.filled().len() == before {
            self.state = State::Over;
        }
        Poll::Ready(done)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.state, State::Ending(..)) {
            return self.poll_rest(cx).map(Ok);
        }
        ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
        if matches!(self.state, State::Open) && !self.at_once.0.load(Ordering::Relaxed) {
            self.state = State::Ending(Box::pin(sleep(self.most.0)), self.most.1);
            return self.poll_rest(cx).map(Ok);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    const ANSWER: usize = 3 << 20;
    const SHORT: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(30);

    /// A client, and the server's end of its connection.
    async fn connection() -> (TcpStream, Lingering<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, Lingering::new(listener.accept().await.unwrap().0))
    }

    #[tokio::test]
    async fn unread_body_does_not_cost_the_answer() {
        let (mut client, mut server) = connection().await;
        client.write_all(&[b'x'; 60_000]).await.unwrap();
        server.most.0 = LONG * 10;
        let serving = tokio::spawn(async move {
            server.read_exact(&mut [0; 100]).await?;
            server.write_all(&vec![b'y'; ANSWER]).await?;
            server.shutdown().await
        });
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("a connection that is not reset");
        assert_eq!(answer.len(), ANSWER);
        assert!(!serving.is_finished(), "the client may still send");
        drop(client);
        timeout(LONG, serving).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn client_that_goes_on_is_waited_for_so_long_and_no_longer() {
        let (client, mut silent) = connection().await;
        silent.most.0 = SHORT;
        let start = std::time::Instant::now();
        timeout(LONG, silent.shutdown()).await.unwrap().unwrap();
        assert!(start.elapsed() >= SHORT);
        drop(client);
        let (mut client, mut flooded) = connection().await;
        flooded.most = (LONG * 10, 100_000);
        let flood = tokio::spawn(async move { while client.write_all(&[b'x'; 10_000]).await.is_ok() {} });
        timeout(LONG, flooded.shutdown()).await.unwrap().unwrap();
        drop(flooded);
        timeout(LONG, flood).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn client_that_has_ended_is_not_waited_for() {
        let (mut client, mut server) = connection().await;
        client.shutdown().await.unwrap();
        assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0);
        server.shutdown().await.unwrap();
        assert!(matches!(server.state, State::Over));
    }

    #[tokio::test]
    async fn connection_without_an_answer_to_lose_ends_at_once() {
        let (client, mut server) = connection().await;
        server.most.0 = LONG * 10;
        server.at_once().set();
        timeout(LONG, server.shutdown()).await.unwrap().unwrap();
        assert!(matches!(server.state, State::Open));
        drop(client);
    }

    #[tokio::test]
    async fn upgraded_connection_is_read_after_our_end() {
        let (mut client, mut server) = connection().await;
        let mut answer = Response::new(());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        server.at_once().note(&answer);
        server.shutdown().await.unwrap();
        client.write_all(b"still here").await.unwrap();
        client.shutdown().await.unwrap();
        let mut rest = String::new();
        server.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "still here");
    }
}
