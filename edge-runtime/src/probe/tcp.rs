//! The `tcpSocket` probe, and the connections of all network probes.
//!
//! Most peers are containers on this machine: they are connected when `connect` returns, and answer a moment later. So
//! this uses the reactor, which costs a dozen system calls and a wake-up of its thread for each wait, only when it must
//! wait.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect as start, socket};
use nix::sys::time::TimeSpec;
use smol::Async;
use smol::io::{AsyncRead, AsyncWrite};

/// How long the whole daemon waits for an answer, once per connection: less than one commit of the store takes.
const MOMENT: Duration = Duration::from_micros(200);

/// Opens a connection; the error reads as Go prints it, which is what users search for.
pub(super) async fn connect(address: SocketAddr) -> Result<Stream, String> {
    open(address).await.map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
            io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {address}: connect: {reason}")
    })
}

async fn open(address: SocketAddr) -> io::Result<Stream> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None)?;
    match start(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut stream = Stream { socket: TcpStream::from(fd).into(), watched: None, patient: true };
    if !stream.is_ready(PollFlags::POLLOUT, Duration::ZERO) {
        stream.watched()?.writable().await?;
    }
    match stream.get_ref()?.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}

/// A connection that the reactor may or may not know yet.
pub(super) struct Stream {
    socket: Option<TcpStream>,
    watched: Option<Async<TcpStream>>,
    /// The daemon has not waited for this connection yet.
    patient: bool,
}

impl Stream {
    fn get_ref(&self) -> io::Result<&TcpStream> {
        let socket = self.socket.as_ref().or(self.watched.as_ref().map(Async::get_ref));
        socket.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Registers the socket with the reactor from here on.
    fn watched(&mut self) -> io::Result<&mut Async<TcpStream>> {
        if let Some(socket) = self.socket.take() {
            self.watched = Some(Async::new_nonblocking(socket)?);
        }
        self.watched.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn is_ready(&self, flags: PollFlags, wait: Duration) -> bool {
        let Some(socket) = &self.socket else { return false };
        let wait = TimeSpec::from_duration(wait);
        ppoll(&mut [PollFd::new(socket.as_fd(), flags)], Some(wait), None).is_ok_and(|ready| ready > 0)
    }

    /// The result of `act` if the socket is ready now, or in a moment.
    fn at_once<R>(
        &mut self,
        flags: PollFlags,
        mut act: impl FnMut(&TcpStream) -> io::Result<R>,
    ) -> Option<io::Result<R>> {
        let blocked = |result: &io::Result<R>| matches!(result, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        let result = act(self.socket.as_ref()?);
        if !blocked(&result) {
            return Some(result);
        }
        let may_wait = std::mem::take(&mut self.patient);
        let again = may_wait && self.is_ready(flags, MOMENT);
        again.then(|| self.socket.as_ref().map(act))?.filter(|result| !blocked(result))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.at_once(PollFlags::POLLIN, |mut socket| socket.read(buffer)) {
            Some(result) => Poll::Ready(result),
            None => Pin::new(this.watched()?).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.at_once(PollFlags::POLLOUT, |mut socket| socket.write(bytes)) {
            Some(result) => Poll::Ready(result),
            None => Pin::new(this.watched()?).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_ref().and_then(|socket| socket.shutdown(Shutdown::Write)))
    }
}
