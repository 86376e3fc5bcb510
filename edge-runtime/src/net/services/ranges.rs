//! Which ranges of addresses the Services of a node are in: a process on the node's own network needs a route there, or the
//! kernel refuses its connection before any rule is asked (without a default route: K8s issue 123120). Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::super::prefix::Prefix;

/// Smallest and largest routed ranges of IPv4 and IPv6, as prefix lengths. Routes of smaller ranges would come and go
/// with Services; a ServiceCIDR has 20 bits at most (K8s pkg/apis/networking/validation, `ValidateServiceCIDR`).
const SMALLEST: [u8; 2] = [24, 112];
const LARGEST: [u8; 2] = [12, 108];
/// Where addresses are far from each other.
const MOST: usize = 64;

/// Returns ranges that contain these addresses but nothing of `taken`: addresses of the node, and targets of other
/// routes.
pub fn ranges(ips: impl Iterator<Item = IpAddr>, taken: &[Prefix]) -> BTreeSet<Prefix> {
    let mut found: [BTreeSet<Prefix>; 2] = Default::default();
    for ip in ips {
        let [v4, v6] = &mut found;
        let (of_family, smallest) = if ip.is_ipv6() { (v6, SMALLEST[1]) } else { (v4, SMALLEST[0]) };
        of_family.insert(Prefix::around(ip, smallest));
    }
    let free = |range: &Prefix| !taken.iter().any(|other| other.overlaps(*range));
    let mut all = BTreeSet::new();
    for (small, largest) in found.into_iter().zip(LARGEST) {
        let Some(whole) = small.iter().copied().reduce(Prefix::common) else { continue };
        if whole.length() >= largest && free(&whole) {
            all.insert(whole);
        } else {
            all.extend(small.into_iter().filter(free).take(MOST));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ips: &[&str], taken: &[&str]) -> Vec<String> {
        let taken: Vec<Prefix> = taken.iter().map(|one| one.parse().unwrap()).collect();
        ranges(ips.iter().map(|ip| ip.parse().unwrap()), &taken).iter().map(Prefix::to_string).collect()
    }

    #[test]
    fn ranges_hold_all_services_and_nothing_of_others() {
        assert_eq!(of(&[], &[]), [""; 0]);
        assert_eq!(of(&["10.96.0.1"], &[]), ["10.96.0.0/24"]);
        assert_eq!(of(&["10.96.0.1", "10.96.0.9"], &[]), ["10.96.0.0/24"]);
        assert_eq!(of(&["10.96.0.1", "10.96.200.9", "fd00::1"], &[]), ["10.96.0.0/16", "fd00::/112"]);
        // Two clusters' worth of addresses, or a lie: no range that has half of the world.
        assert_eq!(of(&["10.96.0.1", "192.168.7.9"], &[]), ["10.96.0.0/24", "192.168.7.0/24"]);
        // The node's own address, or a neighbour's network.
        assert_eq!(of(&["10.96.0.1", "10.96.200.9"], &["10.96.100.7/32"]), ["10.96.0.0/24", "10.96.200.0/24"]);
        assert_eq!(of(&["10.96.0.1", "10.96.200.9"], &["10.96.200.0/22"]), ["10.96.0.0/24"]);
        assert_eq!(of(&["10.96.0.1"], &["10.0.0.0/8"]), [""; 0]);
        assert_eq!(of(&["10.96.0.1"], &["fd00::/8", "192.168.0.0/16"]), ["10.96.0.0/24"]);
        let many: Vec<String> = (0..200).map(|index| format!("{}.1.1.1", index + 1)).collect();
        assert_eq!(of(&many.iter().map(String::as_str).collect::<Vec<_>>(), &[]).len(), MOST);
    }
}
