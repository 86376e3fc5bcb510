//! The socket of the listener: there as soon as the address can be had, and as long as the helper is.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::time::sleep;

use super::connection::serve;
use super::shared::Shared;

/// Until an address that cannot be had is tried again, and when no connection can be taken, for want of descriptors.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes that the kernel holds for one connection in each direction; it doubles the number (socket(7)).
const BUFFER: u32 = 64 << 10;
const BACKLOG: u32 = 64;

/// Takes clients for ever.
pub(super) async fn accept(address: SocketAddr, shared: Rc<Shared>) {
    let listener = bound(address).await;
    log::info!("listening for MQTT clients at {address}");
    let mut place = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                place += 1;
                // It does not run before this is done: all is on one thread.
                let task = tokio::task::spawn_local(serve(stream, place, Rc::clone(&shared)));
                shared.came(place, task.abort_handle());
            }
            Err(error) => {
                log::warn!("no client can be taken: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn bound(address: SocketAddr) -> TcpListener {
    let mut told = String::new();
    loop {
        match bind(address) {
            Ok(listener) => return listener,
            Err(error) => {
                let why = error.to_string();
                if why != told {
                    log::error!("no MQTT client is heard at {address} ({why}); tried again until it can be had");
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
