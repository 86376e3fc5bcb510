//! Which address a pod gets. Pure: the leases live in the store, the kernel is told elsewhere.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use super::NetError;

/// The pod subnet of one node, `10.88.0.0/24`. The first host address is the bridge's (the pods' gateway).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    network: u32,
    prefix: u8,
}

impl Subnet {
    /// The largest (`/29`) leaves addresses for five pods.
    const PREFIXES: std::ops::RangeInclusive<u8> = 8..=29;

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network)
    }

    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network | !self.mask())
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask() == self.network
    }

    /// Addresses a pod may hold: neither network, gateway nor broadcast.
    fn is_assignable(self, address: Ipv4Addr) -> bool {
        self.contains(address) && address != self.network() && address != self.gateway() && address != self.broadcast()
    }

    fn mask(self) -> u32 {
        u32::MAX << (32 - u32::from(self.prefix))
    }
}

impl FromStr for Subnet {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let bad = |reason| NetError::Subnet { text: text.to_string(), reason };
        let (address, prefix) = text.split_once('/').ok_or(bad("not ADDRESS/PREFIX"))?;
        let address: Ipv4Addr = address.parse().map_err(|_| bad("not an IPv4 address"))?;
        let prefix: u8 = prefix.parse().map_err(|_| bad("the prefix is no number"))?;
        if !Self::PREFIXES.contains(&prefix) {
            return Err(bad("the prefix must be 8 to 29"));
        }
        let subnet = Self { network: u32::from(address) & (u32::MAX << (32 - u32::from(prefix))), prefix };
        if subnet.network != u32::from(address) {
            return Err(bad("host bits are set"));
        }
        Ok(subnet)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network(), self.prefix)
    }
}

/// The next free address behind `last` (the most recently handed out), else the lowest free one; `None` when full.
///
/// Walking forward keeps an address unused for as long as possible after its pod went, so that neighbours' ARP
/// caches and connection tracking entries of the old pod do not meet the new one.
pub fn allocate(subnet: Subnet, taken: &BTreeSet<Ipv4Addr>, last: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
    let free = |address: &Ipv4Addr| subnet.is_assignable(*address) && !taken.contains(address);
    let first = u32::from(subnet.gateway()) + 1;
    let end = u32::from(subnet.broadcast());
    let after = last.filter(|last| subnet.contains(*last)).map_or(first, |last| u32::from(last).saturating_add(1));
    (after..end).chain(first..after.min(end)).map(Ipv4Addr::from).find(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn subnet_names_its_addresses() {
        let net = subnet("10.88.4.0/22");
        assert_eq!(net.gateway(), ip("10.88.4.1"));
        assert_eq!(net.broadcast(), ip("10.88.7.255"));
        assert!(net.contains(ip("10.88.6.9")) && !net.contains(ip("10.88.8.0")));
        assert_eq!(net.to_string(), "10.88.4.0/22");
    }

    #[test]
    fn bad_subnets_are_refused_with_a_reason() {
        for text in ["10.0.0.0", "10.0.0/24", "10.0.0.1/24", "10.0.0.0/7", "10.0.0.0/30", "10.0.0.0/x"] {
            assert!(text.parse::<Subnet>().is_err(), "{text}");
        }
    }

    #[test]
    fn first_address_follows_the_gateway() {
        assert_eq!(allocate(subnet("10.1.2.0/24"), &BTreeSet::new(), None), Some(ip("10.1.2.2")));
    }

    #[test]
    fn a_freed_address_is_not_reused_at_once() {
        let taken = BTreeSet::from([ip("10.1.2.3")]);
        assert_eq!(allocate(subnet("10.1.2.0/24"), &taken, Some(ip("10.1.2.3"))), Some(ip("10.1.2.4")));
    }

    #[test]
    fn the_walk_wraps_and_skips_what_is_taken() {
        let taken = BTreeSet::from([ip("10.1.2.2")]);
        assert_eq!(allocate(subnet("10.1.2.0/24"), &taken, Some(ip("10.1.2.254"))), Some(ip("10.1.2.3")));
    }

    #[test]
    fn every_address_is_given_once_and_then_none() {
        let net = subnet("10.1.2.0/28");
        let mut taken = BTreeSet::new();
        let mut last = Some(ip("10.1.2.9"));
        for _ in 0..13 {
            last = allocate(net, &taken, last);
            assert!(taken.insert(last.unwrap()));
        }
        assert_eq!(allocate(net, &taken, last), None);
        assert!(!taken.contains(&net.gateway()) && !taken.contains(&net.broadcast()));
    }

    #[test]
    fn a_last_address_of_another_subnet_is_ignored() {
        assert_eq!(allocate(subnet("10.1.2.0/24"), &BTreeSet::new(), Some(ip("10.9.9.9"))), Some(ip("10.1.2.2")));
    }
}
