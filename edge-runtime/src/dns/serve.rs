//! The sockets of the helper: queries of pods, and messages of the daemon. Queries are untrusted, so the helper drops
//! its rights before it reads the first one.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use smol::future::{FutureExt, yield_now};
use smol::{Async, Timer};

use super::asks::{Asks, Verdict};
use super::cache::{Cache, key};
use super::control::Control;
use super::forward::{self, Upstream};
use super::health::Checks;
use super::limits::{Limits, Places};
use super::wire::{A, AAAA, Code, Data, Question, Record, answer, ask_by_tcp, question, refusal, u16_at};
use super::zone::{Answer, Cluster, Zone};
use crate::net::Subnet;
use crate::sys::resolve::wire as addresses;
use crate::sys::socket as unix;
use crate::sys::tasks::Tasks;

pub const PORT: u16 = 53;
/// Maximum numbers of queries that wait for other servers, in all and of one client. Datagrams and TCP have separate
/// limits, because the sender of a datagram may be forged. Beyond the limit a datagram is answered with the truncation
/// flag, so that the client retries over TCP. A client whose address is forged still gets answers that way.
const MOST_WAITING: usize = 384;
const MOST_WAITING_OF_ONE: usize = 64;
const MOST_WAITING_BY_TCP: usize = 128;
const MOST_WAITING_BY_TCP_OF_ONE: usize = 16;
/// Maximum numbers of connections, in all and of one client, and the lifetime of one.
const MOST_CONNECTIONS: usize = 64;
const MOST_CONNECTIONS_OF_ONE: usize = 16;
const IDLE: Duration = Duration::from_secs(10);
/// How long a query for an unknown namespace waits for the daemon, and the interval of checks.
const LEARN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
const MEMORY: rlim_t = 64 << 20;
/// Uid and gid of `nobody`.
const NOBODY: u32 = 65_534;
const DATAGRAM: usize = 4_096;
/// Receive buffer of the datagram socket: a flood of one client must not crowd out others while it is discarded.
const WAITING_BYTES: usize = 1 << 20;
/// Datagrams in a row before other tasks run.
const AT_ONCE: u8 = 32;

pub struct Options {
    /// Addresses for queries of pods.
    pub listen: Vec<IpAddr>,
    /// Subnets of permitted clients.
    pub subnets: Vec<Subnet>,
    /// Unix socket for the daemon.
    pub socket: PathBuf,
}

/// A value for datagrams and one for TCP.
#[derive(Default)]
struct Way<T> {
    datagrams: T,
    tcp: T,
}

impl<T> Way<T> {
    fn by(&self, tcp: bool) -> &T {
        if tcp { &self.tcp } else { &self.datagrams }
    }
}

struct Server {
    zone: RefCell<Zone>,
    upstream: Upstream,
    control: Control,
    asks: RefCell<Asks>,
    cache: RefCell<Cache>,
    limits: Way<RefCell<Limits>>,
    waiting: Way<Rc<Places>>,
    connections: Rc<Places>,
    subnets: Vec<Subnet>,
    begun: Instant,
}

/// Serves until the daemon ends it. Returns at once if another helper is running.
///
/// # Errors
/// An address does not exist, or another program uses it.
pub fn run(options: Options) -> io::Result<()> {
    if unix::connect(&options.socket).is_ok() {
        return Ok(());
    }
    let mut sockets = Vec::new();
    for ip in &options.listen {
        let at = SocketAddr::new(*ip, PORT);
        match bind(at) {
            Ok(both) => sockets.push(both),
            // Another Sampan node of this host may serve pods of CNI plugins at this address.
            Err(error) if !sockets.is_empty() => log::warn!("{at}: {error}"),
            Err(error) => return Err(io::Error::new(error.kind(), format!("{at}: {error}"))),
        }
    }
    let control = unix::listen(&options.socket, 0o600)?;
    give_up_rights()?;
    let server = Rc::new(Server::new(options.listen, options.subnets));
    let tasks = Tasks::default();
    // Queries wait in the sockets for the daemon's first message: after a change of helpers they are answered a moment
    // later instead of with a failure.
    let mut sockets = sockets
        .into_iter()
        .map(|(datagrams, streams)| Ok((Rc::new(Async::new(datagrams)?), Async::new(streams)?)))
        .collect::<io::Result<Vec<_>>>()?;
    let listener = Async::new(control)?;
    let checks = Checks::new(tasks.clone());
    let news = |mut cluster: Cluster| {
        checks.set(std::mem::take(&mut cluster.health));
        server.upstream.own(&[&cluster.listen[..], &cluster.own].concat());
        let partial = cluster.partial;
        server.zone.borrow_mut().take(cluster);
        if !partial {
            sampan_memory::trim();
        }
        for (datagrams, streams) in sockets.drain(..) {
            tasks.spawn(serve_datagrams(Rc::clone(&server), tasks.clone(), datagrams)).detach();
            tasks.spawn(serve_streams(Rc::clone(&server), tasks.clone(), streams)).detach();
        }
    };
    smol::future::block_on(tasks.run(server.control.follow(&listener, news)))
}

fn bind(at: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let datagrams = UdpSocket::bind(at)?;
    // Without the right to it the default size is used.
    let _ = setsockopt(&datagrams, sockopt::RcvBufForce, &WAITING_BYTES);
    Ok((datagrams, TcpListener::bind(at)?))
}

/// Makes this a process of `nobody`; programs that it might start gain no rights either.
fn give_up_rights() -> io::Result<()> {
    setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY)?;
    if Uid::effective().is_root() {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        setgroups(&[])?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
    }
    nix::sys::prctl::set_no_new_privs()?;
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

async fn serve_datagrams(server: Rc<Server>, tasks: Tasks, socket: Rc<Async<UdpSocket>>) {
    let (mut buffer, mut taken) = (vec![0; DATAGRAM], 0_u8);
    loop {
        taken += 1;
        if taken == AT_ONCE {
            taken = 0;
            yield_now().await;
        }
        // Errors are transient, or of earlier answers (ECONNREFUSED).
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let packet = buffer.get(..length).unwrap_or_default();
        if !server.may_ask(from.ip(), false) {
            continue;
        }
        match server.local(packet, false) {
            Local::Answer(answer) => drop(socket.send_to(&answer, from).await),
            Local::Ignore => {}
            local => {
                let Some(turn) = server.waiting.datagrams.enter(from.ip()) else {
                    drop(socket.send_to(&local.by_tcp(packet), from).await);
                    continue;
                };
                let (server, socket, packet) = (Rc::clone(&server), Rc::clone(&socket), packet.to_vec());
                let work = async move {
                    let answer = server.wait(&packet, local, false, from.ip()).await;
                    drop(turn);
                    drop(socket.send_to(&answer, from).await);
                };
                tasks.spawn(work).detach();
            }
        }
    }
}

async fn serve_streams(server: Rc<Server>, tasks: Tasks, listener: Async<TcpListener>) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Out of descriptors: wait until other connections end.
            Timer::after(Duration::from_millis(100)).await;
            continue;
        };
        if !server.may_ask(from.ip(), true) {
            continue;
        }
        let Some(place) = server.connections.enter(from.ip()) else { continue };
        let server = Rc::clone(&server);
        let work = async move {
            let late = async {
                Timer::after(IDLE).await;
                Err(io::ErrorKind::TimedOut.into())
            };
            drop(serve_stream(&server, stream, from.ip()).or(late).await);
            drop(place);
        };
        tasks.spawn(work).detach();
    }
}

/// Serves one connection. The caller limits its lifetime, whatever the client sends.
async fn serve_stream(server: &Rc<Server>, mut stream: Async<TcpStream>, from: IpAddr) -> io::Result<()> {
    loop {
        let packet = forward::read(&mut stream).await?;
        if !server.may_ask(from, true) {
            return Ok(());
        }
        let answer = match server.local(&packet, true) {
            Local::Answer(answer) => answer,
            Local::Ignore => return Ok(()),
            local => match server.waiting.tcp.enter(from) {
                Some(_turn) => server.wait(&packet, local, true, from).await,
                None => refused(&packet),
            },
        };
        forward::write(&mut stream, &answer).await?;
    }
}

/// What to do about a query.
enum Local {
    Answer(Vec<u8>),
    /// Ask other servers; with the alias that leads there.
    Ask(Question, Option<(Record, String)>),
    /// Ask the daemon about this namespace.
    Learn(Question, String),
    Ignore,
}

impl Local {
    /// Answer to a datagram that finds no place to wait.
    fn by_tcp(&self, packet: &[u8]) -> Vec<u8> {
        match self {
            Self::Ask(asked, _) | Self::Learn(asked, _) => ask_by_tcp(asked),
            Self::Answer(_) | Self::Ignore => refused(packet),
        }
    }
}

fn refused(packet: &[u8]) -> Vec<u8> {
    refusal(u16_at(packet, 0).unwrap_or_default(), Code::Refused)
}

impl Server {
    fn new(listen: Vec<IpAddr>, subnets: Vec<Subnet>) -> Self {
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
    fn may_ask(&self, from: IpAddr, tcp: bool) -> bool {
        let known = self.subnets.iter().any(|subnet| subnet.contains(from)) || self.zone.borrow().is_pod(from);
        (known || is_own(from)) && self.limits.by(tcp).borrow_mut().may_ask(from, self.begun.elapsed())
    }

    fn local(&self, packet: &[u8], tcp: bool) -> Local {
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
    async fn wait(&self, packet: &[u8], mut local: Local, tcp: bool, from: IpAddr) -> Vec<u8> {
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
            Local::Ask(asked, alias) => self.others(packet, &asked, alias, tcp).await,
            Local::Learn(asked, _) => self.failed(&asked, tcp),
            Local::Ignore => refused(packet),
        }
    }

    async fn others(&self, packet: &[u8], asked: &Question, alias: Option<(Record, String)>, tcp: bool) -> Vec<u8> {
        if let Some((record, target)) = alias {
            return self.through_alias(asked, record, &target, tcp).await;
        }
        self.fetch(packet, asked, tcp).await.unwrap_or_else(|| self.failed(asked, tcp))
    }

    fn cached(&self, packet: &[u8], asked: &Question, stale: bool) -> Option<Vec<u8>> {
        let key = key(packet, 12 + asked.raw.len());
        self.cache.borrow().get(&key, asked.id, &asked.raw, self.begun.elapsed(), stale)
    }

    /// Returns the answer of other servers, or a stale one from the cache.
    async fn fetch(&self, packet: &[u8], asked: &Question, tcp: bool) -> Option<Vec<u8>> {
        let told = self.upstream.ask(packet, asked, tcp).await;
        let Some(told) = told else { return self.cached(packet, asked, true) };
        let key = key(packet, 12 + asked.raw.len());
        self.cache.borrow_mut().put(key, &told, self.begun.elapsed());
        Some(told)
    }

    /// Returns the alias, and the addresses of its target from other servers.
    async fn through_alias(&self, asked: &Question, record: Record, target: &str, tcp: bool) -> Vec<u8> {
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
            None => self.fetch(&packet, &inner, tcp).await,
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

#[cfg(test)]
mod tests;
