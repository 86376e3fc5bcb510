//! Which subnets nodes get of the ranges of the cluster (K8s pkg/controller/nodeipam/ipam/range_allocator.go). Pure.

use std::collections::BTreeMap;

use super::cidr_set::{Cidr, CidrSet};

/// Default sizes of a node's ranges: a /24 of IPv4 and a /64 of IPv6.
const MASK_IPV4: u32 = 24;
const MASK_IPV6: u32 = 64;

/// Size of a node's range: the flags `--node-cidr-mask-size`, `--node-cidr-mask-size-ipv4` and
/// `--node-cidr-mask-size-ipv6`.
#[derive(Debug, Clone, Copy, Default)]
pub struct MaskSizes {
    pub any: Option<u32>,
    pub ipv4: Option<u32>,
    pub ipv6: Option<u32>,
}

/// Gives nodes their subnets: one of each range.
#[derive(Debug, Clone)]
pub struct NodeIpam {
    sets: Vec<CidrSet>,
    /// Ranges in Node objects.
    nodes: BTreeMap<String, Vec<Cidr>>,
}

impl NodeIpam {
    /// `ranges` is `--cluster-cidr`: one range, or one of each family, separated by a comma. Nodes get nothing of
    /// `services`.
    ///
    /// # Errors
    /// The flags are invalid.
    pub fn new(ranges: &str, masks: MaskSizes, services: Option<&str>) -> Result<Self, String> {
        let read = |text: &str| Cidr::parse(text.trim()).ok_or_else(|| format!("invalid CIDR address: {text}"));
        let ranges: Vec<Cidr> = ranges.split(',').map(read).collect::<Result<_, _>>()?;
        match ranges.as_slice() {
            [_] => {}
            [one, other] if one.is_ipv4() != other.is_ipv4() => {}
            _ => return Err("--cluster-cidr: want one range, or one of IPv4 and one of IPv6".to_owned()),
        }
        masks.check(&ranges)?;
        let mut sets: Vec<CidrSet> =
            ranges.into_iter().map(|range| CidrSet::new(range, masks.of(range))).collect::<Result<_, _>>()?;
        if let Some(services) = services.and_then(Cidr::parse) {
            sets.iter_mut().for_each(|set| set.reserve(services));
        }
        Ok(Self { sets, nodes: BTreeMap::new() })
    }

    /// Adds or changes a node with these ranges.
    pub(super) fn node(&mut self, name: &str, cidrs: &[String]) {
        let cidrs: Vec<Cidr> = cidrs.iter().filter_map(|text| Cidr::parse(text)).collect();
        if self.nodes.get(name).is_some_and(|known| *known == cidrs) {
            return;
        }
        self.gone(name);
        for cidr in &cidrs {
            self.sets.iter_mut().for_each(|set| set.occupy(*cidr));
        }
        self.nodes.insert(name.to_owned(), cidrs);
    }

    pub(super) fn gone(&mut self, name: &str) {
        for cidr in self.nodes.remove(name).unwrap_or_default() {
            self.sets.iter_mut().for_each(|set| set.release(cidr));
        }
    }

    /// Subnets for a node without one; `None` if a range is used up. They become occupied once the Node object names
    /// them.
    pub(super) fn next(&mut self) -> Option<Vec<String>> {
        self.sets.iter_mut().map(|set| set.next().map(|cidr| cidr.to_string())).collect()
    }
}

impl MaskSizes {
    fn check(self, ranges: &[Cidr]) -> Result<(), String> {
        let families = [(self.ipv4, true, "ipv4"), (self.ipv6, false, "ipv6")];
        if self.any.is_some() {
            if ranges.len() > 1 {
                return Err("usage of --node-cidr-mask-size is not allowed with dual-stack clusters".to_owned());
            }
            if self.ipv4.or(self.ipv6).is_some() {
                let flags = "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6";
                return Err(format!("usage of {flags} is not allowed if --node-cidr-mask-size is set"));
            }
        }
        for (size, ipv4, name) in families {
            if size.is_some() && !ranges.iter().any(|range| range.is_ipv4() == ipv4) {
                return Err(format!(
                    "usage of --node-cidr-mask-size-{name} is not allowed: no such range is configured"
                ));
            }
        }
        Ok(())
    }

    fn of(self, range: Cidr) -> u32 {
        let (own, usual) = if range.is_ipv4() { (self.ipv4, MASK_IPV4) } else { (self.ipv6, MASK_IPV6) };
        self.any.or(own).unwrap_or(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(ranges: &str, any: Option<u32>, ipv4: Option<u32>, ipv6: Option<u32>) -> Result<NodeIpam, String> {
        NodeIpam::new(ranges, MaskSizes { any, ipv4, ipv6 }, Some("10.96.0.0/16"))
    }

    #[test]
    fn flags_are_taken_as_kubernetes_takes_them() {
        for (ranges, any, ipv4, ipv6, first) in [
            ("10.0.0.0/16", None, None, None, vec!["10.0.0.0/24"]),
            ("10.0.0.0/16", Some(26), None, None, vec!["10.0.0.0/26"]),
            ("10.0.0.0/16", None, Some(25), None, vec!["10.0.0.0/25"]),
            ("fd00::/56", None, None, None, vec!["fd00::/64"]),
            ("fd00::/56,10.0.0.0/16", None, Some(20), Some(60), vec!["fd00::/60", "10.0.0.0/20"]),
            // The addresses of Services go to no node.
            ("10.96.0.0/12", None, None, None, vec!["10.97.0.0/24"]),
        ] {
            let mut ipam = made(ranges, any, ipv4, ipv6).unwrap();
            assert_eq!(ipam.next().unwrap(), first, "{ranges}");
        }
        for (ranges, any, ipv4, ipv6) in [
            ("", None, None, None),
            ("10.0.0.0/16,10.1.0.0/16", None, None, None),
            ("10.0.0.0/16,fd00::/56,fd01::/56", None, None, None),
            ("10.0.0.0/16,fd00::/56", Some(24), None, None),
            ("10.0.0.0/16", Some(24), Some(24), None),
            ("10.0.0.0/16", None, None, Some(64)),
            ("fd00::/56", None, Some(24), None),
            ("10.0.0.0/25", None, None, None),
            ("fd00::/40", None, None, None),
        ] {
            assert!(made(ranges, any, ipv4, ipv6).is_err(), "{ranges}");
        }
    }

    #[test]
    fn what_a_node_has_is_nobody_elses_until_it_is_gone() {
        let mut ipam = made("10.0.0.0/23", None, None, None).unwrap();
        ipam.node("a", &["10.0.0.0/24".to_owned()]);
        ipam.node("a", &["10.0.0.0/24".to_owned()]);
        assert_eq!(ipam.next().unwrap(), ["10.0.1.0/24"]);
        ipam.node("b", &["10.0.1.0/24".to_owned(), "rubbish".to_owned()]);
        assert_eq!(ipam.next(), None);
        ipam.gone("a");
        assert_eq!(ipam.next().unwrap(), ["10.0.0.0/24"]);
    }
}
