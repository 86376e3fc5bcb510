//! Addresses and routes of a link (`ifaddrmsg`, `rtmsg` of rtnetlink(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::libc;

use super::message::{Request, attributes, u32_at};
use super::{Socket, link};

/// Bytes of `struct ifaddrmsg` and `struct rtmsg`.
const IFADDRMSG: usize = 8;
pub(super) const RTMSG: usize = 12;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// One address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    pub index: u32,
    pub address: IpAddr,
    pub prefix: u8,
    /// Global scope: not loopback or link-local.
    pub global: bool,
}

/// Adds `address/prefix` to a link; succeeds if it exists already.
pub fn add(socket: &mut Socket, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    socket.request(vec![new_address(index, address, prefix)])
}

/// Sets a pod's link up with its addresses `(address, gateway)` and routes of each family, in one datagram. The way to its
/// neighbours, too, leads through the gateway: an answer that does not would not be translated back.
pub fn configure(socket: &mut Socket, index: u32, addresses: &[(IpAddr, IpAddr)]) -> io::Result<()> {
    let mut requests = vec![link::up(index)];
    for (address, gateway) in addresses {
        requests.push(new_address(index, *address, if address.is_ipv4() { 32 } else { 128 }));
        requests.push(route_to(index, *gateway));
        requests.push(default_route(index, *gateway));
    }
    socket.request(requests)
}

fn new_address(index: u32, address: IpAddr, prefix: u8) -> Request {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let request = Request::new(libc::RTM_NEWADDR, flags, &ifaddrmsg(family(address), prefix, index));
    match address {
        IpAddr::V4(address) => {
            let broadcast = u32::from(address) | u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            request
                .attribute(libc::IFA_LOCAL, &address.octets())
                .attribute(libc::IFA_ADDRESS, &address.octets())
                .attribute(libc::IFA_BROADCAST, &broadcast.to_be_bytes())
        }
        // Only this node assigns addresses of the pod subnet: a pod need not wait a second for duplicate detection.
        IpAddr::V6(address) => request
            .attribute(libc::IFA_ADDRESS, &address.octets())
            .attribute(libc::IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes()),
    }
}

/// A neighbour on the link itself.
fn route_to(index: u32, neighbour: IpAddr) -> Request {
    let octets = octets(neighbour);
    let mut fixed = rtmsg(family(neighbour), libc::RT_TABLE_MAIN, libc::RTPROT_BOOT, libc::RTN_UNICAST);
    fixed[1] = u8::try_from(octets.len() * 8).unwrap_or_default();
    fixed[6] = libc::RT_SCOPE_LINK;
    Request::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &fixed)
        .attribute(libc::RTA_DST, &octets)
        .attribute(libc::RTA_OIF, &index.to_ne_bytes())
}

fn default_route(index: u32, gateway: IpAddr) -> Request {
    let fixed = rtmsg(family(gateway), libc::RT_TABLE_MAIN, libc::RTPROT_BOOT, libc::RTN_UNICAST);
    Request::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &fixed)
        .attribute(libc::RTA_GATEWAY, &octets(gateway))
        .attribute(libc::RTA_OIF, &index.to_ne_bytes())
}

pub(super) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Takes an address from a link; fine when it has gone already.
pub fn delete(socket: &mut Socket, address: &LinkAddress) -> io::Result<()> {
    let fixed = ifaddrmsg(family(address.address), address.prefix, address.index);
    let request = Request::new(libc::RTM_DELADDR, 0, &fixed).attribute(libc::IFA_LOCAL, &octets(address.address));
    match socket.request(vec![request]) {
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(()),
        result => result,
    }
}

/// All addresses of this namespace, both families.
pub fn list(socket: &mut Socket) -> io::Result<Vec<LinkAddress>> {
    let mut all = Vec::new();
    let request = Request::new(libc::RTM_GETADDR, libc::NLM_F_DUMP, &ifaddrmsg(0, 0, 0));
    socket.query(request, |body| all.extend(parse_address(body)))?;
    Ok(all)
}

/// An address far away, of each family, to ask the kernel for the default route.
pub const FAR: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// How the kernel would reach a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Source address it would use.
    pub source: Option<IpAddr>,
    /// Index of the link it would use.
    pub link: Option<u32>,
}

/// How the kernel would reach `destination`; `None` without a route. No packet is sent.
pub fn route_towards(socket: &mut Socket, destination: IpAddr) -> io::Result<Option<Route>> {
    let octets = octets(destination);
    let mut fixed = rtmsg(family(destination), 0, 0, 0);
    fixed[1] = u8::try_from(octets.len() * 8).unwrap_or_default();
    let request = Request::new(libc::RTM_GETROUTE, 0, &fixed).attribute(libc::RTA_DST, &octets);
    let mut route = Route::default();
    let result = socket.query(request, |body| {
        for (kind, payload) in attributes(body.get(RTMSG..).unwrap_or_default()) {
            match kind {
                libc::RTA_PREFSRC => route.source = ip(payload),
                libc::RTA_OIF => route.link = u32_at(payload, 0),
                _ => {}
            }
        }
    });
    match result {
        // EAFNOSUPPORT, EOPNOTSUPP: a kernel without IPv6.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
            ) =>
        {
            Ok(None)
        }
        result => result.map(|()| Some(route)),
    }
}

fn ifaddrmsg(family: u8, prefix: u8, index: u32) -> [u8; IFADDRMSG] {
    let mut bytes = [family, prefix, 0, libc::RT_SCOPE_UNIVERSE, 0, 0, 0, 0];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes
}

pub(super) fn rtmsg(family: u8, table: u8, protocol: u8, kind: u8) -> [u8; RTMSG] {
    let mut bytes = [0; RTMSG];
    bytes[0] = family;
    bytes[4] = table;
    bytes[5] = protocol;
    bytes[6] = libc::RT_SCOPE_UNIVERSE;
    bytes[7] = kind;
    bytes
}

fn parse_address(body: &[u8]) -> Option<LinkAddress> {
    let (prefix, scope) = (*body.get(1)?, *body.get(3)?);
    let index = u32_at(body, 4)?;
    let mut address = None;
    for (kind, payload) in attributes(body.get(IFADDRMSG..)?) {
        // On a point-to-point link IFA_ADDRESS is the peer's: IFA_LOCAL wins.
        if kind == libc::IFA_LOCAL || (kind == libc::IFA_ADDRESS && address.is_none()) {
            address = ip(payload);
        }
    }
    Some(LinkAddress { index, address: address?, prefix, global: scope == libc::RT_SCOPE_UNIVERSE })
}

pub(super) fn ip(payload: &[u8]) -> Option<IpAddr> {
    match payload.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(payload).ok()?))),
        16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(payload).ok()?))),
        _ => None,
    }
}
