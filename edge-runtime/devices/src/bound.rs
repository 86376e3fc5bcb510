//! A TCP socket that listens, as soon as its address can be had. Knows nothing of who calls there.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::time::sleep;

/// Until an address that cannot be had is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes that the kernel holds for one connection in each direction; it doubles the number (socket(7)).
const BUFFER: u32 = 64 << 10;
const BACKLOG: u32 = 64;

/// `clients`: kind of the clients that cannot connect until then, for the log.
pub(crate) async fn bound(address: SocketAddr, clients: &str) -> TcpListener {
    let mut told = String::new();
    loop {
        match bind(address) {
            Ok(listener) => {
                log::info!("listening for {clients} at {address}");
                return listener;
            }
            Err(error) => {
                let why = error.to_string();
                if why != told {
                    log::error!("no {clients} are heard at {address} ({why}); tried again until it can be had");
                    told = why;
                }
            }
        }
        sleep(PAUSE).await;
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // The one before may have connections that are about to end.
    socket.set_reuseaddr(true)?;
    // Those that are accepted have the same options.
    socket.set_send_buffer_size(BUFFER)?;
    socket.set_recv_buffer_size(BUFFER)?;
    // A client without keep-alive that was unplugged.
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
