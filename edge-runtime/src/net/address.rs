//! Chooses addresses of pods. Pure: the store has the leases, and other modules configure the kernel.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::NetError;

/// The pod subnet of one node, `10.88.0.0/24` or `fd00:88::/64`. The first host address is the bridge's (the pods'
/// gateway).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    v4: bool,
    /// An IPv4 network in its low 32 bits.
    network: u128,
    prefix: u8,
}

impl Subnet {
    /// The smallest subnets leave addresses for five pods.
    const V4_PREFIXES: RangeInclusive<u8> = 8..=29;
    const V6_PREFIXES: RangeInclusive<u8> = 32..=125;

    pub fn is_ipv4(self) -> bool {
        self.v4
    }

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    pub fn network(self) -> IpAddr {
        self.address(self.network)
    }

    pub fn gateway(self) -> IpAddr {
        self.address(self.network + 1)
    }

    /// The last address: the broadcast address of IPv4, and given to no pod of IPv6 either.
    pub fn last(self) -> IpAddr {
        let all = if self.v4 { u128::from(u32::MAX) } else { u128::MAX };
        self.address(self.network | (all & !self.mask()))
    }

    pub fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.v4 && number(address) & self.mask() == self.network
    }

    /// Whether some address is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.network()) || other.contains(self.network())
    }

    /// Addresses that a pod may get: not the first, the gateway or the last.
    fn is_assignable(self, address: IpAddr) -> bool {
        self.contains(address) && address != self.network() && address != self.gateway() && address != self.last()
    }

    fn mask(self) -> u128 {
        mask(self.v4, self.prefix)
    }

    fn address(self, number: u128) -> IpAddr {
        match u32::try_from(number) {
            Ok(number) if self.v4 => IpAddr::V4(Ipv4Addr::from(number)),
            _ => IpAddr::V6(Ipv6Addr::from(number)),
        }
    }
}

/// The bits of the network; those above an IPv4 address are zero.
fn mask(v4: bool, prefix: u8) -> u128 {
    let (bits, all) = if v4 { (32, u128::from(u32::MAX)) } else { (128, u128::MAX) };
    all & all.checked_shl(bits - u32::from(prefix)).unwrap_or(0)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

impl FromStr for Subnet {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let bad = |reason: String| NetError::Subnet { text: text.to_string(), reason };
        let (address, prefix) = text.split_once('/').ok_or_else(|| bad("not ADDRESS/PREFIX".into()))?;
        let address: IpAddr = address.parse().map_err(|_| bad("not an IP address".into()))?;
        let prefix: u8 = prefix.parse().map_err(|_| bad("the prefix is no number".into()))?;
        let v4 = address.is_ipv4();
        let allowed = if v4 { Self::V4_PREFIXES } else { Self::V6_PREFIXES };
        if !allowed.contains(&prefix) {
            return Err(bad(format!("the prefix must be {} to {}", allowed.start(), allowed.end())));
        }
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            return Err(bad("pods cannot have such addresses".into()));
        }
        let subnet = Self { v4, network: number(address) & mask(v4, prefix), prefix };
        if subnet.network != number(address) {
            return Err(bad(format!("host bits are set; the subnet is {subnet}")));
        }
        Ok(subnet)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network(), self.prefix)
    }
}

/// An address of each subnet for one pod, in the subnets' order: those it had before (`keep`) while they are valid
/// and free, else the next free ones behind `last`.
///
/// # Errors
/// The subnet that has no free address.
pub fn assign(
    subnets: &[Subnet],
    taken: &BTreeSet<IpAddr>,
    keep: &[IpAddr],
    last: &[IpAddr],
) -> Result<Vec<IpAddr>, Subnet> {
    let of = |subnet: &Subnet| {
        let kept = keep.iter().copied().find(|ip| subnet.is_assignable(*ip) && !taken.contains(ip));
        let last = last.iter().copied().find(|ip| subnet.contains(*ip));
        kept.or_else(|| allocate(*subnet, taken, last)).ok_or(*subnet)
    };
    subnets.iter().map(of).collect()
}

/// The next free address behind `last` (the most recently handed out), else the lowest free one; `None` when full.
///
/// Walking forward keeps an address unused for as long as possible after its pod went, so that neighbours' ARP
/// caches and connection tracking entries of the old pod do not meet the new one.
pub fn allocate(subnet: Subnet, taken: &BTreeSet<IpAddr>, last: Option<IpAddr>) -> Option<IpAddr> {
    let free = |address: &IpAddr| subnet.is_assignable(*address) && !taken.contains(address);
    let (first, end) = (number(subnet.gateway()) + 1, number(subnet.last()));
    let after = last.filter(|last| subnet.contains(*last)).map_or(first, |last| number(last).saturating_add(1));
    (after..end).chain(first..after.min(end)).map(|number| subnet.address(number)).find(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn subnet_names_its_addresses() {
        let net = subnet("10.88.4.0/22");
        assert_eq!(net.gateway(), ip("10.88.4.1"));
        assert_eq!(net.last(), ip("10.88.7.255"));
        assert!(net.contains(ip("10.88.6.9")) && !net.contains(ip("10.88.8.0")));
        assert_eq!(net.to_string(), "10.88.4.0/22");
        let net = subnet("fd00:88::/64");
        assert_eq!(net.gateway(), ip("fd00:88::1"));
        assert!(net.contains(ip("fd00:88::ffff:0:1")) && !net.contains(ip("fd00:89::1")));
        assert_eq!(net.to_string(), "fd00:88::/64");
        // The same number in the other family is a different address.
        assert!(!subnet("10.88.4.0/22").contains(ip("::10.88.4.1")));
    }

    #[test]
    fn bad_subnets_are_refused_with_a_reason() {
        for text in [
            "10.0.0.0",
            "10.0.0/24",
            "10.0.0.1/24",
            "10.0.0.0/7",
            "10.0.0.0/30",
            "10.0.0.0/x",
            "fd00::/126",
            "fd00::1/64",
            "::/64",
            "ff02::/64",
        ] {
            assert!(text.parse::<Subnet>().is_err(), "{text}");
        }
    }

    #[test]
    fn first_address_follows_the_gateway() {
        assert_eq!(allocate(subnet("10.1.2.0/24"), &BTreeSet::new(), None), Some(ip("10.1.2.2")));
        assert_eq!(allocate(subnet("fd00::/64"), &BTreeSet::new(), None), Some(ip("fd00::2")));
    }

    #[test]
    fn a_freed_address_is_not_reused_at_once() {
        let taken = BTreeSet::from([ip("10.1.2.3")]);
        assert_eq!(allocate(subnet("10.1.2.0/24"), &taken, Some(ip("10.1.2.3"))), Some(ip("10.1.2.4")));
    }

    #[test]
    fn search_wraps_and_skips_used_addresses() {
        let taken = BTreeSet::from([ip("10.1.2.2")]);
        assert_eq!(allocate(subnet("10.1.2.0/24"), &taken, Some(ip("10.1.2.254"))), Some(ip("10.1.2.3")));
    }

    #[test]
    fn every_address_is_given_once_and_then_none() {
        for (net, last) in [("10.1.2.0/28", "10.1.2.9"), ("fd00::/124", "fd00::9")] {
            let net = subnet(net);
            let mut taken = BTreeSet::new();
            let mut last = Some(ip(last));
            for _ in 0..13 {
                last = allocate(net, &taken, last);
                assert!(taken.insert(last.unwrap()));
            }
            assert_eq!(allocate(net, &taken, last), None);
            assert!(!taken.contains(&net.gateway()) && !taken.contains(&net.last()));
        }
    }

    #[test]
    fn a_last_address_of_another_subnet_is_ignored() {
        assert_eq!(allocate(subnet("10.1.2.0/24"), &BTreeSet::new(), Some(ip("10.9.9.9"))), Some(ip("10.1.2.2")));
    }

    #[test]
    fn pod_keeps_valid_addresses_and_gets_missing_ones() {
        let both = [subnet("10.1.2.0/24"), subnet("fd00::/64")];
        let taken = BTreeSet::from([ip("fd00::7")]);
        let old = [ip("10.1.2.9"), ip("fd00::7")];
        assert_eq!(assign(&both, &taken, &old, &[]).unwrap(), [ip("10.1.2.9"), ip("fd00::2")]);
        // A node that was given a second family, and one whose subnet changed.
        assert_eq!(assign(&both, &BTreeSet::new(), &old[..1], &[]).unwrap(), [ip("10.1.2.9"), ip("fd00::2")]);
        assert_eq!(assign(&both[1..], &BTreeSet::new(), &[ip("10.9.9.9")], &[ip("fd00::4")]).unwrap(), [ip("fd00::5")]);
    }
}
