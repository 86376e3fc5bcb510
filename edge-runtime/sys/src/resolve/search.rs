//! One search for a host's addresses: the next name and server to ask, and the combined result of the replies. Does no
//! I/O.

use super::config::{self, Config};
use super::wire::{self, Answer, RecordType};
use super::{MAX_ADDRESSES, ResolveError};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::sort::sort_by_key;

/// Longest hosts file that is read; some people block advertising with a megabyte of them.
const MAX_FILE: u64 = 4 << 20;

/// Wait for the second of the two replies when the first has an address.
const STRAGGLER: Duration = Duration::from_millis(150);

pub(super) enum Begin {
    Found(Vec<IpAddr>),
    Ask(Box<Search>),
}

/// One packet pair for one server.
pub(super) struct Question {
    pub(super) server: SocketAddr,
    pub(super) queries: [Vec<u8>; 2],
    pub(super) until: Instant,
}

/// Pending queries, and answers so far.
pub(super) struct Search {
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
    pub(super) fn begin(host: &str) -> Result<Begin, ResolveError> {
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

    pub(super) fn with(host: &str, config: Config) -> Result<Self, ResolveError> {
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
    pub(super) fn next_question(&mut self) -> Result<Option<Question>, ResolveError> {
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
    pub(super) fn until(&self, question: &Question) -> Instant {
        self.found_at.map_or(question.until, |at| question.until.min(at + STRAGGLER))
    }

    pub(super) fn waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The query to ask again by TCP, if the packet is an answer to one of the question that did not fit into it.
    pub(super) fn cut_off<'a>(&self, packet: &[u8], question: &'a Question) -> Option<&'a [u8]> {
        let name = self.names.last()?;
        let is_answer = |(id, record): &&(u16, RecordType)| wire::answer(packet, *id, name, *record).is_some();
        let (id, _) = self.pending.iter().find(is_answer).filter(|_| wire::is_cut_off(packet))?;
        question.queries.iter().map(Vec::as_slice).find(|query| query.starts_with(&id.to_be_bytes()))
    }

    pub(super) fn reply(&mut self, packet: &[u8]) {
        let Some(name) = self.names.last() else { return };
        for at in 0..self.pending.len() {
            let (id, record) = self.pending[at];
            // A packet that does not answer this question is noise or an attack: keep waiting.
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

    pub(super) fn take(&mut self) -> Option<Vec<IpAddr>> {
        if self.found.is_empty() {
            return None;
        }
        let mut seen = BTreeSet::new();
        // IPv4 first: on a device with half an IPv6 set-up a dead address costs a whole connect time-out.
        let mut found = std::mem::take(&mut self.found);
        sort_by_key(&mut found, IpAddr::is_ipv6);
        found.retain(|a| seen.insert(*a));
        found.truncate(MAX_ADDRESSES);
        Some(found)
    }

    pub(super) fn io(&self, source: io::Error) -> ResolveError {
        ResolveError::Io { host: self.host.clone(), source }
    }

    pub(super) fn failure(self) -> ResolveError {
        if self.answered {
            return ResolveError::NotFound(self.host);
        }
        let servers: Vec<_> = self.config.servers.iter().map(ToString::to_string).collect();
        ResolveError::NoAnswer { host: self.host, servers: servers.join(", ") }
    }
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
