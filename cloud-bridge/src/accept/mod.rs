//! Limits of connections from anyone: their number, their duration, and their number per address. One gate for all
//! ports of the process.
//!
//! A connection *arrives* until its server says that it is [proven](Arrival::proven), or drops it. Meanwhile it waits
//! either for its peer or for the bridge. Waiting for the peer is bounded by its [`Patience`]; waiting for the bridge
//! does not count against the peer, and goes in order of arrival. Must not know requests or nodes.

mod arrival;
pub mod client;
mod gate;
mod kept;
mod lingering;
mod room;
mod unsent;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};

pub use arrival::Arrival;
pub(crate) use gate::ARRIVAL;
pub use gate::{Gate, Patience};
pub use kept::{Busy, Kept};
pub(crate) use lingering::Lingering;
pub(crate) use room::Source;

/// Written data that stays unacknowledged this long ends the connection (tcp(7), TCP_USER_TIMEOUT).
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle time before probes of a client's connection, and their interval. A client without power sends no end, and a silent log
/// that it follows would be kept forever.
const PROBES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(15));
/// Pause after an error of accept(2).
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between two log lines about errors of accept(2).
const TOLD: Duration = Duration::from_secs(60);

/// Sends small pieces at once, since a peer waits for each, and ends a connection whose data is not acknowledged.
///
/// # Errors
/// The connection has ended already.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_user_timeout(Some(USER_TIMEOUT))
}

/// Ends the connection of a client whose machine is gone, even if nothing is sent to it. Nodes are probed by the link's own pings.
fn probe(socket: &TcpStream) -> io::Result<()> {
    SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBES.0).with_interval(PROBES.1))
}

/// Accepts until dropped; each connection is served by a task of its own.
pub async fn each<F, S>(listener: TcpListener, gate: Arc<Gate>, port: &str, serve: S) -> Infallible
where
    S: Fn(TcpStream, SocketAddr, Arc<Arrival>) -> F,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut told = None::<tokio::time::Instant>;
    let mut tell = |problem: String| {
        if told.is_none_or(|at| at.elapsed() >= TOLD) {
            told = Some(tokio::time::Instant::now());
            log::warn!("{port}: {problem}");
        }
    };
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // No descriptors or memory, or an error of the connection (accept(2) lists a dozen): the next one may
                // work.
                tell(format!("accepting a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(arrival) = gate.admit(peer.ip()) else {
            tell(format!("too many connections arrive, of {} or of all: some are refused", peer.ip()));
            continue;
        };
        let served = serve(socket, peer, arrival);
        let port = port.to_owned();
        tokio::spawn(async move {
            if let Err(error) = served.await {
                log::debug!("{port}: {peer}: {error}");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connection_of_a_client_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        prepare(&socket).unwrap();
        assert!(!SockRef::from(&socket).keepalive().unwrap(), "not for nodes");
        probe(&socket).unwrap();
        assert!(SockRef::from(&socket).keepalive().unwrap());
    }
}
