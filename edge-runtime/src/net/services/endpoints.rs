//! Which endpoints a Service has, and which of them traffic of this node goes to. Pure.
//!
//! Of its own pods a node knows better than the cloud, and sooner: what the cloud says of them is left out, whether it is
//! connected or not. The rules are those of K8s staging/src/k8s.io/endpointslice/utils.go (`podToEndpoint`) and
//! pkg/proxy/topology.go (`CategorizeEndpoints`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::view::{EndpointView, ServicePort, ServiceView, TargetPort, protocol};
use crate::pod::ports::Protocol;

const DNS_PORT: u16 = 53;

/// What is asked of the node that decides.
#[derive(Clone, Debug, Default)]
pub struct Here {
    /// Its name in the API.
    pub node: String,
    /// Where it answers questions for names itself; nowhere if it does not.
    pub dns: Vec<IpAddr>,
}

impl Here {
    /// Where the node itself answers what is sent to this port of the Service, whatever endpoints it has: questions to the
    /// cluster's DNS.
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
    /// On this node.
    pub local: bool,
    /// Takes new connections.
    pub ready: bool,
    /// Answers, though perhaps for the last time.
    pub serving: bool,
    pub terminating: bool,
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
    let family = |ip: &&IpAddr| ip.is_ipv6() == v6;
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
        });
    }
    for slice in &others.slices {
        let same =
            slice.ports.iter().find(|other| other.name == port.name && protocol(&other.protocol) == port.protocol());
        let Some(target) = same.map(|port| port.port) else { continue };
        for endpoint in &slice.endpoints {
            let local = endpoint.node_name.as_deref() == Some(&*here.node);
            all.extend(endpoint.addresses.iter().find(family).map(|ip| Endpoint {
                ip: *ip,
                port: target,
                local,
                ready: !endpoint.not_ready,
                serving: !endpoint.not_serving,
                terminating: endpoint.terminating,
            }));
        }
    }
    // One address may come twice: a pod of two slices, or two pods on the node's network.
    all.sort_unstable_by_key(|endpoint| (endpoint.ip, endpoint.port, !endpoint.ready));
    all.dedup_by_key(|endpoint| (endpoint.ip, endpoint.port));
    all
}

/// Those that traffic goes to: the ready ones; where there is none, those that end and still answer.
pub fn usable(all: &[Endpoint], only_local: bool) -> Vec<Endpoint> {
    let here = |endpoint: &&Endpoint| !only_local || endpoint.local;
    let ready: Vec<Endpoint> = all.iter().filter(here).filter(|endpoint| endpoint.ready).copied().collect();
    if !ready.is_empty() {
        return ready;
    }
    all.iter().filter(here).filter(|endpoint| endpoint.serving && endpoint.terminating).copied().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, ip: &str, ready: bool) -> LocalPod {
        LocalPod {
            namespace: "shop".into(),
            name: name.into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ips: vec![ip.parse().unwrap()],
            ready,
            ports: vec![("http".into(), Protocol::Tcp, 8080), ("http".into(), Protocol::Udp, 9090)],
            ..LocalPod::default()
        }
    }

    fn view(more: serde_json::Value) -> ServiceView {
        let mut spec = json!({"clusterIPs": ["10.96.0.7"], "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": "http"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ServiceView::read(&json!({"spec": spec})).unwrap()
    }

    fn find(view: &ServiceView, pods: &[LocalPod], others: &EndpointView) -> Vec<String> {
        let all = of_port(
            ("shop", view),
            &view.ports[0],
            false,
            pods,
            others,
            &Here { node: "n1".into(), ..Here::default() },
        );
        usable(&all, false).iter().map(|endpoint| format!("{}:{}", endpoint.ip, endpoint.port)).collect()
    }

    #[test]
    fn ready_pods_of_the_namespace_that_are_selected_are_endpoints() {
        let other = LocalPod { namespace: "other".into(), ..pod("c", "10.0.0.4", true) };
        let unlike = LocalPod { labels: BTreeMap::new(), ..pod("d", "10.0.0.5", true) };
        let pods = [pod("a", "10.0.0.2", true), pod("b", "10.0.0.3", false), other, unlike];
        assert_eq!(find(&view(json!({})), &pods, &EndpointView::default()), ["10.0.0.2:8080"]);
        assert_eq!(find(&view(json!({"selector": {}})), &pods, &EndpointView::default()), [""; 0]);
        let all = view(json!({"publishNotReadyAddresses": true}));
        assert_eq!(find(&all, &pods, &EndpointView::default()), ["10.0.0.2:8080", "10.0.0.3:8080"]);
    }

    #[test]
    fn ports_are_found_by_number_and_by_name_of_their_protocol() {
        let pods = [pod("a", "10.0.0.2", true)];
        let ports = |port: serde_json::Value| find(&view(json!({ "ports": [port] })), &pods, &EndpointView::default());
        assert_eq!(ports(json!({"port": 80})), ["10.0.0.2:80"]);
        assert_eq!(ports(json!({"port": 80, "targetPort": 81})), ["10.0.0.2:81"]);
        assert_eq!(ports(json!({"port": 80, "targetPort": "http", "protocol": "UDP"})), ["10.0.0.2:9090"]);
        assert_eq!(ports(json!({"port": 80, "targetPort": "none"})), [""; 0]);
        assert_eq!(ports(json!({"port": 80, "protocol": "QUIC"})), [""; 0]);
    }

    #[test]
    fn those_that_end_serve_until_others_do() {
        let ending = LocalPod { terminating: true, ..pod("a", "10.0.0.2", true) };
        let none = EndpointView::default();
        assert_eq!(find(&view(json!({})), std::slice::from_ref(&ending), &none), ["10.0.0.2:8080"]);
        assert_eq!(find(&view(json!({})), &[ending.clone(), pod("b", "10.0.0.3", true)], &none), ["10.0.0.3:8080"]);
        let ended = LocalPod { ready: false, ..ending };
        assert_eq!(find(&view(json!({})), &[ended], &none), [""; 0]);
    }

    #[test]
    fn endpoints_that_are_no_pods_here_come_from_slices() {
        let others = EndpointView::read(&json!({"slices": [
            {"ports": [{"port": 6443}], "endpoints": [{"addresses": ["192.0.2.7", "192.0.2.8"]},
                {"addresses": ["192.0.2.9"], "notReady": true}, {"addresses": ["fd00::1"]}]},
            {"ports": [{"port": 1, "name": "other"}], "endpoints": [{"addresses": ["192.0.2.10"]}]}]}))
        .unwrap();
        assert_eq!(find(&view(json!({"selector": {}})), &[], &others), ["192.0.2.7:6443"]);
    }
}
