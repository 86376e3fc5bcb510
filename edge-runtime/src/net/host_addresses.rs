//! The addresses by which others reach this machine.

use std::net::IpAddr;

use super::netlink::{Socket, address};

/// The addresses other nodes see, at most one of each family, IPv4 first: the source address of the default route, else
/// the first global one. Sends no packet. Empty without a network. A link-local address does not count, as for a
/// kubelet (`IsGlobalUnicast`): a board has one before a router has announced the network, and other nodes cannot reach
/// it.
pub fn internal_ips() -> Vec<IpAddr> {
    let Ok(mut socket) = Socket::open() else { return Vec::new() };
    let mut all = address::list(&mut socket).unwrap_or_default();
    all.retain(|one| one.global && is_reachable(&one.address));
    // The kernel answers from its tables which source it would use.
    let mut routed = |far| address::route_towards(&mut socket, far).ok()??.source.filter(is_reachable);
    let found: Vec<IpAddr> = address::FAR.into_iter().filter_map(&mut routed).collect();
    if !found.is_empty() {
        return found;
    }
    let first = |v4: bool| all.iter().map(|one| one.address).find(|ip| ip.is_ipv4() == v4);
    [first(true), first(false)].into_iter().flatten().collect()
}

fn is_reachable(ip: &IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !link_local && !ip.is_loopback() && !ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_addresses_are_reachable_from_other_hosts() {
        assert!(internal_ips().iter().all(is_reachable));
        for (ip, reachable) in [
            ("192.168.1.7", true),
            ("127.0.0.1", false),
            ("169.254.3.4", false),
            ("0.0.0.0", false),
            ("fe80::5054:ff:fe12:3456", false),
            ("fec0::5054:ff:fe12:3456", true),
            ("fd00::1", true),
            ("::1", false),
            ("::", false),
        ] {
            assert_eq!(is_reachable(&ip.parse().unwrap()), reachable, "{ip}");
        }
    }
}
