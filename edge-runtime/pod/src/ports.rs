//! Ports of the node that a pod requests (`hostPort`), and whether those of two pods conflict. Pure.

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::refusal::Refusal;
use super::spec::{host_network, lasting};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

/// The name in lower case, as in nft and CNI plugins.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// One port of the node that leads into a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// `None`: every address of the node (not set, `0.0.0.0` or `::`).
    pub ip: Option<IpAddr>,
    pub protocol: Protocol,
    pub port: u16,
    pub container_port: u16,
}

impl HostPort {
    fn conflicts(&self, other: &Self) -> bool {
        let overlap = match (self.ip, other.ip) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        overlap && self.protocol == other.protocol && self.port == other.port
    }
}

/// Host ports of the containers that live as long as the pod: app containers and sidecars
/// (K8s pkg/scheduler/util `GetHostPorts`). On the node's own network each container port is one.
pub fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let on_host = host_network(pod);
    lasting(spec).flat_map(|container| of_container(container, on_host)).collect()
}

fn of_container(container: &Container, on_host: bool) -> impl Iterator<Item = HostPort> + '_ {
    let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
    container.ports.iter().flatten().filter_map(move |port| {
        let container_port = number(port.container_port)?;
        let host_port = port.host_port.and_then(number).or(on_host.then_some(container_port))?;
        let ip = port.host_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok());
        Some(HostPort {
            ip: ip.filter(|ip| !ip.is_unspecified()),
            protocol: Protocol::parse(port.protocol.as_deref())?,
            port: host_port,
            container_port,
        })
    })
}

/// Refuses `pod` when one of its host ports is another pod's, in the kubelet's words
/// (K8s pkg/kubelet/lifecycle/predicate.go, pkg/scheduler/framework/plugins/nodeports).
pub fn admit<'a>(pod: &Pod, mut others: impl Iterator<Item = &'a Pod>) -> Option<Refusal> {
    let wanted = host_ports(pod);
    if wanted.is_empty() {
        return None;
    }
    let taken = others.any(|other| host_ports(other).iter().any(|port| wanted.iter().any(|one| one.conflicts(port))));
    taken.then(|| Refusal {
        reason: "NodePorts".to_owned(),
        message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned(),
    })
}

/// A host port and the address of the pod it leads to, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forward {
    pub port: HostPort,
    pub to: IpAddr,
}

/// Returns the forwards from the host ports of `pod` to `ips`; empty on the node's own network.
pub fn forwards(pod: &Pod, ips: &[IpAddr]) -> Vec<Forward> {
    if host_network(pod) {
        return Vec::new();
    }
    let mut all: Vec<Forward> = Vec::new();
    for port in host_ports(pod) {
        let family = |ip: &&IpAddr| port.ip.is_none_or(|host| host.is_ipv4() == ip.is_ipv4());
        all.extend(ips.iter().filter(family).map(|to| Forward { port, to: *to }));
    }
    // A bound address before all addresses: the first rule that fits wins.
    all.sort_by_key(|forward| (forward.port.ip.is_none(), *forward));
    all.dedup();
    all
}

/// Host ports bound to an address of a family that the pod has no address of.
pub fn unreachable(pod: &Pod, ips: &[IpAddr]) -> Vec<HostPort> {
    let reached = forwards(pod, ips);
    let all = host_ports(pod).into_iter();
    all.filter(|port| !reached.iter().any(|forward| forward.port == *port)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::pod;
    use super::*;

    fn with_ports(ports: Value) -> Pod {
        pod(json!({"containers": [{"name": "c", "image": "i", "ports": ports}]}))
    }

    fn conflict(one: Value, other: Value) -> bool {
        let (one, other) = (with_ports(json!([one])), with_ports(json!([other])));
        let refusal = admit(&one, std::iter::once(&other));
        if let Some(refusal) = &refusal {
            assert_eq!(refusal.reason, "NodePorts");
        }
        refusal.is_some()
    }

    #[test]
    fn the_same_port_needs_another_address_or_protocol() {
        let port = |ip: &str, protocol: &str| json!({"containerPort": 80, "hostPort": 8080, "hostIP": ip, "protocol": protocol});
        assert!(conflict(port("", "TCP"), port("0.0.0.0", "")));
        assert!(conflict(port("127.0.0.1", "TCP"), port("", "TCP")));
        assert!(conflict(port("127.0.0.1", "TCP"), port("127.0.0.1", "TCP")));
        assert!(!conflict(port("127.0.0.1", "TCP"), port("10.0.0.1", "TCP")));
        assert!(!conflict(port("", "TCP"), port("", "UDP")));
        assert!(!conflict(json!({"containerPort": 80}), json!({"containerPort": 80})));
    }

    #[test]
    fn the_nodes_network_takes_the_container_port() {
        let ports = json!([{"containerPort": 8080}]);
        let host = pod(json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": ports}]}));
        let other = with_ports(json!([{"containerPort": 80, "hostPort": 8080}]));
        assert!(admit(&host, std::iter::once(&other)).is_some());
        assert!(forwards(&host, &["10.0.0.1".parse().unwrap()]).is_empty());
    }

    #[test]
    fn init_containers_hold_no_port_and_sidecars_do() {
        let init = |policy: Option<&str>| {
            pod(
                json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": policy, "ports": [{"containerPort": 1, "hostPort": 2}]}], "containers": []}),
            )
        };
        assert!(host_ports(&init(None)).is_empty());
        assert_eq!(host_ports(&init(Some("Always"))).len(), 1);
    }

    #[test]
    fn a_port_leads_to_each_address_of_its_family() {
        let ips: Vec<IpAddr> = ["10.1.0.2", "fd00::2"].iter().map(|ip| ip.parse().unwrap()).collect();
        let pod = with_ports(json!([{"containerPort": 80, "hostPort": 80},
            {"containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1", "protocol": "UDP"}]));
        let all = forwards(&pod, &ips);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].port.ip, Some("127.0.0.1".parse().unwrap()));
        assert_eq!(unreachable(&pod, &ips[1..]), [all[0].port]);
    }
}
