//! The `tcpSocket` probe: a connection that can be opened is a success.

use std::net::{SocketAddr, TcpStream};

use smol::Async;

use super::worker::Outcome;

/// Opens a connection; the error reads as Go prints it, which is what users search for.
pub(super) async fn connect(address: SocketAddr) -> Result<Async<TcpStream>, String> {
    Async::<TcpStream>::connect(address).await.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            std::io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
            std::io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {address}: connect: {reason}")
    })
}

pub(super) async fn probe(address: SocketAddr) -> Outcome {
    match connect(address).await {
        Ok(_) => Outcome::Success,
        Err(error) => Outcome::Failure(error),
    }
}
