//! Keeps the kernel's routes to the Services' addresses over the bridge: those of [`super::ranges`], and no others of ours.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use super::super::netlink::route::{self, Route};
use super::super::netlink::{Socket, address, link};
use super::super::prefix::Prefix;
use super::ranges::ranges;
use crate::sys::gather::Gather;

/// Owner of these routes (`rtm_protocol`): not a known number of another program (iproute2, etc/iproute2/rt_protocols).
const PROTOCOL: u8 = 115;

/// Reconciles the routes for these addresses (no addresses: no route); returns whether there is one now.
///
/// # Errors
/// The kernel refuses.
pub fn keep(socket: &mut Socket, bridge: &str, ips: impl Iterator<Item = IpAddr>) -> io::Result<bool> {
    // Pods may be connected by others.
    let Some(bridge) = link::by_name(socket, bridge)? else { return Ok(false) };
    let ours = |to: Prefix| Route { to, via: None, link: Some(bridge.index), protocol: PROTOCOL };
    let (there, others): (Vec<_>, Vec<_>) =
        route::list(socket)?.into_iter().partition(|route| *route == ours(route.to));
    let whole = |ip: IpAddr| Prefix::around(ip, 128);
    let mut taken: Vec<Prefix> = others.iter().map(|route| route.to).collect();
    taken.extend(address::list(socket)?.iter().map(|own| whole(own.address)));
    let wanted = ranges(ips, &taken);
    let there: BTreeSet<Prefix> = there.into_iter().map(|route| route.to).into_set();
    for range in there.difference(&wanted) {
        route::delete(socket, &ours(*range))?;
    }
    for range in wanted.difference(&there) {
        route::replace(socket, &ours(*range))?;
    }
    Ok(!wanted.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::namespaces::tests::isolate;

    fn ip(args: &str) -> String {
        let output = std::process::Command::new("ip").args(args.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn routes() -> Vec<String> {
        let all = ip("route show proto 115") + &ip("-6 route show proto 115");
        all.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn routes_follow_the_services_and_leave_others_alone() {
        if !isolate() {
            return;
        }
        let mut socket = Socket::open().unwrap();
        let mut keep = |ips: &[&str]| keep(&mut socket, "b0", ips.iter().map(|ip| ip.parse().unwrap())).unwrap();
        assert!(!keep(&["10.96.0.1"]), "there is no bridge");
        ip("link add b0 type bridge");
        ip("addr add 10.85.0.1/24 dev b0");
        ip("link set b0 up");
        ip("link add lan type bridge");
        ip("addr add 10.98.0.7/24 dev lan");
        ip("link set lan up");
        ip("route add 10.85.7.0/24 via 10.98.0.1");
        let others = ip("route show");
        assert!(keep(&["10.96.0.1", "fd00::1"]));
        assert_eq!(routes(), ["10.96.0.0/24", "fd00::/112"]);
        assert!(keep(&["10.96.0.1", "10.96.3.1"]));
        assert_eq!(routes(), ["10.96.0.0/22"]);
        // Over the neighbours' network and the pods' none leads.
        assert!(keep(&["10.96.0.1", "10.98.0.9", "10.99.0.1", "10.85.0.9", "10.85.7.1"]));
        assert_eq!(routes(), ["10.96.0.0/24", "10.99.0.0/24"]);
        assert!(!keep(&[]));
        assert_eq!(ip("route show"), others);
    }
}
