//! Host names to addresses without libc: a static binary has no NSS, and a blocking lookup would stop the
//! node. IP literals, `/etc/hosts`, then DNS over UDP to the servers of `/etc/resolv.conf`.
//!
//! Owns the sockets; `search` decides whom to ask what, [`wire`] owns the DNS message. Knows nothing of who wants the address.

mod config;
mod search;
pub mod wire;

use search::{Begin, Search};
use smol::{Async, Timer};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Most addresses that are given back.
const MAX_ADDRESSES: usize = 16;

/// DNS over UDP without EDNS: RFC 1035, 2.3.4.
const MAX_REPLY: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("{0:?} is not a host name")]
    Name(String),
    #[error("{0}: no such host")]
    NotFound(String),
    #[error("{host}: no answer from {servers}")]
    NoAnswer { host: String, servers: String },
    #[error("{host}: /etc/resolv.conf names no server")]
    NoServers { host: String },
    #[error("{host}: {source}")]
    Io { host: String, source: io::Error },
}

/// Addresses of a host, without blocking.
///
/// # Errors
/// The name is malformed or unknown, or no server answered in time.
pub async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    resolve_until(host, port, None).await
}

/// Addresses of a host; blocks for the time-outs of `/etc/resolv.conf`, at most for `patience`. For helper processes only.
///
/// # Errors
/// The name is malformed or unknown, or no server answered in time.
pub fn resolve_blocking(host: &str, port: u16, patience: Duration) -> Result<Vec<SocketAddr>, ResolveError> {
    smol::block_on(resolve_until(host, port, Some(Instant::now() + patience)))
}

async fn resolve_until(host: &str, port: u16, end: Option<Instant>) -> Result<Vec<SocketAddr>, ResolveError> {
    let mut search = match Search::begin(host)? {
        Begin::Found(addresses) => return Ok(with_port(addresses, port)),
        Begin::Ask(search) => search,
    };
    while end.is_none_or(|end| Instant::now() < end)
        && let Some(question) = search.next_question()?
    {
        let socket = Async::<UdpSocket>::bind(any_address(question.server)).map_err(|e| search.io(e))?;
        let sent = async {
            socket.get_ref().connect(question.server)?;
            for query in &question.queries {
                socket.send(query).await?;
            }
            io::Result::Ok(())
        };
        let mut buffer = [0; MAX_REPLY];
        if sent.await.is_ok() {
            while search.waiting() {
                let until = search.until(&question);
                let timeout = async {
                    Timer::at(end.map_or(until, |end| until.min(end))).await;
                    Err(io::ErrorKind::TimedOut.into())
                };
                match smol::future::or(socket.recv(&mut buffer), timeout).await {
                    Ok(length) => search.reply(&buffer[..length]),
                    // Refused by ICMP, or out of time: the next server may do better.
                    Err(_) => break,
                }
            }
        }
        if let Some(addresses) = search.take() {
            return Ok(with_port(addresses, port));
        }
    }
    Err(search.failure())
}

fn any_address(server: SocketAddr) -> SocketAddr {
    if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}

fn with_port(addresses: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    addresses.into_iter().map(|a| SocketAddr::new(a, port)).collect()
}

#[cfg(test)]
mod tests;
