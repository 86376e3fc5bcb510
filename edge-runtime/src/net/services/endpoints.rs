//! Chooses the endpoints of a Service, and those of them for traffic of this node. Pure.
//!
//! The node knows its own pods earlier and better than the cloud, so it ignores the cloud's data about them, connected
//! or not. The rules are those of K8s staging/src/k8s.io/endpointslice/utils.go (`podToEndpoint`) and
//! pkg/proxy/topology.go (`CategorizeEndpoints`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::super::Subnet;
use super::view::{EndpointView, ServicePort, ServiceView, SliceEndpoint, TargetPort, protocol};
use crate::net::site::Plan;
use crate::pod::ports::Protocol;
use crate::sys::sort::sort_by_key;

const DNS_PORT: u16 = 53;

/// Facts about the deciding node.
#[derive(Clone, Debug, Default)]
pub struct Here {
    /// Its name in the API.
    pub node: String,
    /// Which pods of other nodes packets from here come to.
    pub reach: Plan,
    /// Its label `topology.kubernetes.io/zone` by its own configuration.
    pub zone: Option<String>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Its pods' subnets.
    pub subnets: Vec<Subnet>,
    /// Where it answers questions for names itself; nowhere if it does not.
    pub dns: Vec<IpAddr>,
}

impl Here {
    /// The cluster has the last word: a label may have been set there.
    fn zone(&self) -> Option<&String> {
        self.reach.zone.as_ref().or(self.zone.as_ref())
    }

    /// Whether an endpoint of the API is one for this node: of its own pods it knows better, and what it does not reach
    /// leads nowhere.
    pub fn takes(&self, endpoint: &SliceEndpoint, ip: IpAddr) -> bool {
        !endpoint.pod || (endpoint.node_name.as_deref() != Some(&*self.node) && self.reach.reaches(ip))
    }

    /// Returns the node's own address for queries to the cluster's DNS: the node answers them, whatever the endpoints.
    pub fn answers(&self, view: &ServiceView, port: &ServicePort, v6: bool) -> Option<SocketAddr> {
        let asked = view.dns && port.port == DNS_PORT && port.protocol().is_some_and(|with| with != Protocol::Sctp);
        let ip = self.dns.iter().find(|ip| ip.is_ipv6() == v6).filter(|_| asked)?;
        Some(SocketAddr::new(*ip, DNS_PORT))
    }
}

/// A pod of this node, as far as Services care.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalPod {
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// `spec.hostname` and `spec.subdomain`.
    pub hostname: Option<String>,
    pub subdomain: Option<String>,
    /// Its own or, on the node's network, the node's.
    pub ips: Vec<IpAddr>,
    /// Its condition `Ready`.
    pub ready: bool,
    /// Its deletion has been seen.
    pub terminating: bool,
    /// Named ports of containers that live as long as the pod does.
    pub ports: Vec<(String, Protocol, u16)>,
}

impl LocalPod {
    /// Whether the Service is for this pod. A Service without a selector is for none.
    pub fn is_selected(&self, namespace: &str, view: &ServiceView) -> bool {
        self.namespace == namespace
            && !view.selector.is_empty()
            && view.selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// Where a port of the Service leads in this pod.
    pub fn target(&self, port: &ServicePort) -> Option<u16> {
        let wanted = port.protocol()?;
        match &port.target_port {
            TargetPort::Number(0) => Some(port.port),
            TargetPort::Number(number) => Some(*number),
            TargetPort::Name(name) => {
                let found = self.ports.iter().find(|(other, protocol, _)| other == name && *protocol == wanted);
                found.map(|(_, _, number)| *number)
            }
        }
    }
}

/// Where a connection may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub ip: IpAddr,
    pub port: u16,
    /// Whether it is on this node.
    pub local: bool,
    /// Takes new connections.
    pub ready: bool,
    /// Answers, though perhaps for the last time.
    pub serving: bool,
    pub terminating: bool,
    /// Whether its hints name this node, and this node's zone; `None` without such hints.
    pub for_node: Option<bool>,
    pub for_zone: Option<bool>,
}

/// All endpoints of one port and family, in order.
pub fn of_port(
    (namespace, view): (&str, &ServiceView),
    port: &ServicePort,
    v6: bool,
    pods: &[LocalPod],
    others: &EndpointView,
    here: &Here,
) -> Vec<Endpoint> {
    let family = |ip: &&IpAddr| ip.is_ipv6() == v6 && is_ordinary(**ip);
    // Hints as the controller of slices would set them (K8s staging/src/k8s.io/endpointslice/trafficdist).
    let distribution = view.traffic_distribution.as_deref().unwrap_or_default();
    let prefers_node = distribution == "PreferSameNode";
    let prefers_zone = prefers_node || matches!(distribution, "PreferClose" | "PreferSameZone");
    let for_zone = here.zone().filter(|_| prefers_zone).map(|_| true);
    let mut all = Vec::new();
    for pod in pods.iter().filter(|pod| pod.is_selected(namespace, view)) {
        let (Some(ip), Some(target)) = (pod.ips.iter().find(family), pod.target(port)) else { continue };
        all.push(Endpoint {
            ip: *ip,
            port: target,
            local: true,
            ready: view.publish_not_ready_addresses || (pod.ready && !pod.terminating),
            serving: pod.ready,
            terminating: pod.terminating,
            for_node: prefers_node.then_some(true),
            for_zone,
        });
    }
    for slice in &others.slices {
        let same =
            slice.ports.iter().find(|other| other.name == port.name && protocol(&other.protocol) == port.protocol());
        let Some(target) = same.map(|port| port.port).filter(|port| *port != 0) else { continue };
        for endpoint in &slice.endpoints {
            let local = endpoint.node_name.as_deref() == Some(&*here.node);
            let ip = endpoint.addresses.iter().find(family).filter(|ip| here.takes(endpoint, **ip));
            all.extend(ip.map(|ip| Endpoint {
                ip: *ip,
                port: target,
                local,
                ready: !endpoint.not_ready,
                serving: !endpoint.not_serving,
                terminating: endpoint.terminating,
                for_node: hint(&endpoint.for_nodes, Some(&here.node)),
                for_zone: hint(&endpoint.for_zones, here.zone()),
            }));
        }
    }
    // One address may come twice: a pod of two slices, or two pods on the node's network.
    sort_by_key(&mut all, |endpoint| (endpoint.ip, endpoint.port, !endpoint.ready));
    all.dedup_by_key(|endpoint| (endpoint.ip, endpoint.port));
    all
}

/// Whether a Service may send packets there: not to the sender's loopback, and not to multicast (K8s
/// pkg/apis/core/validation, `ValidateNonSpecialIP`).
pub fn is_ordinary(ip: IpAddr) -> bool {
    let special = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !special && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast()
}

fn hint(named: &[String], own: Option<&String>) -> Option<bool> {
    (!named.is_empty()).then(|| own.is_some_and(|own| named.contains(own)))
}

/// Returns the endpoints that get traffic: the ready ones for this node or its zone; without ready ones, terminating
/// ones that still serve.
pub fn usable(all: &[Endpoint], only_local: bool) -> Vec<Endpoint> {
    let here = |endpoint: &&Endpoint| !only_local || endpoint.local;
    let mut ready: Vec<Endpoint> = all.iter().filter(here).filter(|endpoint| endpoint.ready).copied().collect();
    // Every ready endpoint must have hints, and one of them must name this node.
    let decides = |of: fn(&Endpoint) -> Option<bool>| {
        !only_local && ready.iter().all(|to| of(to).is_some()) && ready.iter().any(|to| of(to) == Some(true))
    };
    if decides(|to| to.for_node) {
        ready.retain(|to| to.for_node == Some(true));
    } else if decides(|to| to.for_zone) {
        ready.retain(|to| to.for_zone == Some(true));
    }
    if !ready.is_empty() {
        return ready;
    }
    all.iter().filter(here).filter(|endpoint| endpoint.serving && endpoint.terminating).copied().collect()
}

#[cfg(test)]
mod tests;
