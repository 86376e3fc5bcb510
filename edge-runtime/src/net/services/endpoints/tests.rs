//! Which endpoints a Service has on this node.

use serde_json::json;

use super::*;
use crate::net::netlink::address::LinkAddress;
use crate::net::site::SiteView;

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

fn here() -> Here {
    let near = json!([{"name": "n2", "addresses": ["192.168.1.2"], "podCIDRs": ["10.0.2.0/24"]}]);
    let near = SiteView::read(&json!({ "nodes": near })).unwrap();
    let link = LinkAddress { index: 2, address: "192.168.1.1".parse().unwrap(), prefix: 24, global: true };
    Here { node: "n1".into(), reach: Plan::of("n1", &[&near], &[], &[link]).0, ..Here::default() }
}

#[test]
fn pods_of_other_nodes_are_endpoints_if_there_is_a_way_to_them() {
    let others = EndpointView::read(&json!({"slices": [{"ports": [{"port": 8080}], "endpoints": [
            {"addresses": ["10.0.2.7"], "nodeName": "n2", "pod": true},
            {"addresses": ["192.168.1.2"], "nodeName": "n2", "pod": true},
            {"addresses": ["10.0.3.7"], "nodeName": "n3", "pod": true},
            {"addresses": ["10.0.0.9"], "nodeName": "n1", "pod": true},
            {"addresses": ["10.0.2.8"], "nodeName": "n1", "pod": true}]}]}))
    .unwrap();
    let pods = [pod("a", "10.0.0.2", true)];
    assert_eq!(find(&view(json!({})), &pods, &others), ["10.0.0.2:8080", "10.0.2.7:8080", "192.168.1.2:8080"]);
    assert_eq!(
        usable(&of_port(("shop", &view(json!({}))), &view(json!({})).ports[0], false, &pods, &others, &here()), true)
            .len(),
        1
    );
}

fn find(view: &ServiceView, pods: &[LocalPod], others: &EndpointView) -> Vec<String> {
    let all = of_port(("shop", view), &view.ports[0], false, pods, others, &here());
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
fn terminating_endpoints_serve_until_others_are_ready() {
    let ending = LocalPod { terminating: true, ..pod("a", "10.0.0.2", true) };
    let none = EndpointView::default();
    assert_eq!(find(&view(json!({})), std::slice::from_ref(&ending), &none), ["10.0.0.2:8080"]);
    assert_eq!(find(&view(json!({})), &[ending.clone(), pod("b", "10.0.0.3", true)], &none), ["10.0.0.3:8080"]);
    let ended = LocalPod { ready: false, ..ending };
    assert_eq!(find(&view(json!({})), &[ended], &none), [""; 0]);
}

/// The table of K8s pkg/proxy/topology_test.go, as far as hints go.
#[test]
fn hints_count_only_if_complete_and_one_names_this_node() {
    let endpoint = |ip: &str, zones: &[&str], nodes: &[&str], more: serde_json::Value| {
        let mut endpoint = json!({"addresses": [ip], "forZones": zones, "forNodes": nodes});
        endpoint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        endpoint
    };
    let none = json!({});
    let find = |zone: Option<&str>, more: serde_json::Value, pods: &[LocalPod], endpoints: &[serde_json::Value]| {
        let slices = json!({"slices": [{"ports": [{"port": 80}], "endpoints": endpoints}]});
        let (view, others) = (view(more), EndpointView::read(&slices).unwrap());
        let here = Here { node: "n1".into(), zone: zone.map(str::to_owned), ..Here::default() };
        let all = of_port(("shop", &view), &view.ports[0], false, pods, &others, &here);
        usable(&all, false).iter().map(|endpoint| endpoint.ip.to_string()).collect::<Vec<_>>()
    };
    let slices = json!({"selector": {}});
    let of = |zone: Option<&str>, all: &[serde_json::Value]| find(zone, slices.clone(), &[], all);
    let (a, b) = (endpoint("192.0.2.1", &["a"], &[], none.clone()), endpoint("192.0.2.2", &["b"], &[], none.clone()));
    assert_eq!(of(Some("a"), &[a.clone(), b.clone()]), ["192.0.2.1"]);
    assert_eq!(of(Some("c"), &[a.clone(), b.clone()]).len(), 2, "nobody is for our zone");
    assert_eq!(of(None, &[a.clone(), b.clone()]).len(), 2, "we have no zone");
    let plain = endpoint("192.0.2.3", &[], &[], none.clone());
    assert_eq!(of(Some("a"), &[a.clone(), b.clone(), plain]).len(), 3, "one has no hint");
    let unready = endpoint("192.0.2.4", &[], &[], json!({"notReady": true, "notServing": true}));
    assert_eq!(of(Some("a"), &[a.clone(), b.clone(), unready]), ["192.0.2.1"], "those not ready do not count");
    let ours_unready = endpoint("192.0.2.1", &["a"], &[], json!({"notReady": true, "notServing": true}));
    assert_eq!(of(Some("a"), &[ours_unready, b.clone()]), ["192.0.2.2"]);
    let both = endpoint("192.0.2.5", &["a", "b"], &[], none.clone());
    assert_eq!(of(Some("b"), &[a.clone(), both]), ["192.0.2.5"]);
    // A label in the API has the last word.
    let mut here = Here { zone: Some("a".into()), ..Here::default() };
    here.reach.zone = Some("b".into());
    assert_eq!(here.zone().unwrap(), "b");
    // Nodes before zones.
    let (n1, n2) =
        (endpoint("192.0.2.6", &["a"], &["n1"], none.clone()), endpoint("192.0.2.7", &["a"], &["n2"], none.clone()));
    assert_eq!(of(Some("a"), &[n1.clone(), n2.clone()]), ["192.0.2.6"]);
    assert_eq!(of(Some("a"), &[n1.clone(), a.clone(), b.clone()]), ["192.0.2.1", "192.0.2.6"], "one has no node hint");
    let other = endpoint("192.0.2.8", &["b"], &["n3"], none.clone());
    assert_eq!(of(Some("a"), &[n2.clone(), other]), ["192.0.2.7"], "no node hint is ours: the zone decides");
    // Terminating endpoints serve whatever their hints are.
    let ending = endpoint("192.0.2.9", &["b"], &[], json!({"notReady": true, "terminating": true}));
    assert_eq!(of(Some("a"), &[ending]), ["192.0.2.9"]);
    // This node's own pods among those of other nodes.
    let own = [pod("p", "10.0.0.2", true)];
    let mixed = |distribution: &str, zone: Option<&str>, pods: &[LocalPod]| {
        let more = json!({"trafficDistribution": distribution, "ports": [{"port": 80}]});
        find(zone, more, pods, &[n2.clone(), b.clone()])
    };
    assert_eq!(mixed("PreferSameZone", Some("a"), &own), ["10.0.0.2", "192.0.2.7"]);
    assert_eq!(mixed("PreferClose", Some("a"), &own), ["10.0.0.2", "192.0.2.7"]);
    assert_eq!(mixed("PreferClose", None, &own).len(), 3, "without a zone ours has no hint");
    assert_eq!(mixed("Nonsense", Some("a"), &own).len(), 3);
    let with_nodes = |pods: &[LocalPod]| {
        let more = json!({"trafficDistribution": "PreferSameNode", "ports": [{"port": 80}]});
        find(Some("a"), more, pods, &[n2.clone(), endpoint("192.0.2.8", &["b"], &["n3"], none.clone())])
    };
    assert_eq!(with_nodes(&own), ["10.0.0.2"]);
    assert_eq!(with_nodes(&[pod("p", "10.0.0.2", false)]), ["192.0.2.7"], "ours is not ready: the zone decides");
}

#[test]
fn endpoints_without_a_local_pod_come_from_slices() {
    let others = EndpointView::read(&json!({"slices": [
            {"ports": [{"port": 6443}], "endpoints": [{"addresses": ["192.0.2.7", "192.0.2.8"]},
                {"addresses": ["192.0.2.9"], "notReady": true}, {"addresses": ["fd00::1"]}]},
            {"ports": [{"port": 1, "name": "other"}], "endpoints": [{"addresses": ["192.0.2.10"]}]}]}))
    .unwrap();
    assert_eq!(find(&view(json!({"selector": {}})), &[], &others), ["192.0.2.7:6443"]);
}
