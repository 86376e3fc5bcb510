//! At which addresses a Service leads in. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::object::{Node, Service, Slice};

/// The desired ingress of its status; `None` if another controller is responsible, or if it is up to date.
pub(super) fn ingress<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice>,
    nodes: &BTreeMap<String, Node>,
) -> Option<Vec<IpAddr>> {
    if service.spec.load_balancer_class.is_some() || service.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let wanted: Vec<IpAddr> = match service.spec.kind.as_deref() {
        Some("LoadBalancer") => addresses(service, slices, nodes),
        // It was one.
        _ => Vec::new(),
    };
    (service.ingress() != wanted).then_some(wanted)
}

fn addresses<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice>,
    nodes: &BTreeMap<String, Node>,
) -> Vec<IpAddr> {
    let families = &service.spec.ip_families;
    let of_family = |ip: &IpAddr| {
        let name = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        families.is_empty() || families.iter().any(|family| family == name)
    };
    let names: BTreeSet<&str> = slices.flat_map(Slice::nodes).collect();
    let facts = names.into_iter().filter_map(|name| nodes.get(name)).map(Node::facts);
    let of_site = facts.filter(|(site, _)| service.site().is_none() || service.site() == *site);
    let all: BTreeSet<IpAddr> = of_site.flat_map(|(_, ips)| ips).filter(of_family).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plan(service: Value, slices: &[Value], nodes: &[Value]) -> Option<Vec<String>> {
        let service: Service = serde_json::from_value(service).unwrap();
        let slices: Vec<Slice> = slices.iter().map(|one| serde_json::from_value(one.clone()).unwrap()).collect();
        let nodes = nodes.iter().map(|one| {
            (one["metadata"]["name"].as_str().unwrap().to_owned(), serde_json::from_value(one.clone()).unwrap())
        });
        let found = ingress(&service, slices.iter(), &nodes.collect());
        found.map(|all| all.iter().map(IpAddr::to_string).collect())
    }

    fn service(meta: Value, spec: Value, ingress: &[&str]) -> Value {
        let ingress: Vec<Value> = ingress.iter().map(|ip| json!({ "ip": ip })).collect();
        json!({"metadata": meta, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}})
    }

    fn node(name: &str, labels: Value, ip: &str) -> Value {
        json!({"metadata": {"name": name, "labels": labels}, "status": {"addresses": [
            {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": ip},
            {"type": "InternalIP", "address": format!("fd00::{}", ip.len())}, {"type": "InternalIP", "address": "nonsense"}]}})
    }

    fn slice(nodes: &[(&str, Option<bool>)]) -> Value {
        let endpoints = nodes.iter().map(|(node, ready)| json!({"nodeName": node, "conditions": {"ready": ready}}));
        json!({"metadata": {"name": "s"}, "endpoints": endpoints.collect::<Vec<_>>()})
    }

    #[test]
    fn a_service_leads_in_where_its_ready_pods_are() {
        let v4 = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"]});
        let nodes = [
            node("a", json!({"sampan.dev/site": "north"}), "192.168.2.1"),
            node("b", json!({"sampan.dev/site": "south"}), "192.168.2.2"),
            node("c", json!(null), "192.168.2.3"),
            node("out", json!({EXCLUDED: ""}), "192.168.2.4"),
        ];
        let all = [
            slice(&[("a", None), ("b", Some(true)), ("gone", None)]),
            slice(&[("c", Some(false)), ("out", None), ("b", None)]),
        ];
        let of = |meta: Value, spec: &Value, now: &[&str]| plan(service(meta, spec.clone(), now), &all, &nodes);
        let both = Some(vec!["192.168.2.1".to_owned(), "192.168.2.2".to_owned()]);
        assert_eq!(of(json!({}), &v4, &[]), both);
        assert_eq!(of(json!({}), &v4, &["192.168.2.9"]), both);
        assert_eq!(of(json!({}), &v4, &["192.168.2.1", "192.168.2.2"]), None, "that is there");
        // Of one site.
        let south = Some(vec!["192.168.2.2".to_owned()]);
        assert_eq!(of(json!({"labels": {"sampan.dev/site": "south"}}), &v4, &[]), south);
        assert_eq!(
            of(json!({"annotations": {"sampan.dev/site": "south"}, "labels": {"sampan.dev/site": "north"}}), &v4, &[]),
            south
        );
        assert_eq!(of(json!({"labels": {"sampan.dev/site": "west"}}), &v4, &["192.168.2.1"]), Some(vec![]));
        // Families.
        let both_families = of(json!({}), &json!({"type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"]}), &[]);
        assert_eq!(both_families.unwrap(), ["192.168.2.1", "192.168.2.2", "fd00::11"]);
        // Others'.
        let other = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/x"});
        assert_eq!(of(json!({}), &other, &["203.0.113.9"]), None);
        assert_eq!(of(json!({}), &json!({"type": "ClusterIP"}), &[]), None);
        assert_eq!(of(json!({}), &json!({"type": "ClusterIP"}), &["192.168.2.1"]), Some(vec![]), "it was one");
        assert_eq!(of(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), &v4, &[]), None);
        assert_eq!(plan(service(json!({}), v4, &["192.168.2.1"]), &[], &nodes), Some(vec![]), "nobody is there");
    }

    #[test]
    fn a_node_cannot_claim_an_address_of_the_internet() {
        let v4 = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"]});
        let at = |meta: Value| {
            let mut node = node("a", json!(null), "203.0.113.80");
            node["metadata"]["annotations"] = meta;
            plan(service(json!({}), v4.clone(), &["192.168.2.9"]), &[slice(&[("a", None)])], &[node])
        };
        assert_eq!(at(json!(null)), Some(vec![]));
        assert_eq!(at(json!({"sampan.dev/peer-address": "203.0.113.7"})), Some(vec![]));
        assert_eq!(at(json!({"sampan.dev/peer-address": "203.0.113.80"})), Some(vec!["203.0.113.80".to_owned()]));
    }

    const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
}
