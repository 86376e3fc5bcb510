//! The subnets of a range, each for one node (K8s pkg/controller/nodeipam/ipam/cidrset/cidr_set.go). Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cidr {
    /// Its first address; of IPv4 in the lowest 32 bits.
    base: u128,
    prefix: u32,
    bits: u32,
}

impl Cidr {
    /// Reads `10.0.0.0/16`; bits beyond the prefix are dropped, as Kubernetes does.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (base, bits) = match address.parse().ok()? {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= bits)?;
        let host = Self::size(bits - prefix).map_or(u128::MAX, |size| size - 1);
        Some(Self { base: base & !host, prefix, bits })
    }

    pub(super) fn is_ipv4(self) -> bool {
        self.bits == 32
    }

    fn size(bits: u32) -> Option<u128> {
        1_u128.checked_shl(bits)
    }

    /// Its first and its last address.
    fn ends(self) -> (u128, u128) {
        let host = Self::size(self.bits - self.prefix).map_or(u128::MAX, |size| size - 1);
        (self.base, self.base | host)
    }

    fn overlaps(self, other: Self) -> bool {
        let ((first, last), (other_first, other_last)) = (self.ends(), other.ends());
        self.bits == other.bits && first <= other_last && other_first <= last
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::try_from(self.base).ok().filter(|_| self.is_ipv4()) {
            Some(base) => write!(f, "{}/{}", Ipv4Addr::from(base), self.prefix),
            None => write!(f, "{}/{}", Ipv6Addr::from(self.base), self.prefix),
        }
    }
}

/// The largest difference of the prefixes of a range and of a node's part of it, as Kubernetes has it for IPv6.
const DIFFERENCE_MAX: u32 = 16;

/// A range, and the parts of it that nodes have.
#[derive(Debug, Clone)]
pub(super) struct CidrSet {
    range: Cidr,
    mask: u32,
    /// Parts that no node gets.
    reserved: Option<(u64, u64)>,
    /// Number of nodes that have each part: two may claim the same one.
    used: BTreeMap<u64, usize>,
    next: u64,
}

impl CidrSet {
    /// # Errors
    /// Why nodes cannot get such parts of the range.
    pub(super) fn new(range: Cidr, mask: u32) -> Result<Self, String> {
        if mask < range.prefix || mask > range.bits {
            return Err(format!("the node CIDR mask size {mask} is not within {range}"));
        }
        if mask - range.prefix > DIFFERENCE_MAX {
            let most = range.prefix + DIFFERENCE_MAX;
            return Err(format!("{range}: the node CIDR mask size {mask} is too big: at most {most}"));
        }
        Ok(Self { range, mask, reserved: None, used: BTreeMap::new(), next: 0 })
    }

    /// Reserves the parts that contain these addresses: no node gets them.
    pub(super) fn reserve(&mut self, other: Cidr) {
        self.reserved = self.parts(other);
    }

    fn count(&self) -> u64 {
        1 << (self.mask - self.range.prefix)
    }

    fn part(&self, index: u64) -> Cidr {
        let step = self.range.bits - self.mask;
        // Only a range of all addresses has a part that is as large.
        let offset = u128::from(index).checked_shl(step).unwrap_or_default();
        Cidr { base: self.range.base | offset, prefix: self.mask, bits: self.range.bits }
    }

    /// The parts that overlap with these addresses: the first and the last of them.
    fn parts(&self, other: Cidr) -> Option<(u64, u64)> {
        if !self.range.overlaps(other) {
            return None;
        }
        let ((first, last), (other_first, other_last)) = (self.range.ends(), other.ends());
        let step = self.range.bits - self.mask;
        let index = |address: u128| u64::try_from((address - first).checked_shr(step).unwrap_or_default()).ok();
        Some((index(other_first.max(first))?, index(other_last.min(last))?))
    }

    /// Records that a node has these addresses; ignores addresses outside this range.
    pub(super) fn occupy(&mut self, cidr: Cidr) {
        self.change(cidr, true);
    }

    /// Releases the range of a node.
    pub(super) fn release(&mut self, cidr: Cidr) {
        self.change(cidr, false);
    }

    fn change(&mut self, cidr: Cidr, occupied: bool) {
        let Some((first, last)) = self.parts(cidr) else { return };
        for index in first..=last {
            let users = self.used.remove(&index).unwrap_or_default();
            let users = if occupied { users.saturating_add(1) } else { users.saturating_sub(1) };
            if users > 0 {
                self.used.insert(index, users);
            }
        }
    }

    /// The next free part; this does not occupy it.
    pub(super) fn next(&mut self) -> Option<Cidr> {
        let mut candidate = self.next;
        let mut looked_at = 0;
        while looked_at < self.count() {
            let jump = match self.reserved {
                Some((first, last)) if (first..=last).contains(&candidate) => last - candidate + 1,
                _ if self.used.contains_key(&candidate) => 1,
                _ => {
                    self.next = (candidate + 1) % self.count();
                    return Some(self.part(candidate));
                }
            };
            looked_at += jump;
            candidate = (candidate + jump) % self.count();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).unwrap()
    }

    fn set(range: &str, mask: u32) -> CidrSet {
        CidrSet::new(cidr(range), mask).unwrap()
    }

    fn next(set: &mut CidrSet) -> Option<String> {
        let next = set.next()?;
        set.occupy(next);
        Some(next.to_string())
    }

    #[test]
    fn ranges_are_read_and_written() {
        for (text, read) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.1.2.3/16", Some("10.1.0.0/16")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("::/0", Some("::/0")),
            ("fd00:1::7/64", Some("fd00:1::/64")),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
            ("x/8", None),
            ("fd00::/129", None),
        ] {
            assert_eq!(Cidr::parse(text).map(|cidr| cidr.to_string()).as_deref(), read, "{text}");
        }
    }

    #[test]
    fn each_node_gets_the_next_part_until_none_is_left() {
        for (range, mask, parts) in [
            ("10.0.0.0/22", 24, vec!["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"]),
            ("10.0.0.0/24", 24, vec!["10.0.0.0/24"]),
            ("fd00:1::/62", 64, vec!["fd00:1::/64", "fd00:1:0:1::/64", "fd00:1:0:2::/64", "fd00:1:0:3::/64"]),
            ("fd00::/126", 127, vec!["fd00::/127", "fd00::2/127"]),
        ] {
            let mut set = set(range, mask);
            let given: Vec<String> = std::iter::from_fn(|| next(&mut set)).collect();
            assert_eq!(given, parts, "{range}");
            assert_eq!(next(&mut set), None);
            set.release(cidr(parts[0]));
            assert_eq!(next(&mut set).as_deref(), Some(parts[0]));
        }
    }

    #[test]
    fn what_nodes_have_and_what_services_have_is_not_given() {
        let mut set = set("10.0.0.0/16", 24);
        set.reserve(cidr("10.0.0.0/18"));
        set.occupy(cidr("10.0.64.0/24"));
        set.occupy(cidr("10.0.64.0/24"));
        set.occupy(cidr("10.0.65.128/25"));
        set.occupy(cidr("192.168.0.0/24"));
        set.occupy(cidr("fd00::/64"));
        assert_eq!(next(&mut set).as_deref(), Some("10.0.66.0/24"));
        set.release(cidr("10.0.64.0/24"));
        set.next = 0;
        assert_eq!(next(&mut set).as_deref(), Some("10.0.67.0/24"), "another node says that it has it, too");
        set.release(cidr("10.0.64.0/24"));
        set.next = 0;
        assert_eq!(next(&mut set).as_deref(), Some("10.0.64.0/24"));
        // A range of the services that is the larger one leaves nothing.
        set.reserve(cidr("10.0.0.0/8"));
        assert_eq!(next(&mut set), None);
    }

    #[test]
    fn ranges_of_any_size_end() {
        let mut all = set("0.0.0.0/0", 16);
        all.reserve(cidr("0.0.0.0/1"));
        assert_eq!(next(&mut all).as_deref(), Some("128.0.0.0/16"));
        all.occupy(cidr("0.0.0.0/0"));
        assert_eq!(next(&mut all), None);
        assert_eq!(next(&mut set("::/0", 16)).as_deref(), Some("::/16"));
        assert!(CidrSet::new(cidr("10.0.0.0/16"), 8).is_err());
        assert!(CidrSet::new(cidr("10.0.0.0/16"), 33).is_err());
        assert!(CidrSet::new(cidr("0.0.0.0/0"), 17).is_err());
        assert!(CidrSet::new(cidr("fd00::/32"), 64).is_err());
    }
}
