//! What the kernel is to hold for one Service: its chains, sets and elements, beside [`super::frame`]. Text of nft, but
//! nothing runs it here. Pure.
//!
//! Chains are those of K8s pkg/proxy/nftables/proxier.go.

mod chains;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::super::prefix::{Prefix, join};
use super::endpoints::{Endpoint, Here, LocalPod, is_ordinary, of_port, usable};
use super::item::{Element, Item, What, family};
use super::node_ports::outermost;
use super::view::{EndpointView, Policy, ServicePort, ServiceView};
use crate::pod::ports::Protocol;

/// Longest name of a chain or set that `nft` takes, with room to spare (`NFT_CHAIN_MAXNAMELEN`).
const NAME_LIMIT: usize = 110;

/// Returns the objects of a Service in the tables, and their text, for `families` (`true` means IPv6).
pub fn of_service(
    (namespace, name): (&str, &str),
    view: &ServiceView,
    pods: &[LocalPod],
    others: &EndpointView,
    here: &Here,
    families: &[bool],
) -> BTreeMap<Item, String> {
    let mut items = BTreeMap::new();
    // The names become part of a script.
    if ![namespace, name].into_iter().all(is_plain) || view.is_headless() {
        return items;
    }
    let own = |ip: &IpAddr| here.ips.contains(ip);
    for v6 in families.iter().copied() {
        let mine = |ip: &IpAddr| ip.is_ipv6() == v6 && is_servable(*ip, here) && !own(ip);
        let ips: Vec<IpAddr> = view.ips().filter(mine).collect();
        if ips.is_empty() {
            continue;
        }
        for ip in &ips {
            items.insert(Item { v6, what: What::Element(Element::ClusterIp(*ip)) }, String::new());
        }
        for port in &view.ports {
            let Some(protocol) = port.protocol().filter(|_| port.port != 0 && is_plain(&port.name)) else { continue };
            let endpoints = of_port((namespace, view), port, v6, pods, others, here);
            let mut part = Part { items: &mut items, v6, protocol, view, port, here, name: String::new() };
            part.name = part.chain_name(namespace, name);
            part.add(&ips, &endpoints, here.answers(view, port, v6));
        }
    }
    items
}

/// One port of a Service in one family.
struct Part<'a> {
    items: &'a mut BTreeMap<Item, String>,
    v6: bool,
    protocol: Protocol,
    view: &'a ServiceView,
    port: &'a ServicePort,
    here: &'a Here,
    /// What its chains' names end with.
    name: String,
}

impl Part<'_> {
    fn add(&mut self, ips: &[IpAddr], all: &[Endpoint], own: Option<SocketAddr>) {
        let (view, port) = (self.view, self.port);
        let cluster = usable(all, false);
        let local = usable(all, true);
        let internal_local = view.internal_traffic_policy == Policy::Local;
        let internal = if internal_local { &local } else { &cluster };
        let verdict = match (own, internal.is_empty()) {
            (Some(own), _) => {
                let name = format!("dns-{}", self.name);
                self.chain(name.clone(), format!("meta l4proto {} dnat to {own}\n", self.protocol));
                Some(format!("goto {name}"))
            }
            (None, false) => Some(format!("goto {}", self.service_chain(internal, internal_local))),
            (None, true) => None,
        };
        // Refuses without endpoints; drops silently if there are endpoints, but not on this node, as with kube-proxy.
        let nobody = if cluster.is_empty() { "goto reject-chain" } else { "drop" };
        for ip in ips {
            match &verdict {
                Some(verdict) => self.element(Element::Service(*ip, self.protocol, port.port), verdict.clone()),
                None => self.element(Element::NoEndpoints(*ip, self.protocol, port.port), nobody.into()),
            }
        }
        let v6 = self.v6;
        let mine = |ip: &&IpAddr| ip.is_ipv6() == v6 && is_servable(**ip, self.here);
        let balancers: Vec<IpAddr> = view.ingress_ips.iter().filter(mine).copied().collect();
        let outside: Vec<IpAddr> = view.external_ips.iter().filter(mine).copied().chain(balancers.clone()).collect();
        if outside.is_empty() && port.node_port == 0 {
            return;
        }
        let external_local = view.external_traffic_policy == Policy::Local;
        let unserved = if external_local { local.is_empty() } else { cluster.is_empty() };
        // Also without a local endpoint: pods and processes of this node reach the other endpoints through it.
        let verdict =
            (!cluster.is_empty()).then(|| format!("goto {}", self.external_chain(external_local, &cluster, &local)));
        let protocol = self.protocol;
        let places = outside
            .into_iter()
            .map(|ip| (Element::Service(ip, protocol, port.port), Element::NoEndpoints(ip, protocol, port.port)));
        let at_node = (port.node_port != 0).then_some((
            Element::NodePort(protocol, port.node_port),
            Element::NoNodeEndpoints(protocol, port.node_port),
        ));
        for (leads, refuses) in places.chain(at_node).collect::<Vec<_>>() {
            if let Some(verdict) = &verdict {
                self.element(leads, verdict.clone());
            }
            if unserved {
                self.element(refuses, nobody.into());
            }
        }
        self.add_firewall(&balancers);
    }

    /// Adds the allowed sources of load balancers' addresses. Node ports are not limited, as in Kubernetes (K8s
    /// pkg/proxy/nftables/proxier.go, `syncProxyRules`).
    fn add_firewall(&mut self, balancers: &[IpAddr]) {
        let asked = &self.view.load_balancer_source_ranges;
        let ranges: Vec<Prefix> = asked.iter().filter_map(|range| range.parse().ok()).collect();
        let of_family = ranges.iter().copied().filter(|range| range.is_ipv6() == self.v6);
        let mut allowed = outermost(of_family);
        // Ranges of the other family do not apply to this one; a malformed range lets no client in.
        if balancers.is_empty() || asked.is_empty() || (allowed.is_empty() && !ranges.is_empty()) {
            return;
        }
        // A node that has the balancer's address itself comes by that (K8s, the same place).
        if allowed.iter().any(|range| self.here.ips.iter().any(|ip| range.contains(*ip))) {
            allowed = outermost(allowed.into_iter().chain(balancers.iter().map(|ip| Prefix::around(*ip, 128))));
        }
        if allowed.iter().any(|range| range.length() == 0) {
            return;
        }
        let name = format!("firewall-{}", self.name);
        let rule = match allowed.is_empty() {
            true => "drop\n".to_owned(),
            false => format!("{} saddr != {{ {} }} drop\n", family(self.v6), join(&allowed)),
        };
        self.chain(name.clone(), rule);
        for ip in balancers {
            self.element(Element::Firewall(*ip, self.protocol, self.port.port), format!("goto {name}"));
        }
    }

    fn chain(&mut self, name: String, rules: String) {
        self.items.insert(Item { v6: self.v6, what: What::Chain(name.into()) }, rules);
    }

    fn element(&mut self, element: Element, verdict: String) {
        self.items.insert(Item { v6: self.v6, what: What::Element(element) }, verdict);
    }

    /// Unique by a hash, readable by the rest.
    fn chain_name(&self, namespace: &str, service: &str) -> String {
        let (protocol, port) = (self.protocol.to_string(), &self.port.name);
        let id = hash(&[namespace, service, &protocol, port]);
        let mut name = format!("{id}-{namespace}/{service}/{protocol}/{port}");
        name.truncate(NAME_LIMIT);
        name
    }
}

fn hash(parts: &[&str]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, parts.join("/").as_bytes());
    digest.as_ref().iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a Service can have the address: not one with another meaning in the kernel, and not one of this node's pod
/// subnets, which include the DNS address.
fn is_servable(ip: IpAddr, here: &Here) -> bool {
    is_ordinary(ip) && !here.subnets.iter().any(|subnet| subnet.contains(ip))
}

/// Nothing in it means anything to nft. Names of ports may be empty.
fn is_plain(name: &str) -> bool {
    name.len() <= 253 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests;
