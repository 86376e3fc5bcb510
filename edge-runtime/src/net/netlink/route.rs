//! Routes of the main table (`rtmsg` of rtnetlink(7)). The protocol number names a route's owner: routes of other
//! programs stay untouched.

use std::io;
use std::net::IpAddr;

use nix::libc;

use super::super::prefix::Prefix;
use super::Socket;
use super::address::{RTMSG, family, ip, octets, rtmsg};
use super::message::{Request, attributes, u32_at};

/// A route that leads somewhere in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub to: Prefix,
    /// Gateway; `None` for a destination on the link itself.
    pub via: Option<IpAddr>,
    /// Index of its link; none if it has several.
    pub link: Option<u32>,
    /// Owner of the route (`rtm_protocol`).
    pub protocol: u8,
}

/// All routes but default routes, of both families.
///
/// # Errors
/// The kernel refuses.
pub fn list(socket: &mut Socket) -> io::Result<Vec<Route>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let fixed = rtmsg(u8::try_from(family).unwrap_or_default(), 0, 0, 0);
        socket.query(Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &fixed), |body| all.extend(parse(body)))?;
    }
    Ok(all)
}

/// Adds a route, or replaces the one to that range.
///
/// # Errors
/// The kernel refuses.
pub fn replace(socket: &mut Socket, route: &Route) -> io::Result<()> {
    socket.request(vec![request(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, route)])
}

/// Takes a route away; fine if it has gone already.
///
/// # Errors
/// The kernel refuses.
pub fn delete(socket: &mut Socket, route: &Route) -> io::Result<()> {
    match socket.request(vec![request(libc::RTM_DELROUTE, 0, route)]) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

fn request(kind: u16, flags: i32, route: &Route) -> Request {
    let to = route.to.ip();
    let mut fixed = rtmsg(family(to), libc::RT_TABLE_MAIN, route.protocol, libc::RTN_UNICAST);
    fixed[1] = route.to.length();
    if route.via.is_none() {
        fixed[6] = libc::RT_SCOPE_LINK;
    }
    let mut request = Request::new(kind, flags, &fixed).attribute(libc::RTA_DST, &octets(to));
    if let Some(link) = route.link {
        request = request.attribute(libc::RTA_OIF, &link.to_ne_bytes());
    }
    match route.via {
        Some(via) => request.attribute(libc::RTA_GATEWAY, &octets(via)),
        None => request,
    }
}

fn parse(body: &[u8]) -> Option<Route> {
    let (length, table, protocol) = (*body.get(1)?, *body.get(4)?, *body.get(5)?);
    if length == 0 || table != libc::RT_TABLE_MAIN {
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
    Some(Route { to: Prefix::around(to?, length), via, link, protocol })
}
