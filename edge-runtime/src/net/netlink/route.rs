//! Routes of the main table (`rtmsg` of rtnetlink(7)).

use std::io;
use std::net::IpAddr;

use nix::libc;

use super::super::prefix::Prefix;
use super::Socket;
use super::message::{Request, attributes, u32_at};

/// Bytes of `struct rtmsg`.
const RTMSG: usize = 12;
/// Whose a route is (`rtm_protocol`): none that others are known to use (iproute2, etc/iproute2/rt_protocols).
const OURS: u8 = 115;

/// A route that leads somewhere in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub to: Prefix,
    /// Index of its link; none if it has several.
    pub link: Option<u32>,
    /// Made by [`add`].
    pub ours: bool,
}

/// All routes but default routes, of both families.
///
/// # Errors
/// The kernel refuses.
pub fn list(socket: &mut Socket) -> io::Result<Vec<Route>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut fixed = [0; RTMSG];
        fixed[0] = u8::try_from(family).unwrap_or_default();
        let request = Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &fixed);
        socket.query(request, |body| all.extend(parse(body)))?;
    }
    Ok(all)
}

/// A route of ours over a link, to addresses that nobody on it has.
///
/// # Errors
/// The kernel refuses.
pub fn add(socket: &mut Socket, link: u32, to: Prefix) -> io::Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    socket.request(vec![request(libc::RTM_NEWROUTE, flags, link, to)])
}

/// Takes a route of ours away; fine if it has gone already.
///
/// # Errors
/// The kernel refuses.
pub fn delete(socket: &mut Socket, link: u32, to: Prefix) -> io::Result<()> {
    match socket.request(vec![request(libc::RTM_DELROUTE, 0, link, to)]) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

fn request(kind: u16, flags: i32, link: u32, to: Prefix) -> Request {
    let mut fixed = [0; RTMSG];
    fixed[0] = u8::try_from(if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET }).unwrap_or_default();
    fixed[1] = to.length();
    fixed[4] = libc::RT_TABLE_MAIN;
    fixed[5] = OURS;
    fixed[6] = libc::RT_SCOPE_LINK;
    fixed[7] = libc::RTN_UNICAST;
    let request = Request::new(kind, flags, &fixed);
    let request = match to.ip() {
        IpAddr::V4(ip) => request.attribute(libc::RTA_DST, &ip.octets()),
        IpAddr::V6(ip) => request.attribute(libc::RTA_DST, &ip.octets()),
    };
    request.attribute(libc::RTA_OIF, &link.to_ne_bytes())
}

fn parse(body: &[u8]) -> Option<Route> {
    let (length, table, protocol) = (*body.get(1)?, *body.get(4)?, *body.get(5)?);
    if length == 0 || table != libc::RT_TABLE_MAIN {
        return None;
    }
    let (mut to, mut link) = (None, None);
    for (kind, payload) in attributes(body.get(RTMSG..)?) {
        match kind {
            libc::RTA_DST => {
                let v4 = || Some(IpAddr::from(<[u8; 4]>::try_from(payload).ok()?));
                let v6 = || Some(IpAddr::from(<[u8; 16]>::try_from(payload).ok()?));
                to = v4().or_else(v6);
            }
            libc::RTA_OIF => link = u32_at(payload, 0),
            _ => {}
        }
    }
    Some(Route { to: Prefix::around(to?, length), link, ours: protocol == OURS })
}
