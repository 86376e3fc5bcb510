//! Sockets for pods. An address that the node does not have yet is tried again.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::spawn_local;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::connection::serve;
use super::seat::Seat;
use crate::shared::Shared;

/// Until an address that cannot be had is tried again.
const PAUSE: Duration = Duration::from_secs(5);
/// Until ServiceAccounts without pods are looked for again.
const DAY: Duration = Duration::from_secs(86_400);
/// Bytes that the kernel holds for one connection in each direction; it doubles the number (socket(7)).
const BUFFER: u32 = 32 << 10;
const BACKLOG: u32 = 64;

/// Serves pods at these addresses, for as long as the process is.
pub(crate) fn start(shared: &Rc<Shared>, listen: &[SocketAddr], server: &Arc<ServerConfig>) {
    for address in listen {
        spawn_local(accept(Rc::clone(shared), *address, TlsAcceptor::from(Arc::clone(server))));
    }
    spawn_local(forget(Rc::clone(shared)));
}

/// Deletes what ServiceAccounts without pods have read, once a day.
async fn forget(shared: Rc<Shared>) {
    loop {
        sleep(DAY).await;
        let pods = shared.pods.borrow();
        if pods.is_ready() {
            shared.cache.borrow_mut().forget_accounts(pods.accounts());
        }
    }
}

async fn accept(shared: Rc<Shared>, address: SocketAddr, tls: TlsAcceptor) {
    let listener = bound(&shared, address).await;
    loop {
        match listener.accept().await {
            Ok((stream, from)) => match Seat::take(&shared, from.ip()) {
                Some(seat) => seat.serve(|seat| spawn_local(serve(seat, stream, tls.clone())).abort_handle()),
                // Closed at once.
                None => shared.count(|counters| counters.over_limit += 1),
            },
            Err(error) => {
                log::warn!("no pod can connect: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn bound(shared: &Shared, address: SocketAddr) -> TcpListener {
    let (text, mut told) = (address.to_string(), String::new());
    loop {
        match bind(address) {
            Ok(listener) => {
                log::info!("taking requests of pods at {address}");
                shared.listens(&text, None);
                return listener;
            }
            Err(error) => {
                let why = error.to_string();
                if why != told {
                    log::error!(
                        "pods cannot use the API at {address} ({why}); tried again every {} s",
                        PAUSE.as_secs()
                    );
                    shared.listens(&text, Some(why.clone()));
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
    // Connections that are accepted have the same options.
    socket.set_send_buffer_size(BUFFER)?;
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
