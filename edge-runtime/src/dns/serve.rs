//! The sockets of the helper: queries of pods, and messages of the daemon. Queries are untrusted, so the helper drops
//! its rights before it reads the first one.

mod server;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use smol::future::{FutureExt, yield_now};
use smol::{Async, Timer};

use self::server::{Local, Server, refused};
use super::forward;
use super::health::Checks;
use super::zone::Cluster;
use crate::net::Subnet;
use crate::sys::socket as unix;
use crate::sys::tasks::Tasks;

pub const PORT: u16 = 53;
/// Lifetime of a connection.
const IDLE: Duration = Duration::from_secs(10);
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

#[cfg(test)]
mod tests;
