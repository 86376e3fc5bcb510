//! Forwards queries for names outside the cluster to the servers of the node (`/etc/resolv.conf`). Each has a new port
//! and a random id, so that an attacker cannot forge an answer.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, Timer};

use super::wire::{self, Question};
use crate::sys::random::random;
use crate::sys::resolve;

/// Time for one attempt at one server, and attempts for each server.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;
const MOST_SERVERS: usize = 3;
/// A query reads the file again after this time.
const READ_AGAIN: Duration = Duration::from_secs(5);
const DATAGRAM: usize = 4_096;

/// The servers to forward to.
#[derive(Debug)]
pub struct Upstream {
    file: &'static str,
    /// Addresses of this helper: it must not forward to itself.
    own: RefCell<Vec<IpAddr>>,
    servers: RefCell<(Option<Instant>, Vec<SocketAddr>)>,
}

impl Upstream {
    pub fn new(own: Vec<IpAddr>) -> Self {
        Self { file: "/etc/resolv.conf", own: own.into(), servers: RefCell::default() }
    }

    /// Sets the addresses that lead to this helper.
    pub fn own(&self, own: &[IpAddr]) {
        if *self.own.borrow() != own {
            *self.own.borrow_mut() = own.to_vec();
            *self.servers.borrow_mut() = Default::default();
        }
    }

    fn servers(&self) -> Vec<SocketAddr> {
        let mut known = self.servers.borrow_mut();
        if known.0.is_none_or(|read| read.elapsed() > READ_AGAIN) {
            let text = std::fs::read_to_string(self.file).unwrap_or_default();
            *known = (Some(Instant::now()), servers(&text, &self.own.borrow()));
        }
        known.1.clone()
    }

    /// Returns the answer of the first server that answers.
    pub async fn ask(&self, packet: &[u8], question: &Question, tcp: bool) -> Option<Vec<u8>> {
        let servers = self.servers();
        for _ in 0..ROUNDS {
            for server in &servers {
                let id = u16::try_from(random() & 0xffff).unwrap_or_default();
                let mut packet = packet.to_vec();
                packet.get_mut(..2)?.copy_from_slice(&id.to_be_bytes());
                let work = async {
                    if tcp { by_tcp(*server, &packet).await } else { by_udp(*server, &packet, question, id).await }
                };
                let late = async {
                    Timer::after(PATIENCE).await;
                    Err(io::ErrorKind::TimedOut.into())
                };
                let Ok(mut answer) = work.or(late).await else { continue };
                let is_it = wire::answers(&answer, question) && wire::u16_at(&answer, 0) == Some(id);
                // After a SERVFAIL the next server may know the answer.
                if is_it && answer.get(3).is_some_and(|code| code & 0x0f != wire::Code::ServerFailure as u8) {
                    answer.get_mut(..2)?.copy_from_slice(&question.id.to_be_bytes());
                    return Some(answer);
                }
            }
        }
        None
    }
}

async fn by_udp(server: SocketAddr, packet: &[u8], question: &Question, id: u16) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = Async::<UdpSocket>::bind((any, 0))?;
    socket.get_ref().connect(server)?;
    socket.send(packet).await?;
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let answer = buffer.get(..length).unwrap_or_default();
        if wire::u16_at(answer, 0) == Some(id) && wire::answers(answer, question) {
            return Ok(answer.to_vec());
        }
    }
}

async fn by_tcp(server: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = Async::<TcpStream>::connect(server).await?;
    write(&mut stream, packet).await?;
    read(&mut stream).await
}

/// Reads one message from a stream (RFC 1035, 4.2.2).
///
/// # Errors
/// The stream ends or fails.
pub async fn read(stream: &mut Async<TcpStream>) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// # Errors
/// The stream ends or fails, or the message is too long for one.
pub async fn write(stream: &mut Async<TcpStream>, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await
}

fn servers(text: &str, own: &[IpAddr]) -> Vec<SocketAddr> {
    let server = |line: &str| line.split_whitespace().nth(1).and_then(resolve::server);
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("nameserver"));
    lines.filter_map(server).filter(|server| !own.contains(&server.ip())).take(MOST_SERVERS).collect()
}

#[cfg(test)]
mod tests;
