//! Which flows of datagrams lead where no Service leads any more: the kernel keeps a sender that never pauses on what was
//! decided for its first datagram (K8s pkg/proxy/conntrack/cleanup.go). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::endpoints::{Here, LocalPod, of_port};
use super::view::{EndpointView, ServiceView};
use crate::net::netlink::conntrack::Flow;
use crate::pod::ports::Protocol;
use crate::sys::gather::Gather;

/// Where datagrams to the Services may be answered: by address and port, and by node port.
#[derive(Debug, Default, PartialEq)]
pub struct Destinations {
    services: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    node_ports: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// This node's addresses.
    node: Vec<IpAddr>,
}

/// Addresses and node ports that Services have datagrams sent to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    services: BTreeSet<SocketAddr>,
    node_ports: BTreeSet<u16>,
}

impl Destinations {
    /// An empty set, on a node with these addresses.
    pub fn at(node: &[IpAddr]) -> Self {
        Self { node: node.to_vec(), ..Self::default() }
    }

    /// Adds a Service.
    pub fn add(&mut self, namespace: &str, view: &ServiceView, pods: &[LocalPod], others: &EndpointView, here: &Here) {
        for port in view.ports.iter().filter(|port| port.protocol() == Some(Protocol::Udp)) {
            for v6 in [false, true] {
                let all = of_port((namespace, view), port, v6, pods, others, here);
                let serving = all.iter().filter(|to| to.ready || to.serving);
                let serving: BTreeSet<SocketAddr> = serving.map(|to| SocketAddr::new(to.ip, to.port)).into_set();
                let own: Option<BTreeSet<SocketAddr>> =
                    here.answers(view, port, v6).map(|own| [own].into_iter().into_set());
                let inside = view.ips().map(|ip| (ip, own.as_ref().unwrap_or(&serving)));
                let outside = view.external_ips.iter().chain(&view.ingress_ips).map(|ip| (*ip, &serving));
                for (ip, to) in inside.chain(outside).filter(|(ip, _)| ip.is_ipv6() == v6) {
                    self.services.entry(SocketAddr::new(ip, port.port)).or_default().extend(to);
                }
                if port.node_port != 0 {
                    self.node_ports.entry(port.node_port).or_default().extend(&serving);
                }
            }
        }
    }

    /// What these Services have datagrams sent to.
    pub fn told(&self) -> Told {
        Told {
            services: self.services.keys().copied().into_set(),
            node_ports: self.node_ports.keys().copied().into_set(),
        }
    }

    /// Adds destinations that have disappeared since `before`: nothing answers there (K8s `CleanStaleEntries`, deleted
    /// Services).
    pub fn add_gone(&mut self, before: Told) {
        for address in before.services {
            self.services.entry(address).or_default();
        }
        for port in before.node_ports {
            self.node_ports.entry(port).or_default();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Whether the flow was sent to a Service and is answered by none of its endpoints. Flows of others are not known.
    pub fn is_stale(&self, flow: Flow) -> bool {
        let by_port = || self.node_ports.get(&flow.to.port()).filter(|_| self.node.contains(&flow.to.ip()));
        let serving = self.services.get(&flow.to).or_else(by_port);
        serving.is_some_and(|serving| !serving.contains(&flow.answered_by))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn s08_only_flows_to_removed_endpoints_are_stale() {
        let view = ServiceView::read(&json!({"spec": {"clusterIPs": ["10.96.0.7"], "selector": {"a": "b"},
            "ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}, {"port": 80}]}}))
        .unwrap();
        let pod = LocalPod {
            namespace: "ns".into(),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            ips: vec!["10.0.0.2".parse().unwrap()],
            ready: true,
            ..LocalPod::default()
        };
        let mut all = Destinations::at(&["192.0.2.1".parse().unwrap()]);
        all.add("ns", &view, &[pod], &EndpointView::default(), &Here::default());
        let stale =
            |to: &str, by: &str| all.is_stale(Flow { to: to.parse().unwrap(), answered_by: by.parse().unwrap() });
        assert!(!stale("10.96.0.7:53", "10.0.0.2:53"));
        assert!(stale("10.96.0.7:53", "10.0.0.3:53"));
        assert!(stale("10.96.0.7:53", "10.96.0.7:53"), "from before there was an endpoint");
        assert!(stale("192.0.2.1:30053", "10.0.0.3:53") && !stale("192.0.2.1:30053", "10.0.0.2:53"));
        assert!(!stale("10.96.0.7:80", "10.0.0.3:80"), "that is TCP");
        assert!(!stale("10.96.0.8:53", "10.0.0.3:53"));
        assert!(!stale("192.0.2.9:30053", "192.0.2.9:30053"), "a port of somebody else");
    }

    #[test]
    fn flows_to_a_deleted_service_are_stale() {
        let view = ServiceView::read(&json!({"spec": {"clusterIPs": ["10.96.0.7"],
            "ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}]}}))
        .unwrap();
        let at = || Destinations::at(&["192.0.2.1".parse().unwrap()]);
        let mut before = at();
        before.add("ns", &view, &[], &EndpointView::default(), &Here::default());
        let mut now = at();
        now.add_gone(before.told());
        assert!(!now.is_empty());
        let answered_by = "10.0.0.2:53".parse().unwrap();
        let stale = |to: &str| now.is_stale(Flow { to: to.parse().unwrap(), answered_by });
        assert!(stale("10.96.0.7:53") && stale("192.0.2.1:30053"));
        assert!(!stale("10.96.0.8:53") && !stale("192.0.2.9:30053"));
        // A Service that is still there keeps its endpoints.
        before.add_gone(before.told());
        assert_eq!(before.told(), now.told());
    }
}
