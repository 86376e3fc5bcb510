//! The sockets of the helper: questions of pods, and the daemon's news of the cluster. Everything it reads but the latter
//! comes from strangers; it gives up its rights before the first of it.

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
/// Questions to other servers that wait, in all and of one asker: those that came in datagrams, whose senders may be forged,
/// and those over TCP, whose are proven. A datagram that finds no place is answered with the advice to ask by TCP, so that
/// who forges the addresses of others takes no answers from them.
const MOST_WAITING: usize = 384;
const MOST_WAITING_OF_ONE: usize = 64;
const MOST_WAITING_BY_TCP: usize = 128;
const MOST_WAITING_BY_TCP_OF_ONE: usize = 16;
/// Connections, and how long one may be silent.
const MOST_CONNECTIONS: usize = 64;
const MOST_CONNECTIONS_OF_ONE: usize = 16;
const IDLE: Duration = Duration::from_secs(10);
/// For the daemon's news of a namespace that nothing is known of, and how often is looked.
const LEARN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
const MEMORY: rlim_t = 64 << 20;
/// `nobody`, as everywhere.
const NOBODY: u32 = 65_534;
const DATAGRAM: usize = 4_096;
/// Of datagrams that wait: what one asker sends too many of must not crowd out others' while they are thrown away.
const WAITING_BYTES: usize = 1 << 20;
/// Others get their turn after so many.
const AT_ONCE: u8 = 32;

pub struct Options {
    /// Where pods ask.
    pub listen: Vec<IpAddr>,
    /// Who may ask.
    pub subnets: Vec<Subnet>,
    /// Where the daemon tells.
    pub socket: PathBuf,
}

/// One of each for questions in datagrams and over TCP.
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

/// Serves until the daemon says that it is enough. Returns at once if another one serves already.
///
/// # Errors
/// An address is not there, or is taken by a stranger.
pub fn run(options: Options) -> io::Result<()> {
    if unix::connect(&options.socket).is_ok() {
        return Ok(());
    }
    let mut sockets = Vec::new();
    for ip in &options.listen {
        let at = SocketAddr::new(*ip, PORT);
        match bind(at) {
            Ok(both) => sockets.push(both),
            // Another node of this host may answer pods of network plugins.
            Err(error) if !sockets.is_empty() => log::warn!("{at}: {error}"),
            Err(error) => return Err(io::Error::new(error.kind(), format!("{at}: {error}"))),
        }
    }
    let control = unix::listen(&options.socket, 0o600)?;
    give_up_rights()?;
    let server = Rc::new(Server::new(options.listen, options.subnets));
    let tasks = Tasks::default();
    // Questions wait in their sockets for the first news: what is asked of a helper that takes the place of another is
    // answered a moment later, and not with a failure.
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
    // Without the right to it the default has to do.
    let _ = setsockopt(&datagrams, sockopt::RcvBufForce, &WAITING_BYTES);
    Ok((datagrams, TcpListener::bind(at)?))
}

/// Nobody's process, which gains nothing by any program it might start.
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
        // Errors are of earlier answers (ECONNREFUSED), or passing.
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
            // Out of descriptors: others must end first.
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

/// Ends with its time, however much is asked meanwhile.
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

/// What is to become of a question.
enum Local {
    Answer(Vec<u8>),
    /// Of others; with the alias that leads to it.
    Ask(Question, Option<(Record, String)>),
    /// Of a namespace that the daemon has to ask about.
    Learn(Question, String),
    Ignore,
}

impl Local {
    /// What a question in a datagram is answered when there is no place to wait.
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

    /// Pods of this node and the node itself, and those not without end. What is too much is not even refused.
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
            // What is asked of others, and what is not, is told first of all.
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

    /// The answer to what cannot be answered at once.
    async fn wait(&self, packet: &[u8], mut local: Local, tcp: bool, from: IpAddr) -> Vec<u8> {
        if let Local::Learn(asked, namespace) = &local {
            let now = self.begun.elapsed();
            let verdict = self.asks.borrow_mut().unknown(namespace, from, now);
            if verdict == Verdict::Tell {
                self.control.ask(namespace);
            }
            // Without a cloud it will be asked about later; who asks now need not wait for that.
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

    /// What others say, or said when they last said something.
    async fn fetch(&self, packet: &[u8], asked: &Question, tcp: bool) -> Option<Vec<u8>> {
        let told = self.upstream.ask(packet, asked, tcp).await;
        let Some(told) = told else { return self.cached(packet, asked, true) };
        let key = key(packet, 12 + asked.raw.len());
        self.cache.borrow_mut().put(key, &told, self.begun.elapsed());
        Some(told)
    }

    /// The alias, and the addresses that others know for where it leads.
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

/// Whether the node itself asks, by whichever of its addresses: only those can be bound to.
fn is_own(from: IpAddr) -> bool {
    UdpSocket::bind((from, 0)).is_ok()
}

#[cfg(test)]
mod tests;
