//! A pod behind a Service: its addresses, its ports for those of the Service, and whether it serves (K8s staging
//! endpointslice/utils.go).

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::workloads::node::Node;
use crate::workloads::pod::{NamedPort, Pod};
use crate::workloads::service::{Family, Service};
use crate::workloads::store::key_of;
use crate::workloads::world::World;
use apimachinery::key::ObjectKey;

pub(super) struct Member<'a> {
    pub(super) pod: &'a Pod,
    addresses: Vec<IpAddr>,
    pub(super) serving: bool,
    pub(super) zone: Option<&'a str>,
}

/// The pods behind a Service that have an address and have not terminated. A pod whose Node is unknown is left out
/// until the Node appears, unless the Service publishes addresses that are not ready.
pub(super) fn members<'a>(world: &'a World, service: &'a Service) -> impl Iterator<Item = Member<'a>> {
    let pods = world.pods.labelled(service.namespace(), service.selector());
    let pods = pods.filter(|pod| !pod.is_terminal() && service.selects(pod.metadata.labels.as_ref()));
    // A node creates its mirror pods itself: with labels of its choice it would get the traffic of the whole fleet for
    // an address.
    let pods = pods.filter(|pod| !(service.is_load_balancer() && pod.is_mirror()));
    pods.filter_map(|pod| {
        let addresses: Vec<IpAddr> = pod.status.addresses().filter_map(address).collect();
        let node = world.nodes.get(&ObjectKey::cluster(pod.spec.node_name.as_deref().unwrap_or_default()));
        if addresses.is_empty() || node.is_none() && !service.publishes_unready() {
            return None;
        }
        // The state of pods on an offline node is unknown, whatever they reported last.
        let serving = pod.is_ready() && !node.is_some_and(Node::is_away);
        let zone = node.and_then(|node| node.labels.get("topology.kubernetes.io/zone")?.as_str());
        Some(Member { pod, addresses, serving, zone: zone.filter(|zone| !zone.is_empty()) })
    })
}

/// An address that may be an endpoint's. One of those that no endpoint may have would keep all others from being written.
fn address(text: &str) -> Option<IpAddr> {
    let address = text.parse::<IpAddr>().ok()?.to_canonical();
    let special = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || matches!(ip.segments()[0] & 0xff0f, 0xff01 | 0xff02),
    };
    (!special && !address.is_unspecified() && !address.is_loopback()).then_some(address)
}

impl Member<'_> {
    pub(super) fn addresses(&self, family: Family) -> Vec<String> {
        let of_family = self.addresses.iter().filter(|address| Family::of(address) == family);
        of_family.map(ToString::to_string).collect()
    }

    /// Its address in the Endpoints of the Service.
    pub(super) fn address(&self, service: &Service) -> Option<String> {
        let family = service.first_family().or_else(|| self.addresses.first().map(Family::of))?;
        self.addresses.iter().find(|address| Family::of(address) == family).map(ToString::to_string)
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.pod.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Its name below that of the Service.
    pub(super) fn hostname(&self, service: &Service) -> Option<String> {
        let below = self.pod.spec.subdomain.as_deref() == Some(service.name());
        self.pod.spec.hostname.clone().filter(|name| below && !name.is_empty())
    }

    pub(super) fn reference(&self) -> ObjectReference {
        let key = key_of(&self.pod.metadata);
        ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(key.namespace),
            name: Some(key.name),
            uid: self.pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }
    }

    /// Since when it is as it is.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.pod.ready_changed()
    }

    /// The number of the port that a port of the Service means in this pod (K8s `FindPort`).
    pub(super) fn port(&self, wanted: &ServicePort) -> Option<i32> {
        let name = match wanted.target_port.as_ref()? {
            IntOrString::Int(number) => return Some(*number),
            IntOrString::String(name) => name,
        };
        let sidecars =
            self.pod.spec.init_containers.iter().filter(|one| one.restart_policy.as_deref() == Some("Always"));
        let ports = self.pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
        let is_it = |port: &&NamedPort| port.name == *name && port.protocol() == protocol(wanted);
        { ports }.find(is_it).map(|port| port.number)
    }
}

pub(super) fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}
