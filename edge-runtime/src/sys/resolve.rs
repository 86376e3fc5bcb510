//! Host names to addresses without libc: a static binary has no NSS, and a blocking lookup would stop the
//! node. IP literals, `/etc/hosts`, then DNS over UDP to the servers of `/etc/resolv.conf`.
//!
//! Owns the order of asking; [`wire`] owns the DNS message. Knows nothing of who wants the address.

mod config;
pub mod wire;

use config::Config;
use ring::rand::{SecureRandom, SystemRandom};
use smol::{Async, Timer};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};
use wire::{Answer, RecordType};

/// Most addresses that are given back.
const MAX_ADDRESSES: usize = 16;

/// Longest hosts file that is read; some people block advertising with a megabyte of them.
const MAX_FILE: u64 = 4 << 20;

/// DNS over UDP without EDNS: RFC 1035, 2.3.4.
const MAX_REPLY: usize = 512;

/// Wait for the second of the two replies when the first has an address.
const STRAGGLER: Duration = Duration::from_millis(150);

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
    let mut search = match Search::begin(host)? {
        Begin::Found(addresses) => return Ok(with_port(addresses, port)),
        Begin::Ask(search) => search,
    };
    while let Some(question) = search.next_question()? {
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
                let timeout = async {
                    Timer::at(search.until(&question)).await;
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

/// Addresses of a host; blocks for the time-outs of `/etc/resolv.conf`. For helper processes only.
///
/// # Errors
/// The name is malformed or unknown, or no server answered in time.
pub fn resolve_blocking(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    let mut search = match Search::begin(host)? {
        Begin::Found(addresses) => return Ok(with_port(addresses, port)),
        Begin::Ask(search) => search,
    };
    while let Some(question) = search.next_question()? {
        let socket = UdpSocket::bind(any_address(question.server)).map_err(|e| search.io(e))?;
        let sent = socket.connect(question.server);
        let sent = sent.and_then(|()| question.queries.iter().try_for_each(|q| socket.send(q).map(drop)));
        let mut buffer = [0; MAX_REPLY];
        if sent.is_ok() {
            while search.waiting() {
                let left = search.until(&question).saturating_duration_since(Instant::now());
                if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
                    break;
                }
                let Ok(length) = socket.recv(&mut buffer) else { break };
                search.reply(&buffer[..length]);
            }
        }
        if let Some(addresses) = search.take() {
            return Ok(with_port(addresses, port));
        }
    }
    Err(search.failure())
}

enum Begin {
    Found(Vec<IpAddr>),
    Ask(Box<Search>),
}

/// One packet pair for one server.
struct Question {
    server: SocketAddr,
    queries: [Vec<u8>; 2],
    until: Instant,
}

/// What is left to ask, and what was answered.
struct Search {
    host: String,
    config: Config,
    /// Names still to ask for, the current one last.
    names: Vec<String>,
    /// Servers still to ask for the current name, all attempts, in order.
    servers: std::vec::IntoIter<SocketAddr>,
    pending: Vec<(u16, RecordType)>,
    found: Vec<IpAddr>,
    found_at: Option<Instant>,
    denied: bool,
    answered: bool,
}

impl Search {
    fn begin(host: &str) -> Result<Begin, ResolveError> {
        if let Ok(literal) = host.parse::<IpAddr>() {
            return Ok(Begin::Found(vec![literal]));
        }
        if !wire::is_host_name(host) {
            return Err(ResolveError::Name(host.chars().take(80).collect()));
        }
        let io = |source| ResolveError::Io { host: host.to_owned(), source };
        let local = config::hosts(&read(Path::new("/etc/hosts")).map_err(io)?, host);
        if !local.is_empty() {
            return Ok(Begin::Found(local));
        }
        // RFC 6761, 6.3: localhost never leaves the host.
        if host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost") {
            return Ok(Begin::Found(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
        }
        let config = Config::parse(&read(Path::new("/etc/resolv.conf")).map_err(io)?);
        Self::with(host, config).map(|search| Begin::Ask(Box::new(search)))
    }

    fn with(host: &str, config: Config) -> Result<Self, ResolveError> {
        if config.servers.is_empty() {
            return Err(ResolveError::NoServers { host: host.to_owned() });
        }
        let mut names = config.names(host);
        names.reverse();
        Ok(Self {
            host: host.to_owned(),
            servers: config.rounds().into_iter(),
            config,
            names,
            pending: Vec::new(),
            found: Vec::new(),
            found_at: None,
            denied: false,
            answered: false,
        })
    }

    /// The next packets to send; none when everything was tried.
    fn next_question(&mut self) -> Result<Option<Question>, ResolveError> {
        if self.denied {
            self.denied = false;
            self.names.pop();
            self.servers = self.config.rounds().into_iter();
        }
        let Some(name) = self.names.last() else { return Ok(None) };
        let Some(server) = self.servers.next() else {
            // No server answers: other names will fare no better.
            return Ok(None);
        };
        let mut ids = [0; 4];
        let random = SystemRandom::new().fill(&mut ids);
        random.map_err(|_| ResolveError::Io { host: self.host.clone(), source: io::Error::other("no randomness") })?;
        let first = u16::from_be_bytes([ids[0], ids[1]]);
        // Any other number: the two replies must not be taken for each other.
        let second = first.wrapping_add(1 + (u16::from_be_bytes([ids[2], ids[3]]) >> 1));
        self.pending = vec![(first, RecordType::A), (second, RecordType::Aaaa)];
        let queries = [(first, RecordType::A), (second, RecordType::Aaaa)].map(|(id, t)| wire::query(id, name, t));
        Ok(Some(Question { server, queries, until: Instant::now() + self.config.timeout }))
    }

    /// Once there is an address, the reply about the other kind is given a moment, not the whole time-out.
    fn until(&self, question: &Question) -> Instant {
        self.found_at.map_or(question.until, |at| question.until.min(at + STRAGGLER))
    }

    fn waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    fn reply(&mut self, packet: &[u8]) {
        let Some(name) = self.names.last() else { return };
        for at in 0..self.pending.len() {
            let (id, record) = self.pending[at];
            // What is not the answer to this question is somebody's noise, or an attack: go on waiting.
            let Some(answer) = wire::answer(packet, id, name, record) else { continue };
            self.pending.remove(at);
            match answer {
                Answer::Addresses(addresses) => {
                    if !addresses.is_empty() {
                        self.found_at.get_or_insert_with(Instant::now);
                    }
                    self.found.extend(addresses);
                    self.answered = true;
                    self.denied |= self.pending.is_empty() && self.found.is_empty();
                }
                Answer::NoSuchName => {
                    self.answered = true;
                    self.denied = true;
                    self.pending.clear();
                }
                Answer::Failed => {}
            }
            return;
        }
    }

    fn take(&mut self) -> Option<Vec<IpAddr>> {
        if self.found.is_empty() {
            return None;
        }
        let mut seen = BTreeSet::new();
        // IPv4 first: on a device with half an IPv6 set-up a dead address costs a whole connect time-out.
        let mut found = std::mem::take(&mut self.found);
        found.sort_by_key(IpAddr::is_ipv6);
        found.retain(|a| seen.insert(*a));
        found.truncate(MAX_ADDRESSES);
        Some(found)
    }

    fn io(&self, source: io::Error) -> ResolveError {
        ResolveError::Io { host: self.host.clone(), source }
    }

    fn failure(self) -> ResolveError {
        if self.answered {
            return ResolveError::NotFound(self.host);
        }
        let servers: Vec<_> = self.config.servers.iter().map(ToString::to_string).collect();
        ResolveError::NoAnswer { host: self.host, servers: servers.join(", ") }
    }
}

fn any_address(server: SocketAddr) -> SocketAddr {
    if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}

fn with_port(addresses: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    addresses.into_iter().map(|a| SocketAddr::new(a, port)).collect()
}

/// A file that is not there is an empty one.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAX_FILE).read_to_end(&mut bytes)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(e) => return Err(e),
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
