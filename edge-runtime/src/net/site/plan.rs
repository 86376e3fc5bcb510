//! Which routes lead to the pods of neighbours, and which subnets this node's own pods are to have. Pure.
//!
//! A neighbour has an address on a link of this node; nodes behind a router of the LAN are not neighbours. Reported
//! subnets of a neighbour must not divert this node's own traffic: not that of its pods, its links or another
//! neighbour.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::view::SiteView;
use crate::net::Subnet;
use crate::net::netlink::address::LinkAddress;
use crate::net::prefix::Prefix;

/// The desired routes, and the pods that they reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub routes: Vec<Route>,
    /// Addresses of the neighbours themselves.
    hosts: BTreeSet<IpAddr>,
    /// The zone that the cluster says this node is in.
    pub zone: Option<String>,
}

/// The way to one range of a neighbour's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub to: Subnet,
    pub via: IpAddr,
    /// Index of the link on which the neighbour is.
    pub link: u32,
}

impl Plan {
    /// Computes the plan from these views, on a node with these pods' subnets and links (without the pods' bridge), and
    /// the reasons for what was left out.
    pub fn of(node: &str, views: &[&SiteView], own: &[Subnet], links: &[LinkAddress]) -> (Self, Vec<String>) {
        let (mut plan, mut left_out) = (Self::default(), Vec::new());
        let (mine, neighbours): (Vec<_>, Vec<_>) =
            views.iter().flat_map(|view| &view.nodes).partition(|neighbour| neighbour.name == node);
        plan.zone = mine.into_iter().find_map(|mine| mine.zone.clone());
        for neighbour in neighbours {
            let near = |ip: &&IpAddr| links.iter().any(|link| is_on(link, **ip));
            let vias: Vec<IpAddr> = neighbour.addresses.iter().filter(near).copied().collect();
            if vias.is_empty() {
                continue;
            }
            plan.hosts.extend(&vias);
            for text in &neighbour.pod_cidrs {
                let leave = |why: &str| format!("no route to {text} of node {}: {why}", neighbour.name);
                let Ok(to) = text.parse::<Subnet>() else {
                    left_out.push(leave("it is no range for pods"));
                    continue;
                };
                let via = vias.iter().find(|via| via.is_ipv4() == to.is_ipv4());
                let link = via.and_then(|via| links.iter().find(|link| is_on(link, *via)));
                let Some((via, link)) = via.zip(link) else { continue };
                if own.iter().any(|mine| mine.overlaps(to)) {
                    left_out.push(leave("this node's own pods have it"));
                } else if links.iter().any(|link| overlaps_link(link, to)) {
                    left_out.push(leave("a link of this node has addresses of it"));
                } else if plan.routes.iter().any(|other| other.to.overlaps(to)) {
                    left_out.push(leave("another node has it"));
                } else {
                    plan.routes.push(Route { to, via: *via, link: link.index });
                }
            }
        }
        (plan, left_out)
    }

    /// Whether a packet from here comes to this address of a pod or a neighbour.
    pub fn reaches(&self, ip: IpAddr) -> bool {
        self.hosts.contains(&ip) || self.routes.iter().any(|route| route.to.contains(ip))
    }

    /// Ranges of all neighbours' pods.
    pub fn ranges(&self) -> Vec<Subnet> {
        self.routes.iter().map(|route| route.to).collect()
    }
}

/// Pod subnets that the cluster has assigned to this node; empty before that.
///
/// # Errors
/// They cannot be used: why.
pub fn own_subnets(node: &str, views: &[&SiteView], links: &[LinkAddress]) -> Result<Vec<Subnet>, String> {
    let mut mine = views.iter().flat_map(|view| &view.nodes).filter(|one| one.name == node);
    let Some(mine) = mine.next() else { return Ok(Vec::new()) };
    let mut subnets: Vec<Subnet> = Vec::new();
    for text in &mine.pod_cidrs {
        let subnet: Subnet = text.parse().map_err(|error| format!("spec.podCIDRs of the Node: {error}"))?;
        if let Some(link) = links.iter().find(|link| overlaps_link(link, subnet)) {
            return Err(format!(
                "spec.podCIDRs of the Node: {subnet} is the network of this node's address {}: have the cluster give \
                 other ranges, delete the Node and let it register again",
                link.address
            ));
        }
        if subnets.iter().any(|other| other.is_ipv4() == subnet.is_ipv4()) {
            return Err(format!("spec.podCIDRs of the Node: {subnet} is the second of its family"));
        }
        subnets.push(subnet);
    }
    Ok(subnets)
}

/// Whether a host of this address is on the link itself.
fn is_on(link: &LinkAddress, ip: IpAddr) -> bool {
    ip != link.address && link.global && Prefix::around(link.address, link.prefix).contains(ip)
}

fn overlaps_link(link: &LinkAddress, range: Subnet) -> bool {
    Prefix::around(link.address, link.prefix).overlaps(Prefix::around(range.network(), range.prefix()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn link(index: u32, address: &str, prefix: u8) -> LinkAddress {
        LinkAddress { index, address: address.parse().unwrap(), prefix, global: true }
    }

    fn view(nodes: serde_json::Value) -> SiteView {
        SiteView::read(&json!({ "nodes": nodes })).unwrap()
    }

    fn plan(nodes: serde_json::Value) -> (Vec<String>, Vec<String>) {
        let own = ["10.86.0.0/24".parse().unwrap(), "fd00:86::/64".parse().unwrap()];
        let links = [link(2, "192.168.1.5", 24), link(3, "fd00:1::5", 64), link(4, "172.16.0.1", 12)];
        let (plan, left_out) = Plan::of("me", &[&view(nodes)], &own, &links);
        let text = |route: &Route| format!("{} via {} on {}", route.to, route.via, route.link);
        (plan.routes.iter().map(text).collect(), left_out)
    }

    #[test]
    fn routes_lead_to_neighbours_that_are_on_a_link_of_this_node() {
        let (routes, left_out) = plan(json!([
            {"name": "me", "addresses": ["192.168.1.5"], "podCIDRs": ["10.86.0.0/24"]},
            {"name": "a", "addresses": ["192.168.1.6", "fd00:1::6"], "podCIDRs": ["10.86.1.0/24", "fd00:86:0:1::/64"]},
            {"name": "far", "addresses": ["192.168.2.6"], "podCIDRs": ["10.86.2.0/24"]},
            {"name": "itself", "addresses": ["192.168.1.5"], "podCIDRs": ["10.86.3.0/24"]},
            {"name": "v4", "addresses": ["192.168.1.7"], "podCIDRs": ["fd00:86:0:2::/64"]}]));
        assert_eq!(routes, ["10.86.1.0/24 via 192.168.1.6 on 2", "fd00:86:0:1::/64 via fd00:1::6 on 3"]);
        assert_eq!(left_out, [""; 0], "who is elsewhere is no mistake");
    }

    #[test]
    fn the_zone_is_that_of_this_node() {
        let nodes = json!([{"name": "a", "zone": "hall-1"}, {"name": "me", "zone": "hall-3"}]);
        assert_eq!(Plan::of("me", &[&view(nodes)], &[], &[]).0.zone.as_deref(), Some("hall-3"));
        assert_eq!(Plan::of("me", &[&view(json!([{"name": "a", "zone": "hall-1"}]))], &[], &[]).0.zone, None);
    }

    #[test]
    fn subnets_of_other_nodes_are_refused() {
        let at = |name: &str, range: &str| json!({"name": name, "addresses": ["192.168.1.9"], "podCIDRs": [range]});
        let (routes, left_out) = plan(json!([
            at("pods", "10.86.0.128/25"),
            at("all", "10.0.0.0/8"),
            at("lan", "192.168.0.0/16"),
            at("link", "172.20.0.0/16"),
            at("first", "10.87.0.0/24"),
            at("second", "10.87.0.0/16"),
            at("default", "0.0.0.0/0"),
            at("word", "x"),
            at("loop", "127.0.0.0/8"),
            at("multicast", "224.0.0.0/8")
        ]));
        assert_eq!(routes, ["10.87.0.0/24 via 192.168.1.9 on 2"]);
        assert_eq!(left_out.len(), 9, "{left_out:?}");
        assert_eq!(left_out[0], "no route to 10.86.0.128/25 of node pods: this node's own pods have it");
    }

    #[test]
    fn plan_reaches_only_neighbours() {
        let nodes = json!([{"name": "a", "addresses": ["192.168.1.6", "10.9.9.9"], "podCIDRs": ["10.86.1.0/24"]}]);
        let (plan, _) = Plan::of("me", &[&view(nodes)], &[], &[link(2, "192.168.1.5", 24)]);
        let reaches = |ip: &str| plan.reaches(ip.parse().unwrap());
        assert!(reaches("10.86.1.200") && reaches("192.168.1.6"));
        assert!(!reaches("10.86.2.1") && !reaches("10.9.9.9") && !reaches("192.168.1.7"));
    }

    #[test]
    fn the_clusters_subnets_are_taken_if_they_are_free() {
        let links = [link(2, "192.168.1.5", 24)];
        let of = |cidrs: serde_json::Value| {
            let view = view(json!([{"name": "me", "podCIDRs": cidrs}]));
            let found = own_subnets("me", &[&view], &links);
            found.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(of(json!(["10.86.0.0/24", "fd00:86::/64"])).unwrap(), ["10.86.0.0/24", "fd00:86::/64"]);
        assert_eq!(of(json!([])).unwrap(), [""; 0]);
        assert!(of(json!(["192.168.0.0/16"])).unwrap_err().contains("192.168.1.5"));
        assert!(of(json!(["10.86.0.0/24", "10.87.0.0/24"])).unwrap_err().contains("second of its family"));
        assert!(of(json!(["10.86.0.1/24"])).unwrap_err().contains("host bits"));
        assert_eq!(own_subnets("other", &[&view(json!([]))], &links).unwrap(), []);
    }
}
