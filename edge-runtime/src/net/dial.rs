//! TCP connections to the loopback of any network namespace. The calling thread is elsewhere for one `socket` call; a
//! socket stays in the namespace where it was made. Knows nothing of pods.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};
use smol::Async;

use super::NetError;
use super::namespaces::OwnNetwork;
use crate::sys::time::io_within;

/// A port on the loopback answers at once, unless a firewall of the pod swallows the question.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects to `port` of localhost in the namespace pinned at `namespace` (`None`: the node's own), 127.0.0.1 first,
/// then ::1, as CRI runtimes do (containerd internal/cri/server/sandbox_portforward_linux.go).
///
/// # Errors
/// The namespace is gone, or what the first address answered if neither takes connections.
pub async fn localhost(namespace: Option<&Path>, port: u16) -> Result<Async<TcpStream>, NetError> {
    let failed = |source| NetError::namespace("connect to localhost", source);
    let first = match to(namespace, IpAddr::V4(Ipv4Addr::LOCALHOST), port).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    to(namespace, IpAddr::V6(Ipv6Addr::LOCALHOST), port).await.map_err(|_| failed(first))
}

async fn to(namespace: Option<&Path>, address: IpAddr, port: u16) -> io::Result<Async<TcpStream>> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = socket_in(namespace, family)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, port))) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let stream = Async::new(TcpStream::from(fd))?;
    io_within(PATIENCE, stream.writable()).await?;
    match stream.get_ref().take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}

fn socket_in(namespace: Option<&Path>, family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let make = || socket(family, SockType::Stream, flags, None).map_err(io::Error::from);
    match namespace {
        None => make(),
        Some(path) => {
            let namespace = File::open(path)?;
            OwnNetwork::open().and_then(|own| own.inside(&namespace, make)).map_err(io::Error::other)?
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::namespaces::{self, NamespaceMaker, NamespaceRequest};
    use super::*;
    use smol::io::{AsyncReadExt, AsyncWriteExt};
    use std::net::{Shutdown, TcpListener};

    #[test]
    fn a_port_inside_a_namespace_is_reached_from_outside() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("ns");
        let request = NamespaceRequest { net: true, ipc: false, hostname: None, sysctls: &[], first_id: None };
        let path = NamespaceMaker::open().unwrap().create(&folder, &request).unwrap().net.unwrap();
        let inside = |address: &str| {
            let file = File::open(&path).unwrap();
            OwnNetwork::open().unwrap().inside(&file, || TcpListener::bind(address).unwrap()).unwrap()
        };
        for (address, port) in [("127.0.0.1:8123", 8123), ("[::1]:8124", 8124)] {
            let listener = inside(address);
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
            });
            let echoed = smol::block_on(async {
                let mut stream = localhost(Some(&path), port).await.unwrap();
                stream.write_all(b"half-closed").await.unwrap();
                stream.get_ref().shutdown(Shutdown::Write).unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                text
            });
            assert_eq!(echoed, "half-closed");
            server.join().unwrap();
            // The thread is back in the node's namespace, where nothing listens.
            assert!(smol::block_on(localhost(None, port)).is_err());
        }
        let refused = smol::block_on(localhost(Some(&path), 9)).unwrap_err();
        assert!(refused.to_string().contains("refused"), "{refused}");
        namespaces::remove(&folder).unwrap();
    }
}
