//! What is done about a query: an answer, a question to another server or to the daemon, or nothing.

use std::cell::RefCell;
use std::net::{IpAddr, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use smol::Timer;

use crate::dns::asks::{Asks, Verdict};
use crate::dns::cache::{Cache, key};
use crate::dns::control::Control;
use crate::dns::forward::Upstream;
use crate::dns::limits::{Limits, Places};
use crate::dns::wire::{A, AAAA, Code, Data, Question, Record, answer, ask_by_tcp, question, refusal, u16_at};
use crate::dns::zone::{Answer, Zone};
use crate::net::Subnet;
use crate::sys::resolve::wire as addresses;

/// Maximum numbers of queries that wait for other servers, in all and of one client. Datagrams and TCP have separate
/// limits, because the sender of a datagram may be forged. Beyond the limit a datagram is answered with the truncation
/// flag, so that the client retries over TCP. A client whose address is forged still gets answers that way.
const MOST_WAITING: usize = 384;
pub(super) const MOST_WAITING_OF_ONE: usize = 64;
const MOST_WAITING_BY_TCP: usize = 128;
const MOST_WAITING_BY_TCP_OF_ONE: usize = 16;
/// Maximum numbers of connections, in all and of one client.
const MOST_CONNECTIONS: usize = 64;
pub(super) const MOST_CONNECTIONS_OF_ONE: usize = 16;
/// How long a query for an unknown namespace waits for the daemon, and the interval of checks.
const LEARN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// A value for datagrams and one for TCP.
#[derive(Default)]
pub(super) struct Way<T> {
    pub(super) datagrams: T,
    pub(super) tcp: T,
}

impl<T> Way<T> {
    fn by(&self, tcp: bool) -> &T {
        if tcp { &self.tcp } else { &self.datagrams }
    }
}

pub(super) struct Server {
    pub(super) zone: RefCell<Zone>,
    pub(super) upstream: Upstream,
    pub(super) control: Control,
    asks: RefCell<Asks>,
    cache: RefCell<Cache>,
    limits: Way<RefCell<Limits>>,
    pub(super) waiting: Way<Rc<Places>>,
    pub(super) connections: Rc<Places>,
    subnets: Vec<Subnet>,
    begun: Instant,
}

/// Whether a query came by TCP, and its client.
type Asker = (bool, IpAddr);

/// What to do about a query.
pub(super) enum Local {
    Answer(Vec<u8>),
    /// Ask other servers; with the alias that leads there.
    Ask(Question, Option<(Record, String)>),
    /// Ask the daemon about this namespace.
    Learn(Question, String),
    Ignore,
}

impl Local {
    /// Answer to a datagram that finds no place to wait.
    pub(super) fn by_tcp(&self, packet: &[u8]) -> Vec<u8> {
        match self {
            Self::Ask(asked, _) | Self::Learn(asked, _) => ask_by_tcp(asked),
            Self::Answer(_) | Self::Ignore => refused(packet),
        }
    }
}

pub(super) fn refused(packet: &[u8]) -> Vec<u8> {
    refusal(u16_at(packet, 0).unwrap_or_default(), Code::Refused)
}

impl Server {
    pub(super) fn new(listen: Vec<IpAddr>, subnets: Vec<Subnet>) -> Self {
        Self {
            zone: RefCell::default(),
            upstream: Upstream::new(listen.clone()),
            control: Control::new(listen),
            asks: RefCell::default(),
            cache: RefCell::default(),
            limits: Way::default(),
            waiting: Way {
                datagrams: Places::new(MOST_WAITING, MOST_WAITING_OF_ONE),
                tcp: Places::new(MOST_WAITING_BY_TCP, MOST_WAITING_BY_TCP_OF_ONE),
            },
            connections: Places::new(MOST_CONNECTIONS, MOST_CONNECTIONS_OF_ONE),
            subnets,
            begun: Instant::now(),
        }
    }

    /// Whether to answer the client: pods of this node and the node itself, within their limits. Others get no answer.
    pub(super) fn may_ask(&self, from: IpAddr, tcp: bool) -> bool {
        let known = self.subnets.iter().any(|subnet| subnet.contains(from)) || self.zone.borrow().is_pod(from);
        (known || is_own(from)) && self.limits.by(tcp).borrow_mut().may_ask(from, self.begun.elapsed())
    }

    pub(super) fn local(&self, packet: &[u8], tcp: bool) -> Local {
        let asked = match question(packet) {
            Ok(asked) => asked,
            Err(Some((id, code))) => return Local::Answer(refusal(id, code)),
            Err(None) => return Local::Ignore,
        };
        let zone = self.zone.borrow();
        if zone.domain().is_empty() {
            // Before the daemon's first message the domain is unknown.
            return Local::Answer(refusal(asked.id, Code::ServerFailure));
        }
        let known = asked.name.as_ref().map(|name| zone.answer(name, asked.kind, asked.room(tcp)));
        if let Some(namespace) = asked.name.as_ref().and_then(|name| zone.interest(name))
            && self.asks.borrow_mut().used(namespace, self.begun.elapsed())
        {
            self.control.ask(namespace);
        }
        match known {
            Some(Answer::Unknown(namespace)) => Local::Learn(asked, namespace),
            Some(Answer::Known(code, records, more)) => {
                Local::Answer(answer(&asked, code, &records, &more, zone.domain(), tcp))
            }
            Some(Answer::Alias(record, target)) => Local::Ask(asked, Some((record, target))),
            Some(Answer::Foreign) | None => {
                self.cached(packet, &asked, false).map_or(Local::Ask(asked, None), Local::Answer)
            }
        }
    }

    /// Returns the answer to a query that must wait for the daemon or another server.
    pub(super) async fn wait(&self, packet: &[u8], mut local: Local, tcp: bool, from: IpAddr) -> Vec<u8> {
        if let Local::Learn(asked, namespace) = &local {
            let now = self.begun.elapsed();
            let verdict = self.asks.borrow_mut().unknown(namespace, from, now);
            if verdict == Verdict::Tell {
                self.control.ask(namespace);
            }
            // Offline, the daemon asks the bridge later: the client does not wait for that.
            if verdict == Verdict::Refuse || !self.zone.borrow().is_online() {
                return self.failed(asked, tcp);
            }
            let end = now + LEARN;
            while matches!(local, Local::Learn(..)) && self.begun.elapsed() < end {
                Timer::after(LOOK).await;
                local = self.local(packet, tcp);
            }
        }
        match local {
            Local::Answer(answer) => answer,
            Local::Ask(asked, _) if !self.limits.by(tcp).borrow_mut().may_ask_others(from, self.begun.elapsed()) => {
                if tcp {
                    refusal(asked.id, Code::Refused)
                } else {
                    ask_by_tcp(&asked)
                }
            }
            Local::Ask(asked, alias) => self.others(packet, &asked, alias, (tcp, from)).await,
            Local::Learn(asked, _) => self.failed(&asked, tcp),
            Local::Ignore => refused(packet),
        }
    }

    async fn others(&self, packet: &[u8], asked: &Question, alias: Option<(Record, String)>, asker: Asker) -> Vec<u8> {
        if let Some((record, target)) = alias {
            return self.through_alias(asked, record, &target, asker).await;
        }
        self.fetch(packet, asked, asker).await.unwrap_or_else(|| self.failed(asked, asker.0))
    }

    fn cached(&self, packet: &[u8], asked: &Question, stale: bool) -> Option<Vec<u8>> {
        let key = key(packet, 12 + asked.raw.len());
        self.cache.borrow().get(&key, asked.id, &asked.raw, self.begun.elapsed(), stale)
    }

    /// Returns the answer of other servers, or a stale one from the cache.
    async fn fetch(&self, packet: &[u8], asked: &Question, (tcp, from): Asker) -> Option<Vec<u8>> {
        let told = self.upstream.ask(packet, asked, tcp).await;
        let Some(told) = told else { return self.cached(packet, asked, true) };
        let key = key(packet, 12 + asked.raw.len());
        self.cache.borrow_mut().put(key, &told, from, self.begun.elapsed());
        Some(told)
    }

    /// Returns the alias, and the addresses of its target from other servers.
    async fn through_alias(&self, asked: &Question, record: Record, target: &str, asker: Asker) -> Vec<u8> {
        let (tcp, _) = asker;
        let kind = match asked.kind {
            A => addresses::RecordType::A,
            AAAA => addresses::RecordType::Aaaa,
            _ => return self.failed(asked, tcp),
        };
        if !addresses::is_host_name(target) {
            return self.failed(asked, tcp);
        }
        let packet = addresses::query(asked.id, target, kind);
        let Ok(inner) = question(&packet) else { return self.failed(asked, tcp) };
        let told = match self.cached(&packet, &inner, false) {
            Some(told) => Some(told),
            None => self.fetch(&packet, &inner, asker).await,
        };
        let (code, ips) = match told.and_then(|told| addresses::answer(&told, asked.id, target, kind)) {
            Some(addresses::Answer::Addresses(ips)) => (Code::NoError, ips),
            Some(addresses::Answer::NoSuchName) => (Code::NoSuchName, Vec::new()),
            Some(addresses::Answer::Failed) | None => return self.failed(asked, tcp),
        };
        let of = |ip| Record { name: target.to_owned(), data: Data::Address(ip) };
        let records: Vec<Record> = [record].into_iter().chain(ips.into_iter().map(of)).collect();
        answer(asked, code, &records, &[], self.zone.borrow().domain(), tcp)
    }

    fn failed(&self, asked: &Question, tcp: bool) -> Vec<u8> {
        answer(asked, Code::ServerFailure, &[], &[], self.zone.borrow().domain(), tcp)
    }
}

/// Whether the address is one of the node: a process can bind only those.
fn is_own(from: IpAddr) -> bool {
    UdpSocket::bind((from, 0)).is_ok()
}
