//! Builds the records of a Service and its health check. Pure.

use std::net::IpAddr;

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
    let hostname = |ip| hostname(name, view, ip, pods, others);
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
                add(endpoint.ip, hostname(endpoint.ip), Some(port));
            }
        }
    }
    if view.ports.is_empty() {
        // A headless Service may have no ports; its names still lead to its endpoints.
        let ready = |pod: &&LocalPod| view.publish_not_ready_addresses || (pod.ready && !pod.terminating);
        for pod in pods.iter().filter(|pod| pod.is_selected(namespace, view)).filter(ready) {
            pod.ips.iter().for_each(|ip| add(*ip, hostname(*ip), None));
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
    (namespace, service): &ServiceName,
    view: &ServiceView,
    ip: IpAddr,
    pods: &'a [LocalPod],
    others: &'a EndpointView,
) -> Option<&'a String> {
    // Pods on the node's network share its addresses.
    let is_it = |pod: &&LocalPod| pod.ips.contains(&ip) && pod.subdomain.as_ref() == Some(service);
    let of_pod = pods.iter().filter(is_it).find(|pod| pod.is_selected(namespace, view));
    let told = || {
        let endpoints = others.slices.iter().flat_map(|slice| &slice.endpoints);
        endpoints.filter(|endpoint| endpoint.addresses.contains(&ip)).find_map(|endpoint| endpoint.hostname.as_ref())
    };
    of_pod.and_then(|pod| pod.hostname.as_ref()).or_else(told)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn name() -> ServiceName {
        ("shop".to_owned(), "db".to_owned())
    }

    /// A Service of that name for the pods with the label `app`, with these fields too.
    fn view(more: &Value) -> ServiceView {
        let mut spec = json!({"clusterIPs": ["None"], "selector": {"app": "db"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ServiceView::read(&json!({ "spec": spec })).unwrap()
    }

    fn pod(namespace: &str, name: &str, ips: &[&str]) -> LocalPod {
        LocalPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: [("app".to_owned(), "db".to_owned())].into(),
            hostname: Some(name.to_owned()),
            subdomain: Some("db".to_owned()),
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            ready: true,
            ..LocalPod::default()
        }
    }

    fn slices(endpoints: &Value) -> EndpointView {
        EndpointView::read(&json!({"slices": [{"ports": [{"port": 5432}], "endpoints": endpoints}]})).unwrap()
    }

    /// Addresses and host names of its endpoints, and the numbers of their ports.
    fn endpoints(more: &Value, pods: &[LocalPod], others: &EndpointView) -> Vec<(String, Option<String>, Vec<u16>)> {
        let made = service(&name(), &view(more), pods, others, &Here::default());
        let of = |to: zone::Endpoint| (to.ip.to_string(), to.hostname, to.ports.iter().map(|port| port.port).collect());
        made.endpoints.into_iter().map(of).collect()
    }

    #[test]
    fn host_name_is_that_of_a_pod_of_the_service() {
        let ports = json!({"ports": [{"port": 5432}, {"name": "metrics", "port": 9187}]});
        let none = EndpointView::default();
        let found = |pods: &[LocalPod]| endpoints(&ports, pods, &none);
        let with =
            |hostname: Option<&str>| vec![("192.0.2.1".to_owned(), hostname.map(str::to_owned), vec![5432, 9187])];
        let on_the_node = |namespace, name| pod(namespace, name, &["192.0.2.1"]);
        let unselected = LocalPod { labels: Default::default(), ..on_the_node("shop", "a") };
        let pods = [on_the_node("other", "a"), unselected, on_the_node("shop", "db-0")];
        assert_eq!(found(&pods), with(Some("db-0")));
        let elsewhere = LocalPod { subdomain: Some("web".to_owned()), ..on_the_node("shop", "db-0") };
        assert_eq!(found(&[elsewhere]), with(None));
    }

    #[test]
    fn service_without_ports_has_the_addresses_that_are_ready() {
        let ending = LocalPod { terminating: true, ..pod("shop", "db-2", &["10.0.0.3"]) };
        let starting = LocalPod { ready: false, ..pod("shop", "db-1", &["10.0.0.2"]) };
        let pods = [pod("shop", "db-0", &["10.0.0.1", "fd00::1"]), starting, ending, pod("other", "x", &["10.0.0.4"])];
        let others = slices(&json!([
            {"addresses": ["192.0.2.7"], "hostname": "far"},
            {"addresses": ["192.0.2.8"], "notReady": true},
            {"addresses": ["10.0.9.9"], "nodeName": "n9", "pod": true},
        ]));
        let found = |more: &Value| {
            let all = endpoints(more, &pods, &others).into_iter();
            all.map(|(ip, hostname, _)| format!("{} {ip}", hostname.unwrap_or_default())).collect::<Vec<_>>()
        };
        assert_eq!(found(&json!({})), ["db-0 10.0.0.1", "db-0 fd00::1", "far 192.0.2.7"]);
        let all = ["db-0 10.0.0.1", "db-0 fd00::1", "db-1 10.0.0.2", "db-2 10.0.0.3", "far 192.0.2.7"];
        assert_eq!(found(&json!({"publishNotReadyAddresses": true})), all);
    }

    #[test]
    fn load_balancer_hears_of_ready_pods_of_this_node() {
        let local = json!({
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30000,
            "ports": [{"port": 5432}, {"name": "metrics", "port": 9187}],
        });
        let starting = LocalPod { ready: false, ..pod("shop", "db-1", &["10.0.0.2"]) };
        let pods = [pod("shop", "db-0", &["10.0.0.1", "fd00::1"]), starting];
        let others = slices(&json!([{"addresses": ["192.0.2.7"]}]));
        let of = |view: &ServiceView| health(&name(), view, &pods, &others, &Here::default());
        assert_eq!(of(&view(&local)).map(|health| (health.port, health.local)), Some((30000, 1)));
        assert!(of(&view(&json!({"healthCheckNodePort": 30000}))).is_none(), "its traffic goes to any node");
    }
}
