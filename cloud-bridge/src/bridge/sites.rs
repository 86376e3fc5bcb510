//! Which nodes share a LAN, their addresses there, and the pod ranges of each. Pure: computed only from Node objects,
//! so that every bridge gets the same result. Knows no connection.
//!
//! A node's own statements are trusted only if they cannot harm other nodes: the ranges of its pods are those that the
//! cluster has assigned (`spec.podCIDRs`), never its own, and an address is used only as the gateway to these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use edge_protocol::message::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::slim::made_object;
use super::told::kinds::Kind;
use super::well_known::{LAN_ADDRESSES, PEER_ADDRESS};

/// Label of a Node, set by its administrator: nodes with the same value share a LAN.
pub(super) const SITE_LABEL: &str = "sampan.dev/site";
/// Label of a Node, set by its administrator or its own configuration.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Maximum number of nodes of a LAN that have routes, by name.
const MAX_NEIGHBOURS: usize = 512;
/// Maximum number of addresses of each family.
const MAX_ADDRESSES: usize = 2;

/// A node as its neighbours see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    site: String,
    /// Creation time of the Node: the first to claim an address keeps it.
    since: String,
    addresses: Vec<IpAddr>,
    pod_cidrs: Vec<String>,
    /// Zone, for the hints of endpoints.
    zone: Option<String>,
}

/// All nodes with routes.
#[derive(Debug, Default)]
pub(super) struct Sites {
    /// Every Node object has been read once.
    pub(super) listed: bool,
    nodes: BTreeMap<String, Neighbour>,
}

impl Neighbour {
    /// `None` for a node that asks for no routes, or does not belong to a site.
    pub(super) fn of(meta: &ObjectMeta, pod_cidrs: &[String]) -> Option<Self> {
        let annotation = |name| meta.annotations.as_ref().and_then(|all| all.get(name));
        let addresses: Vec<IpAddr> = annotation(LAN_ADDRESSES)?.split(',').filter_map(|ip| ip.parse().ok()).collect();
        let label = |name| meta.labels.as_ref().and_then(|all| all.get(name)).filter(|value| !value.is_empty());
        let peer: Option<IpAddr> = annotation(PEER_ADDRESS).and_then(|ip| ip.parse().ok());
        let site = match (label(SITE_LABEL), peer) {
            (Some(site), _) => site.clone(),
            // The node is on the bridge's own network, or on one that is routed to it: its links show its neighbours.
            (None, Some(peer)) if addresses.contains(&peer) => "direct".to_owned(),
            (None, Some(peer)) => format!("behind-{}", peer.to_string().replace(':', "-")),
            (None, None) => return None,
        };
        let since = meta.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
        let zone = label(ZONE_LABEL).cloned();
        Some(Self { site, since, addresses, pod_cidrs: pod_cidrs.to_vec(), zone })
    }
}

/// The nodes of a site.
#[derive(Default, PartialEq)]
pub(super) struct Members(BTreeSet<String>);

impl Members {
    pub(super) fn of(sites: &Sites, site: &str) -> Self {
        Self(sites.members(site).into_iter().map(str::to_owned).collect())
    }

    pub(super) fn has(&self, node: &str) -> bool {
        self.0.contains(node)
    }
}

#[cfg(test)]
impl Neighbour {
    /// A node of this site, without addresses.
    pub(super) fn at(site: &str) -> Self {
        Self { site: site.to_owned(), since: String::new(), addresses: Vec::new(), pod_cidrs: Vec::new(), zone: None }
    }
}

impl Sites {
    /// Returns whether it changed.
    pub(super) fn set(&mut self, node: &str, neighbour: Option<Neighbour>) -> bool {
        if self.nodes.get(node) == neighbour.as_ref() {
            return false;
        }
        match neighbour {
            Some(neighbour) => drop(self.nodes.insert(node.to_owned(), neighbour)),
            None => drop(self.nodes.remove(node)),
        }
        true
    }

    /// A complete list was read: removes other nodes, and returns their names.
    pub(super) fn listed(&mut self, names: impl Fn(&str) -> bool) -> Vec<String> {
        self.listed = true;
        let gone: Vec<String> = self.nodes.keys().filter(|name| !names(name)).cloned().collect();
        gone.iter().for_each(|name| drop(self.nodes.remove(name)));
        gone
    }

    /// The site of a node with routes.
    pub(super) fn of(&self, node: &str) -> Option<&str> {
        self.nodes.get(node).map(|node| &*node.site)
    }

    /// The nodes of a site.
    pub(super) fn members(&self, site: &str) -> BTreeSet<&str> {
        self.nodes.iter().filter(|(_, node)| node.site == site).take(MAX_NEIGHBOURS).map(|(name, _)| &**name).collect()
    }

    /// The view of a site, as its nodes receive it.
    pub(super) fn view(&self, site: &str) -> Object {
        let members: Vec<(&String, &Neighbour)> = self.nodes.iter().filter(|(_, node)| node.site == site).collect();
        if members.len() > MAX_NEIGHBOURS {
            log::warn!("site {site} has {} nodes: only the first {MAX_NEIGHBOURS} have routes", members.len());
        }
        let mut holders: BTreeMap<IpAddr, (&str, &str)> = BTreeMap::new();
        for (name, node) in &members {
            for address in &node.addresses {
                let holder = holders.entry(*address).or_insert((&node.since, name));
                *holder = (*holder).min((&node.since, name));
            }
        }
        let told = members.iter().take(MAX_NEIGHBOURS).map(|(name, node)| {
            let mine = |ip: &&IpAddr| holders.get(*ip).is_some_and(|(_, holder)| holder == name);
            let addresses: Vec<String> = node.addresses.iter().filter(mine).map(IpAddr::to_string).collect();
            let mut told = json!({ "name": name, "addresses": addresses, "podCIDRs": node.pod_cidrs });
            if let Some(zone) = &node.zone {
                told.set("zone", zone.as_str().into());
            }
            told
        });
        let nodes: Vec<Value> = told.collect();
        let key = Kind::SiteView.key("", site);
        made_object(key, format!("site-{site}"), json!({ "kind": Kind::SiteView.name(), "nodes": nodes }))
    }
}

/// The addresses of a node's status that may be reachable on a LAN, in the form of [`LAN_ADDRESSES`].
pub(super) fn lan_addresses(status: &Value) -> String {
    let addresses = status["addresses"].as_array().into_iter().flatten();
    let internal = addresses.filter(|address| address["type"] == "InternalIP");
    let ips = internal.filter_map(|address| address["address"].as_str()?.parse::<IpAddr>().ok());
    let texts: Vec<String> = ips.filter(is_of_a_host).take(MAX_ADDRESSES).map(|ip| ip.to_string()).collect();
    texts.join(",")
}

fn is_of_a_host(ip: &IpAddr) -> bool {
    let local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !local && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    fn node(address: &str, peer: &str, since: &str) -> Neighbour {
        let meta =
            meta(json!({"annotations": {LAN_ADDRESSES: address, PEER_ADDRESS: peer}, "creationTimestamp": since}));
        Neighbour::of(&meta, &["10.86.1.0/24".to_owned()]).unwrap()
    }

    #[test]
    fn nodes_behind_one_address_share_a_site_unless_a_label_says_otherwise() {
        let site = |value: Value| Neighbour::of(&meta(value), &[]).map(|node| node.site);
        let lan = |more: Value| {
            let mut all = json!({LAN_ADDRESSES: "192.168.1.5"});
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let peer = |ip: &str| lan(json!({ PEER_ADDRESS: ip }));
        assert_eq!(site(json!({"annotations": peer("203.0.113.7")})).unwrap(), "behind-203.0.113.7");
        assert_eq!(site(json!({"annotations": peer("2001:db8::7")})).unwrap(), "behind-2001-db8--7");
        assert_eq!(site(json!({"annotations": peer("192.168.1.5")})).unwrap(), "direct");
        let named = json!({"annotations": peer("203.0.113.7"), "labels": {SITE_LABEL: "hall-3"}});
        assert_eq!(site(named).unwrap(), "hall-3");
        assert_eq!(site(json!({"annotations": lan(json!({}))})), None, "nobody knows from where");
        assert_eq!(site(json!({"labels": {SITE_LABEL: "hall-3"}})), None, "it wants no routes");
    }

    #[test]
    fn a_node_is_told_its_zone() {
        let mut sites = Sites::default();
        let at = json!({"annotations": {LAN_ADDRESSES: "192.168.1.5", PEER_ADDRESS: "192.168.1.5"}, "labels": {ZONE_LABEL: "hall-3"}});
        sites.set("a", Neighbour::of(&meta(at), &[]));
        sites.set("b", Some(node("192.168.1.6", "192.168.1.6", "2026-01-01T00:00:00Z")));
        let nodes = &sites.view("direct").body["nodes"];
        assert_eq!(nodes[0]["zone"], "hall-3");
        assert!(nodes[1].get("zone").is_none(), "{nodes}");
    }

    #[test]
    fn an_address_is_that_of_the_first_who_had_it() {
        let mut sites = Sites::default();
        sites.set("b", Some(node("192.168.1.5", "203.0.113.7", "2026-01-01T00:00:00Z")));
        sites.set("a", Some(node("192.168.1.5,192.168.1.6", "203.0.113.7", "2026-01-02T00:00:00Z")));
        sites.set("c", Some(node("192.168.1.7", "203.0.113.8", "2026-01-02T00:00:00Z")));
        let view = sites.view("behind-203.0.113.7");
        let wanted = json!([
            {"name": "a", "addresses": ["192.168.1.6"], "podCIDRs": ["10.86.1.0/24"]},
            {"name": "b", "addresses": ["192.168.1.5"], "podCIDRs": ["10.86.1.0/24"]}]);
        assert_eq!(view.body["nodes"], wanted);
        assert_eq!(sites.members("behind-203.0.113.7"), ["a", "b"].into());
        assert_eq!(sites.listed(|name| name == "c"), ["a", "b"]);
        assert_eq!(sites.of("c"), Some("behind-203.0.113.8"));
    }

    #[test]
    fn addresses_that_are_no_hosts_are_left_out() {
        let of = |ips: &[&str]| {
            let all: Vec<Value> = ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
            lan_addresses(&json!({ "addresses": all }))
        };
        assert_eq!(of(&["127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "::1", "fe80::1", "x"]), "");
        assert_eq!(of(&["192.168.1.5", "fd00::5", "192.168.1.6"]), "192.168.1.5,fd00::5");
        for strange in
            [json!(1), json!({"addresses": 1}), json!({"addresses": [1, {"type": "InternalIP", "address": 5}]})]
        {
            assert_eq!(lan_addresses(&strange), "");
        }
    }
}
