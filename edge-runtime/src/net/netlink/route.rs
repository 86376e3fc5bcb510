//! Routes of the main table that carry a protocol number of our own (`rtmsg`, rtnetlink(7)): whoever made them is told by it,
//! and nobody else's are touched.

use std::io;
use std::net::IpAddr;

use nix::libc;

use super::Socket;
use super::address::{RTMSG, family, ip, octets, rtmsg};
use super::message::{Request, attributes, u32_at};

/// A way to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub to: IpAddr,
    pub prefix: u8,
    /// None for what is on the link itself.
    pub via: Option<IpAddr>,
    /// Index.
    pub link: u32,
}

/// Adds a route, or replaces the one to that range.
pub fn replace(socket: &mut Socket, protocol: u8, route: &Route) -> io::Result<()> {
    socket.request(vec![message(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, protocol, route)])
}

/// Takes a route away; fine where it has gone already.
pub fn delete(socket: &mut Socket, protocol: u8, route: &Route) -> io::Result<()> {
    match socket.request(vec![message(libc::RTM_DELROUTE, 0, protocol, route)]) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

fn message(kind: u16, flags: i32, protocol: u8, route: &Route) -> Request {
    let mut fixed = rtmsg(family(route.to), libc::RT_TABLE_MAIN, protocol, libc::RTN_UNICAST);
    fixed[1] = route.prefix;
    if route.via.is_none() {
        fixed[6] = libc::RT_SCOPE_LINK;
    }
    let request = Request::new(kind, flags, &fixed)
        .attribute(libc::RTA_DST, &octets(route.to))
        .attribute(libc::RTA_OIF, &route.link.to_ne_bytes());
    match route.via {
        Some(via) => request.attribute(libc::RTA_GATEWAY, &octets(via)),
        None => request,
    }
}

/// All routes of the protocol, of both families.
pub fn list(socket: &mut Socket, protocol: u8) -> io::Result<Vec<Route>> {
    let mut all = Vec::new();
    socket.query(Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &rtmsg(0, 0, 0, 0)), |body| {
        all.extend(parse(body, protocol));
    })?;
    all.sort_unstable();
    Ok(all)
}

fn parse(body: &[u8], protocol: u8) -> Option<Route> {
    let (prefix, table, made_by) = (*body.get(1)?, *body.get(4)?, *body.get(5)?);
    if made_by != protocol || table != libc::RT_TABLE_MAIN {
        return None;
    }
    let (mut to, mut via, mut link) = (None, None, None);
    for (kind, payload) in attributes(body.get(RTMSG..)?) {
        match kind {
            libc::RTA_DST => to = ip(payload),
            libc::RTA_GATEWAY => via = ip(payload),
            libc::RTA_OIF => link = u32_at(payload, 0),
            _ => {}
        }
    }
    Some(Route { to: to?, prefix, via, link: link? })
}
