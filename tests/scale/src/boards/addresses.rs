//! Loopback addresses from which boards reach the bridge, each that of several boards, as behind the NAT of a site. The
//! daemon's code connects to a port here, and the connection goes on from another address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Addresses in one network of 256.
const PER_NETWORK: usize = 250;
/// Pause when the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Address with this number: 127.0.2.1 and onwards.
pub(crate) fn source(number: usize) -> anyhow::Result<Ipv4Addr> {
    let part = |value: usize| u8::try_from(value).context("too many addresses: let more boards share one (--behind)");
    Ok(Ipv4Addr::new(127, 0, part(2 + number / PER_NETWORK)?, part(1 + number % PER_NETWORK)?))
}

/// Opens a port of 127.0.0.1 whose connections reach the bridge from `source`. Serves it until the program ends.
pub(crate) async fn open(source: Ipv4Addr, bridge: SocketAddr) -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("opening a port for boards")?;
    let port = listener.local_addr()?.port();
    tokio::task::spawn_local(serve(listener, source, bridge));
    Ok(port)
}

async fn serve(listener: TcpListener, source: Ipv4Addr, bridge: SocketAddr) {
    loop {
        match listener.accept().await {
            // A board whose connection fails asks again.
            Ok((board, _)) => drop(tokio::task::spawn_local(forward(board, source, bridge))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn forward(mut board: TcpStream, source: Ipv4Addr, bridge: SocketAddr) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((source, 0)))?;
    let mut onward = socket.connect(bridge).await?;
    board.set_nodelay(true)?;
    onward.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut board, &mut onward).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_an_address_of_its_own() {
        let of = |number| source(number).unwrap().to_string();
        assert_eq!([of(0), of(249), of(250)], ["127.0.2.1", "127.0.2.250", "127.0.3.1"]);
        assert!(source(250 * 254).unwrap_err().to_string().contains("--behind"));
    }
}
