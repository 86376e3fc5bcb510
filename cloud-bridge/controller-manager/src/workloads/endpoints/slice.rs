//! One EndpointSlice and one endpoint in it: their labels, names, conditions and hints.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::member::{Member, protocol};
use super::words::{HEADLESS, SERVICE_NAME, SLICE_CONTROLLER, SLICE_MANAGED_BY};
use crate::workloads::claim::controller_reference;
use crate::workloads::service::{Family, Service};
use crate::workloads::store::uid;
use crate::workloads::world::Kind;

/// Identity of an endpoint, by which it is updated in place (K8s `hashEndpoint`).
pub(super) type Identity = (Vec<String>, Option<String>, Option<String>);

pub(super) fn identity(endpoint: &Endpoint) -> Identity {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort_unstable();
    let name = endpoint.target_ref.as_ref().and_then(|pod| pod.name.clone());
    (addresses, endpoint.hostname.clone(), name)
}

/// Whether the parts that clients read are equal. Hints count for endpoints that get traffic.
pub(super) fn is_same(new: &Endpoint, old: &Endpoint) -> bool {
    let mut old = old.clone();
    if let Some(pod) = &mut old.target_ref {
        pod.resource_version = None;
    }
    if new.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(true) {
        old.hints.clone_from(&new.hints);
    }
    *new == old
}

/// Ports in an order of their own, by which slices are grouped.
pub(super) fn sorted(mut ports: Vec<EndpointPort>) -> Vec<EndpointPort> {
    ports.sort_by(|a, b| port_key(a).cmp(&port_key(b)));
    ports
}

type PortKey<'a> = (Option<&'a str>, Option<&'a str>, Option<i32>, Option<&'a str>);

fn port_key(port: &EndpointPort) -> PortKey<'_> {
    (port.name.as_deref(), port.protocol.as_deref(), port.port, port.app_protocol.as_deref())
}

/// Identity of a set of ports, independent of their order.
pub(super) type Ports = Vec<(Option<String>, Option<String>, Option<i32>, Option<String>)>;

pub(super) fn ports_key(ports: &[EndpointPort]) -> Ports {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let key = |port| {
        let (name, protocol, number, app) = port_key(port);
        (owned(name), owned(protocol), number, owned(app))
    };
    sorted(ports.to_vec()).iter().map(key).collect()
}

/// The endpoint of a pod in a family; None if it has no address there.
pub(super) fn endpoint(member: &Member<'_>, service: &Service, family: Family) -> Option<Endpoint> {
    let addresses = member.addresses(family);
    let terminating = member.pod.is_deleting();
    let ready = service.publishes_unready() || member.serving && !terminating;
    let node_name = member.node().map(str::to_owned);
    let zone = member.zone.map(str::to_owned);
    let (by_zone, by_node) = service.hints();
    let for_zones = zone.clone().filter(|_| by_zone && ready).map(|name| vec![ForZone { name }]);
    let for_nodes = node_name.clone().filter(|_| by_node && ready).map(|name| vec![ForNode { name }]);
    let hinted = for_zones.is_some() || for_nodes.is_some();
    (!addresses.is_empty()).then(|| Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(member.serving),
            terminating: Some(terminating),
        }),
        hints: hinted.then_some(EndpointHints { for_nodes, for_zones }),
        hostname: member.hostname(service),
        node_name,
        target_ref: Some(member.reference()),
        zone,
        deprecated_topology: None,
    })
}

/// The pod's ports for those of the Service; ports that it does not have are left out.
pub(super) fn ports(member: &Member<'_>, service: &Service) -> Vec<EndpointPort> {
    let found = service.ports().iter().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(member.port(port)?),
            protocol: Some(protocol(port).to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    sorted(found.collect())
}

/// The labels of its slices: the Service's own, except those that are reserved for slices.
pub(super) fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    for reserved in [SERVICE_NAME, SLICE_MANAGED_BY, HEADLESS] {
        labels.remove(reserved);
    }
    if service.has_no_cluster_ip() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.name().to_owned());
    labels.insert(SLICE_MANAGED_BY.to_owned(), SLICE_CONTROLLER.to_owned());
    labels
}

pub(super) fn new_slice(service: &Service, family: Family, ports: Vec<EndpointPort>) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", service.name())),
            namespace: Some(service.namespace().to_owned()),
            labels: Some(labels(service)),
            owner_references: Some(vec![controller_reference(Kind::Service, &service.metadata)]),
            ..ObjectMeta::default()
        },
        address_type: family.name().to_owned(),
        endpoints: Some(Vec::new()),
        ports: Some(ports),
    }
}

/// Whether a slice belongs to this Service, not to one of the same name before it.
pub(super) fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let owners = slice.metadata.owner_references.iter().flatten();
    { owners }.any(|owner| owner.uid == uid(&service.metadata) && owner.kind == "Service" && owner.api_version == "v1")
}
