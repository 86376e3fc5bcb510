//! Host names to addresses without libc: a static binary has no NSS, and a blocking lookup would stop the
//! node. IP literals, `/etc/hosts`, then DNS over UDP, and TCP for long answers, to the servers of `/etc/resolv.conf`.
//!
//! Owns the sockets; `search` decides which server gets which query, [`wire`] owns the DNS message. Does not know its
//! callers.

mod config;
mod search;
pub mod wire;

use nix::net::if_::if_nametoindex;
use search::{Begin, Search};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, Timer};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Most addresses that are given back.
const MAX_ADDRESSES: usize = 16;

/// DNS over UDP without EDNS: RFC 1035, 2.3.4.
const MAX_REPLY: usize = 512;
const PORT: u16 = 53;

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

/// Address of a name server of resolv.conf(5). A link-local address names its link, by name or number (RFC 4007, 11);
/// `None` if the link does not exist.
pub fn server(word: &str) -> Option<SocketAddr> {
    let Some((ip, scope)) = word.split_once('%') else {
        return word.parse().ok().map(|ip| SocketAddr::new(ip, PORT));
    };
    let number = || if_nametoindex(scope).ok();
    let scope = scope.parse().ok().or_else(number)?;
    Some(SocketAddrV6::new(ip.parse().ok()?, PORT, 0, scope).into())
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
                    Ok(length) => {
                        let packet = buffer.get(..length).unwrap_or_default();
                        let late = async {
                            Timer::at(end.map_or(question.until, |end| question.until.min(end))).await;
                            Err(io::ErrorKind::TimedOut.into())
                        };
                        match search.cut_off(packet, &question) {
                            None => search.reply(packet),
                            // Without TCP the truncated answer of a server counts.
                            Some(query) => match smol::future::or(by_tcp(question.server, query), late).await {
                                Ok(whole) => search.reply(&whole),
                                Err(_) => search.reply(packet),
                            },
                        }
                    }
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

/// The answer to a question whose answer is too long for a datagram (RFC 7766).
async fn by_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(query.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut stream = Async::<TcpStream>::connect(server).await?;
    stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

fn any_address(server: SocketAddr) -> SocketAddr {
    if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}

fn with_port(addresses: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    addresses.into_iter().map(|a| SocketAddr::new(a, port)).collect()
}

#[cfg(test)]
mod tests;
