//! Has the kernel hold the routes of a plan, and none that an earlier plan has left.

use std::io;

use super::plan::Plan;
use crate::net::netlink::address::{self, LinkAddress};
use crate::net::netlink::route::{self, Route};
use crate::net::netlink::{Socket, link};
use crate::net::prefix::Prefix;

/// Owner of these routes (`rtm_protocol`): not a known number of another program (iproute2, etc/iproute2/rt_protocols).
const PROTOCOL: u8 = 83;

/// Addresses of this node's links, the pods' bridge left out.
///
/// # Errors
/// The kernel does not tell.
pub fn links(bridge: &str) -> io::Result<Vec<LinkAddress>> {
    let mut socket = Socket::open()?;
    let bridge = link::by_name(&mut socket, bridge)?.map(|link| link.index);
    let mut all = address::list(&mut socket)?;
    all.retain(|one| one.global && Some(one.index) != bridge && !one.address.is_loopback());
    Ok(all)
}

/// Adds missing routes, whatever removed them (the kernel does when a link goes down), and deletes unwanted ones.
/// Continues after a refusal and returns the first.
///
/// # Errors
/// The kernel refuses.
pub fn hold(plan: &Plan) -> io::Result<()> {
    let mut socket = Socket::open()?;
    let route = |one: &super::plan::Route| Route {
        to: Prefix::around(one.to.network(), one.to.prefix()),
        via: Some(one.via),
        link: Some(one.link),
        protocol: PROTOCOL,
    };
    let wanted: Vec<Route> = plan.routes.iter().map(route).collect();
    let mut there = route::list(&mut socket)?;
    there.retain(|one| one.protocol == PROTOCOL);
    let mut result = Ok(());
    for old in there.iter().filter(|old| !wanted.contains(old)) {
        result = result.and(route::delete(&mut socket, old));
    }
    for new in wanted.iter().filter(|new| !there.contains(new)) {
        result = result.and(route::replace(&mut socket, new));
    }
    result
}
