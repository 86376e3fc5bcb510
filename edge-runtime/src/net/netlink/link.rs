//! Links: bridge, veth pair, loopback. Each function makes one request (`ifinfomsg` of rtnetlink(7)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

use super::Socket;
use super::message::{Request, attributes, i32_at, text, u32_at};

/// Attributes that `libc` does not name (linux/veth.h, linux/if_link.h).
const VETH_INFO_PEER: u16 = 1;
const IFLA_BRPORT_MODE: u16 = 4;
/// Bytes of `struct ifinfomsg`.
const IFINFOMSG: usize = 16;
/// Loopback is always the first link of a namespace.
const LOOPBACK_INDEX: u32 = 1;

/// What we ask of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// `bridge`, `veth`, ...; empty for hardware.
    pub kind: String,
    /// Index of the bridge it is a port of, or 0.
    pub master: u32,
    pub address: Vec<u8>,
    pub mtu: u32,
    pub up: bool,
    /// Frames can be sent: a cable is in, a Wi-Fi is joined. True for links without such a thing.
    pub carrier: bool,
}

/// One veth pair: `host` here, enslaved to `master`, up, and its peer inside another namespace, still down.
#[derive(Clone, Copy, Debug)]
pub struct VethPair<'a> {
    pub host: &'a str,
    pub master: u32,
    pub peer: &'a str,
    pub peer_namespace: BorrowedFd<'a>,
    pub peer_address: [u8; 6],
    pub mtu: u32,
}

/// The link called `name`; `None` if it does not exist.
pub fn by_name(socket: &mut Socket, name: &str) -> io::Result<Option<Link>> {
    one(socket, Request::new(libc::RTM_GETLINK, 0, &ifinfomsg(0, false)).text(libc::IFLA_IFNAME, name))
}

/// The link with this index; `None` if it does not exist.
pub fn by_index(socket: &mut Socket, index: u32) -> io::Result<Option<Link>> {
    one(socket, Request::new(libc::RTM_GETLINK, 0, &ifinfomsg(index, false)))
}

fn one(socket: &mut Socket, request: Request) -> io::Result<Option<Link>> {
    let mut found = None;
    match socket.query(request, |body| found = parse(body)) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        result => result.map(|()| found),
    }
}

/// The link called `name`.
///
/// # Errors
/// The kernel refuses; `ENODEV` if the link does not exist.
pub fn named(socket: &mut Socket, name: &str) -> io::Result<Link> {
    by_name(socket, name)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

/// All ports of the bridge with index `master`.
pub fn ports(socket: &mut Socket, master: u32) -> io::Result<Vec<Link>> {
    let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &ifinfomsg(0, false))
        .attribute(libc::IFLA_MASTER, &master.to_ne_bytes());
    let mut links = Vec::new();
    // Kernels before 4.4 ignore the filter.
    socket.query(request, |body| links.extend(parse(body).filter(|link| link.master == master)))?;
    Ok(links)
}

/// Makes a bridge that is still down. A fixed address, because a bridge otherwise takes the lowest of its ports', which
/// changes as pods come and go and breaks the neighbours' ARP caches.
pub fn add_bridge(socket: &mut Socket, name: &str, address: [u8; 6], mtu: u32) -> io::Result<()> {
    let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &ifinfomsg(0, false))
        .text(libc::IFLA_IFNAME, name)
        .attribute(libc::IFLA_ADDRESS, &address)
        .attribute(libc::IFLA_MTU, &mtu.to_ne_bytes())
        .nest(libc::IFLA_LINKINFO, |info| info.text(libc::IFLA_INFO_KIND, "bridge"));
    socket.request(vec![request])
}

/// Makes a link that leads nowhere, still down.
pub fn add_dummy(socket: &mut Socket, name: &str) -> io::Result<()> {
    let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &ifinfomsg(0, false))
        .text(libc::IFLA_IFNAME, name)
        .nest(libc::IFLA_LINKINFO, |info| info.text(libc::IFLA_INFO_KIND, "dummy"));
    socket.request(vec![request])
}

/// Makes the pair and lets the bridge send frames back through the port they came from (a pod that reaches itself
/// through an address translated on the node).
pub fn add_veth(socket: &mut Socket, pair: &VethPair<'_>) -> io::Result<()> {
    socket.request(vec![new_veth(pair), hairpin(pair.host)])
}

fn new_veth(pair: &VethPair<'_>) -> Request {
    let both = |end: Request| {
        end.attribute(libc::IFLA_MTU, &pair.mtu.to_ne_bytes())
            // The default is a queue per possible CPU, each with its own sysfs objects.
            .attribute(libc::IFLA_NUM_TX_QUEUES, &1u32.to_ne_bytes())
            .attribute(libc::IFLA_NUM_RX_QUEUES, &1u32.to_ne_bytes())
    };
    let peer = |peer: Request| {
        // The kernel cannot set the peer up before the pair is joined.
        let peer = peer.raw(&ifinfomsg(0, false)).text(libc::IFLA_IFNAME, pair.peer);
        let peer = peer.attribute(libc::IFLA_NET_NS_FD, &pair.peer_namespace.as_raw_fd().to_ne_bytes());
        both(peer.attribute(libc::IFLA_ADDRESS, &pair.peer_address))
    };
    let request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &ifinfomsg(0, true))
        .text(libc::IFLA_IFNAME, pair.host)
        .attribute(libc::IFLA_MASTER, &pair.master.to_ne_bytes());
    both(request).nest(libc::IFLA_LINKINFO, |info| {
        info.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, |data| data.nest(VETH_INFO_PEER, peer))
    })
}

fn hairpin(port: &str) -> Request {
    let request = Request::new(libc::RTM_NEWLINK, 0, &ifinfomsg(0, false)).text(libc::IFLA_IFNAME, port);
    request.nest(libc::IFLA_LINKINFO, |info| {
        info.text(libc::IFLA_INFO_SLAVE_KIND, "bridge")
            .nest(libc::IFLA_INFO_SLAVE_DATA, |data| data.attribute(IFLA_BRPORT_MODE, &[1]))
    })
}

pub fn loopback_up(socket: &mut Socket) -> io::Result<()> {
    set_up(socket, LOOPBACK_INDEX)
}

pub fn set_up(socket: &mut Socket, index: u32) -> io::Result<()> {
    socket.request(vec![up(index)])
}

pub fn set_mtu(socket: &mut Socket, index: u32, mtu: u32) -> io::Result<()> {
    let request = Request::new(libc::RTM_NEWLINK, 0, &ifinfomsg(index, false));
    socket.request(vec![request.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes())])
}

pub(super) fn up(index: u32) -> Request {
    Request::new(libc::RTM_NEWLINK, 0, &ifinfomsg(index, true))
}

/// Deletes a link (and a veth's peer); fine when it has gone already.
/// Waits for the kernel's readers to let go of it: tens of milliseconds.
pub fn delete(socket: &mut Socket, name: &str) -> io::Result<()> {
    let request = Request::new(libc::RTM_DELLINK, 0, &ifinfomsg(0, false)).text(libc::IFLA_IFNAME, name);
    match socket.request(vec![request]) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        result => result,
    }
}

fn ifinfomsg(index: u32, up: bool) -> [u8; IFINFOMSG] {
    let flags = if up { libc::IFF_UP.cast_unsigned() } else { 0 };
    let mut bytes = [0; IFINFOMSG];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

fn parse(body: &[u8]) -> Option<Link> {
    let has = |flag: libc::c_int| Some(u32_at(body, 8)? & flag.cast_unsigned() != 0);
    let (up, carrier) = (has(libc::IFF_UP)?, has(libc::IFF_RUNNING)?);
    let mut link = Link { index: i32_at(body, 4)?.cast_unsigned(), up, carrier, ..Link::default() };
    for (kind, payload) in attributes(body.get(IFINFOMSG..)?) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(payload).to_string(),
            libc::IFLA_MASTER => link.master = u32_at(payload, 0)?,
            libc::IFLA_ADDRESS => link.address = payload.to_vec(),
            libc::IFLA_MTU => link.mtu = u32_at(payload, 0)?,
            libc::IFLA_LINKINFO => {
                let kind = attributes(payload).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
                link.kind = kind.map(|(_, payload)| text(payload).to_string()).unwrap_or_default();
            }
            _ => {}
        }
    }
    Some(link)
}
