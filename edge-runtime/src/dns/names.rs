//! Builds the records of a Service and its health check. Pure.

use super::zone;
use crate::net::services::endpoints::of_port;
use crate::net::services::table::ServiceName;
use crate::net::services::view::ServicePort;
use crate::net::services::{EndpointView, Here, LocalPod, ServiceView};
use crate::sys::gather::Gather;

/// Builds a Service of the zone, with the endpoints that take traffic.
pub fn service(
    name: &ServiceName,
    view: &ServiceView,
    pods: &[LocalPod],
    others: &EndpointView,
    here: &Here,
) -> zone::Service {
    let (namespace, service) = name;
    let mut endpoints: Vec<zone::Endpoint> = Vec::new();
    let mut add = |ip, hostname: Option<&String>, port: Option<zone::Port>| {
        let at = endpoints.iter().position(|known| known.ip == ip).unwrap_or_else(|| {
            endpoints.push(zone::Endpoint { ip, hostname: hostname.cloned(), ports: Vec::new() });
            endpoints.len() - 1
        });
        endpoints[at].ports.extend(port);
    };
    for port in &view.ports {
        let Some(protocol) = port.protocol() else { continue };
        for v6 in [false, true] {
            for endpoint in of_port((namespace, view), port, v6, pods, others, here).iter().filter(|to| to.ready) {
                let port = zone::Port { name: port.name.clone(), protocol: protocol.to_string(), port: endpoint.port };
                add(endpoint.ip, hostname(service, endpoint.ip, pods, others), Some(port));
            }
        }
    }
    if view.ports.is_empty() {
        // A headless Service may have no ports; its names still lead to its endpoints.
        let ready = |pod: &&LocalPod| view.publish_not_ready_addresses || (pod.ready && !pod.terminating);
        for pod in pods.iter().filter(|pod| pod.is_selected(namespace, view)).filter(ready) {
            pod.ips.iter().for_each(|ip| add(*ip, hostname(service, *ip, pods, others), None));
        }
        let ready = others.slices.iter().flat_map(|slice| &slice.endpoints).filter(|endpoint| !endpoint.not_ready);
        for endpoint in ready {
            let near = endpoint.addresses.iter().filter(|ip| here.takes(endpoint, **ip));
            near.for_each(|ip| add(*ip, endpoint.hostname.as_ref(), None));
        }
    }
    let port = |port: &ServicePort| {
        let protocol = port.protocol()?.to_string();
        Some(zone::Port { name: port.name.clone(), protocol, port: port.port })
    };
    zone::Service {
        namespace: namespace.clone(),
        name: service.clone(),
        ips: view.ips().collect(),
        external_name: view.external_name.clone(),
        ports: view.ports.iter().filter_map(port).collect(),
        endpoints,
    }
}

/// Builds the health check of the Service, if it has one.
pub fn health(
    name: &ServiceName,
    view: &ServiceView,
    pods: &[LocalPod],
    others: &EndpointView,
    here: &Here,
) -> Option<zone::Health> {
    let port = view.health_check_port()?;
    let of = |v6| {
        let all = view.ports.iter().flat_map(|port| of_port((&name.0, view), port, v6, pods, others, here));
        all.filter(|to| to.local && to.ready).map(|to| to.ip).into_set().len()
    };
    Some(zone::Health { namespace: name.0.clone(), name: name.1.clone(), port, local: of(false).max(of(true)) })
}

/// Host name of an endpoint. A pod has one only below the Service that it names as its subdomain
/// (K8s staging/src/k8s.io/endpointslice/utils.go).
fn hostname<'a>(
    service: &str,
    ip: std::net::IpAddr,
    pods: &'a [LocalPod],
    others: &'a EndpointView,
) -> Option<&'a String> {
    let of_pod = pods.iter().find(|pod| pod.ips.contains(&ip) && pod.subdomain.as_deref() == Some(service));
    let told = || {
        let endpoints = others.slices.iter().flat_map(|slice| &slice.endpoints);
        endpoints.filter(|endpoint| endpoint.addresses.contains(&ip)).find_map(|endpoint| endpoint.hostname.as_ref())
    };
    of_pod.and_then(|pod| pod.hostname.as_ref()).or_else(told)
}
