//! IPv4 addresses and routes of a link (`ifaddrmsg`, `rtmsg` of rtnetlink(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::libc;

use super::message::{Request, attributes, u32_at};
use super::{Socket, link};

/// Bytes of `struct ifaddrmsg` and `struct rtmsg`.
const IFADDRMSG: usize = 8;
const RTMSG: usize = 12;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// One address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    pub index: u32,
    pub address: IpAddr,
    pub prefix: u8,
    /// Global scope: neither loopback nor link-local.
    pub global: bool,
}

/// Gives `address/prefix` to a link; fine when it has it already.
pub fn add(socket: &mut Socket, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    socket.request(vec![new_address(index, address, prefix)])
}

/// Sets a pod's link up with its address and default route, in one datagram.
pub fn configure(socket: &mut Socket, index: u32, address: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> io::Result<()> {
    socket.request(vec![link::up(index), new_address(index, address, prefix), default_route(index, gateway)])
}

fn new_address(index: u32, address: Ipv4Addr, prefix: u8) -> Request {
    let broadcast = u32::from(address) | u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
    Request::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &ifaddrmsg(AF_INET, prefix, index))
        .attribute(libc::IFA_LOCAL, &address.octets())
        .attribute(libc::IFA_ADDRESS, &address.octets())
        .attribute(libc::IFA_BROADCAST, &broadcast.to_be_bytes())
}

fn default_route(index: u32, gateway: Ipv4Addr) -> Request {
    let fixed = rtmsg(AF_INET, libc::RT_TABLE_MAIN, libc::RTPROT_BOOT, libc::RTN_UNICAST);
    Request::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &fixed)
        .attribute(libc::RTA_GATEWAY, &gateway.octets())
        .attribute(libc::RTA_OIF, &index.to_ne_bytes())
}

/// Takes an address from a link; fine when it has gone already.
pub fn delete(socket: &mut Socket, address: &LinkAddress) -> io::Result<()> {
    let IpAddr::V4(ip) = address.address else { return Ok(()) };
    let request = Request::new(libc::RTM_DELADDR, 0, &ifaddrmsg(AF_INET, address.prefix, address.index))
        .attribute(libc::IFA_LOCAL, &ip.octets());
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

/// Source address the kernel would use towards `destination`; `None` without a route. No packet is sent.
pub fn source_towards(socket: &mut Socket, destination: IpAddr) -> io::Result<Option<IpAddr>> {
    let (family, octets) = match destination {
        IpAddr::V4(ip) => (AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AF_INET6, ip.octets().to_vec()),
    };
    let mut fixed = rtmsg(family, 0, 0, 0);
    fixed[1] = u8::try_from(octets.len() * 8).unwrap_or_default();
    let request = Request::new(libc::RTM_GETROUTE, 0, &fixed).attribute(libc::RTA_DST, &octets);
    let mut source = None;
    let result = socket.query(request, |body| {
        let attribute = attributes(body.get(RTMSG..).unwrap_or_default()).find(|(kind, _)| *kind == libc::RTA_PREFSRC);
        source = attribute.and_then(|(_, payload)| ip(payload));
    });
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES)) => {
            Ok(None)
        }
        result => result.map(|()| source),
    }
}

fn ifaddrmsg(family: u8, prefix: u8, index: u32) -> [u8; IFADDRMSG] {
    let mut bytes = [family, prefix, 0, libc::RT_SCOPE_UNIVERSE, 0, 0, 0, 0];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes
}

fn rtmsg(family: u8, table: u8, protocol: u8, kind: u8) -> [u8; RTMSG] {
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

fn ip(payload: &[u8]) -> Option<IpAddr> {
    match payload.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(payload).ok()?))),
        16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(payload).ok()?))),
        _ => None,
    }
}
