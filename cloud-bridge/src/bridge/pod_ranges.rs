//! Which node's pods have an address: by `spec.podCIDRs` of the Nodes, which the cluster assigns. A node reports the
//! addresses of its pods, which Services and NetworkPolicies of all others use; so a node must not report an address
//! from the range of another.
//!
//! A node may use ranges that the cluster does not know (`network.subnet`): addresses outside all ranges are accepted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// A range: whether it is IPv6, its prefix length, and its leading bits.
type Range = (bool, u8, u128);

/// The ranges of all nodes.
#[derive(Debug, Default)]
pub(super) struct PodRanges(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    of_node: HashMap<Box<str>, Vec<Range>>,
    owners: BTreeMap<Range, BTreeSet<Box<str>>>,
    /// Prefix lengths in use, with the number of their ranges.
    lengths: BTreeMap<(bool, u8), usize>,
}

impl PodRanges {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the ranges of the node; empty for a deleted node.
    pub(super) fn set(&self, node: &str, ranges: &[String]) {
        let ranges: Vec<Range> = ranges.iter().filter_map(|text| parse(text)).collect();
        let mut known = self.known();
        if known.of_node.get(node).map(Vec::as_slice).unwrap_or_default() == ranges {
            return;
        }
        known.remove(node);
        for range in &ranges {
            known.owners.entry(*range).or_default().insert(node.into());
            *known.lengths.entry((range.0, range.1)).or_default() += 1;
        }
        if !ranges.is_empty() {
            known.of_node.insert(node.into(), ranges);
        }
    }

    /// Removes all nodes except these.
    pub(super) fn retain(&self, is: impl Fn(&str) -> bool) {
        let mut known = self.known();
        let gone: Vec<Box<str>> = known.of_node.keys().filter(|name| !is(name)).cloned().collect();
        gone.iter().for_each(|name| known.remove(name));
    }

    /// The node in whose range an address lies, if it is not in a range of this node.
    pub(super) fn of_another(&self, node: &str, address: IpAddr) -> Option<String> {
        let known = self.known();
        let (v6, bits) = bits(address);
        let mut another = None;
        for (_, length) in known.lengths.range((v6, 0)..=(v6, u8::MAX)).map(|(length, _)| *length) {
            let Some(owners) = known.owners.get(&(v6, length, bits & mask(length))) else { continue };
            if owners.contains(node) {
                return None;
            }
            another = another.or_else(|| owners.first());
        }
        another.map(ToString::to_string)
    }

    /// A pod's status without addresses of other nodes, and the removed ones in words; `None` if there were none.
    pub(super) fn without_foreign(&self, node: &str, status: &Value) -> Option<(Value, String)> {
        let wrong = |text: &str| match text.parse::<IpAddr>() {
            Ok(address) => {
                let owner = self.of_another(node, address.to_canonical())?;
                Some(format!("address {address} is from the pod range of node {owner}"))
            }
            Err(_) => Some("a pod address is none".to_owned()),
        };
        let single = status["podIP"].as_str().unwrap_or_default();
        let list = status["podIPs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |one: &Value| one["ip"].as_str().unwrap_or_default().to_owned();
        let why = (Some(single.to_owned()).filter(|ip| !ip.is_empty()).into_iter())
            .chain(list.iter().map(text))
            .find_map(|ip| wrong(&ip))?;
        let mut right = status.clone();
        let fields = right.as_object_mut()?;
        // `podIP` is the first of `podIPs`.
        fields.remove("podIP");
        fields.remove("podIPs");
        Some((right, why))
    }
}

impl Known {
    fn remove(&mut self, node: &str) {
        for range in self.of_node.remove(node).unwrap_or_default() {
            if let Some(owners) = self.owners.get_mut(&range) {
                owners.remove(node);
                if owners.is_empty() {
                    self.owners.remove(&range);
                }
            }
            if let Some(count) = self.lengths.get_mut(&(range.0, range.1)) {
                *count -= 1;
                if *count == 0 {
                    self.lengths.remove(&(range.0, range.1));
                }
            }
        }
    }
}

/// The leading bits of an address, and whether it is IPv6.
fn bits(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (false, u128::from(address.to_bits()) << 96),
        IpAddr::V6(address) => (true, address.to_bits()),
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0)
}

fn parse(text: &str) -> Option<Range> {
    let (address, length) = text.split_once('/')?;
    let (v6, bits) = bits(address.parse().ok()?);
    let length = length.parse().ok().filter(|length| *length <= if v6 { 128 } else { 32 })?;
    Some((v6, length, bits & mask(length)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ranges() -> PodRanges {
        let ranges = PodRanges::default();
        ranges.set("a", &["10.86.0.0/24".to_owned(), "fd00:86::/64".to_owned()]);
        ranges.set("b", &["10.86.1.0/24".to_owned()]);
        ranges
    }

    #[test]
    fn address_belongs_to_the_node_of_its_range() {
        let ranges = ranges();
        let of = |node: &str, ip: &str| ranges.of_another(node, ip.parse().unwrap());
        assert_eq!((of("a", "10.86.0.7"), of("a", "fd00:86::1"), of("a", "10.85.0.2")), (None, None, None));
        assert_eq!(of("a", "10.86.1.7").as_deref(), Some("b"));
        assert_eq!(of("c", "fd00:86::1").as_deref(), Some("a"));
        ranges.set("c", &["10.86.1.128/25".to_owned()]);
        assert_eq!(of("c", "10.86.1.129"), None, "it has a part of the range");
        ranges.set("b", &[]);
        assert_eq!(of("a", "10.86.1.7"), None);
        ranges.retain(|name| name == "b");
        assert_eq!(of("b", "10.86.0.7"), None);
        assert!(ranges.known().owners.is_empty() && ranges.known().lengths.is_empty());
    }

    #[test]
    fn status_loses_addresses_of_another_node() {
        let ranges = ranges();
        let status = |ip: &str| json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
        assert_eq!(ranges.without_foreign("a", &status("10.86.0.7")), None);
        assert_eq!(ranges.without_foreign("a", &json!({"phase": "Pending"})), None);
        let (right, why) = ranges.without_foreign("a", &status("10.86.1.7")).unwrap();
        assert_eq!(right, json!({"phase": "Running"}));
        assert_eq!(why, "address 10.86.1.7 is from the pod range of node b");
        let mapped = json!({"podIPs": [{"ip": "10.86.0.7"}, {"ip": "::ffff:10.86.1.7"}]});
        assert!(ranges.without_foreign("a", &mapped).is_some());
        assert!(ranges.without_foreign("a", &status("010.86.1.7")).is_some());
    }
}
