//! The addresses of the node that serve node ports: `--nodeport-addresses` of kube-proxy (K8s
//! pkg/proxy/util/nodeport_addresses.go). Pure.

use std::net::IpAddr;

use super::super::prefix::Prefix;
use crate::sys::sort::sort_by_key;

/// Stands for the addresses by which others know the node.
pub const PRIMARY: &str = "primary";

/// Ranges of each family; `None` for all but loopback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodePorts {
    v4: Option<Vec<Prefix>>,
    v6: Option<Vec<Prefix>>,
}

impl NodePorts {
    /// Parses the configuration, on a node with these addresses. A family without an entry uses all addresses, as with
    /// kube-proxy.
    ///
    /// # Errors
    /// The first malformed entry.
    pub fn read(entries: &[String], node: &[IpAddr]) -> Result<Self, String> {
        let single =
            |v6: bool| node.iter().filter(|ip| ip.is_ipv6() == v6).map(|ip| Prefix::around(*ip, 128)).collect();
        if entries.iter().any(|entry| entry == PRIMARY) {
            return match entries.len() {
                1 => Ok(Self { v4: Some(single(false)), v6: Some(single(true)) }),
                _ => Err(format!("'{PRIMARY}' must be the only entry")),
            };
        }
        let all = entries.iter().map(|entry| entry.parse::<Prefix>()).collect::<Result<Vec<_>, _>>()?;
        let of = |v6: bool| {
            let ranges = outermost(all.iter().copied().filter(|range| range.is_ipv6() == v6));
            (!ranges.is_empty()).then_some(ranges)
        };
        Ok(Self { v4: of(false), v6: of(true) })
    }

    /// Ranges of one family; `None` means all.
    pub fn of(&self, v6: bool) -> Option<&[Prefix]> {
        if v6 { self.v6.as_deref() } else { self.v4.as_deref() }
    }
}

/// Without those that are within others: older `nft` takes no set in which ranges overlap.
pub fn outermost(ranges: impl Iterator<Item = Prefix>) -> Vec<Prefix> {
    let mut all: Vec<Prefix> = ranges.collect();
    sort_by_key(&mut all, |range| (range.length(), *range));
    let mut kept: Vec<Prefix> = Vec::new();
    for range in all {
        if !kept.iter().any(|other| other.overlaps(range)) {
            kept.push(range);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_all_or_those_of_ranges_or_the_nodes_own() {
        let node = ["192.0.2.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let read = |entries: &[&str]| {
            let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
            let ports = NodePorts::read(&entries, &node)?;
            let text = |v6| ports.of(v6).map(|all| all.iter().map(Prefix::to_string).collect::<Vec<_>>().join(" "));
            Ok::<_, String>((text(false), text(true)))
        };
        assert_eq!(read(&[]).unwrap(), (None, None));
        assert_eq!(read(&["primary"]).unwrap(), (Some("192.0.2.1/32".into()), Some("fd00::1/128".into())));
        let several = read(&["192.168.1.0/24", "10.0.0.0/8", "10.1.0.0/16"]).unwrap();
        assert_eq!(several, (Some("10.0.0.0/8 192.168.1.0/24".into()), None));
        assert!(read(&["primary", "10.0.0.0/8"]).is_err() && read(&["10.0.0.1"]).is_err());
        let alone = NodePorts::read(&["primary".into()], &[]).unwrap();
        assert_eq!(alone.of(false), Some(&[][..]), "a node without an address serves none");
    }
}
