//! Rules as text, and what must not be in them.

use serde_json::json;

use super::*;

fn items(spec: serde_json::Value, pods: &[LocalPod]) -> Vec<String> {
    let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
    let items = of_service(("shop", "web"), &view, pods, &EndpointView::default(), &Here::default(), &[false]);
    let text = |(item, text): (Item, String)| match item.what {
        What::Set(name) => format!("set {name}: {text}"),
        What::Chain(name) => format!("chain {name}: {}", text.trim_end().replace('\n', "; ")),
        What::Element(element) => format!("{} {}: {text}", element.set(), element.key()),
    };
    items.into_iter().map(text).collect()
}

fn pod(ip: &str) -> LocalPod {
    LocalPod {
        namespace: "shop".into(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ips: vec![ip.parse().unwrap()],
        ready: true,
        ..LocalPod::default()
    }
}

const NAME: &str = "-shop/web/tcp/http";

fn spec(more: serde_json::Value) -> serde_json::Value {
    let mut spec = json!({"clusterIPs": ["10.96.0.7"], "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn has(items: &[String], part: &str) -> bool {
    items.iter().any(|item| item.contains(part))
}

#[test]
fn port_is_one_rule_for_any_number_of_endpoints() {
    let items = items(spec(json!({})), &[pod("10.0.0.3"), pod("10.0.0.2")]);
    assert_eq!(items.len(), 3, "{items:#?}");
    let to = "meta l4proto tcp dnat ip addr . port to numgen random mod 2 \
        map { 0 : 10.0.0.2 . 8080, 1 : 10.0.0.3 . 8080 }";
    assert!(items[0].starts_with("chain service-") && items[0].ends_with(&format!("{NAME}: {to}")), "{}", items[0]);
    assert_eq!(items[1], "cluster-ips 10.96.0.7: ");
    assert!(items[2].starts_with("service-ips 10.96.0.7 . tcp . 80: goto service-"), "{}", items[2]);
}

#[test]
fn no_endpoint_rejects_and_no_local_endpoint_drops() {
    let refused = items(spec(json!({"ports": [{"port": 80, "nodePort": 30080}]})), &[]);
    assert!(has(&refused, "no-endpoint-services 10.96.0.7 . tcp . 80: goto reject-chain"), "{refused:#?}");
    assert!(has(&refused, "no-endpoint-nodeports tcp . 30080: goto reject-chain"), "{refused:#?}");
    let view = ServiceView::read(&json!({"spec": spec(json!({"internalTrafficPolicy": "Local"}))})).unwrap();
    let others = json!({"slices": [{"ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["192.0.2.1"]}]}]});
    let others = EndpointView::read(&others).unwrap();
    let silent = of_service(("shop", "web"), &view, &[], &others, &Here::default(), &[false]);
    assert!(silent.values().any(|verdict| verdict == "drop"), "{silent:?}");
}

#[test]
fn external_traffic_has_a_separate_chain() {
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
    let all = items(spec(json!({"ports": ports, "externalIPs": ["192.0.2.9"]})), &[pod("10.0.0.2")]);
    assert!(has(&all, "service-nodeports tcp . 30080: goto external-"), "{all:#?}");
    assert!(has(&all, "service-ips 192.0.2.9 . tcp . 80: goto external-"), "{all:#?}");
    assert!(has(&all, &format!("{NAME}: jump mark-for-masquerade; goto service-")), "{all:#?}");
    let local = items(spec(json!({"ports": ports, "externalTrafficPolicy": "Local"})), &[pod("10.0.0.2")]);
    assert!(has(&local, "fib saddr type local jump mark-for-masquerade; fib saddr type local goto service-"));
    assert!(has(&local, "goto local-"), "{local:#?}");
}

/// K8s pkg/proxy/nftables/proxier.go, `syncProxyRules`: no endpoint here, but one on another node.
#[test]
fn s09_policy_local_without_a_local_pod_serves_only_the_node() {
    let spec = spec(json!({"externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.9"],
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]}));
    let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
    let others = json!({"slices": [{"ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["192.0.2.1"], "nodeName": "other"}]}]});
    let others = EndpointView::read(&others).unwrap();
    let here = Here { subnets: vec!["10.85.0.0/24".parse().unwrap()], ..Here::default() };
    let found = of_service(("shop", "web"), &view, &[], &others, &here, &[false]);
    let chain = |prefix: &str| {
        let is = |item: &Item| matches!(&item.what, What::Chain(name) if name.starts_with(prefix));
        found.iter().find(|(item, _)| is(item)).map(|(_, text)| text.as_str())
    };
    let external = chain("external-").unwrap();
    assert!(external.starts_with("ip saddr 10.85.0.0/24 goto service-"), "{external}");
    assert!(external.trim_end().lines().last().unwrap().starts_with("fib saddr type local goto service-"));
    assert_eq!(chain("local-"), None);
    let at = |element: Element| found.get(&Item { v6: false, what: What::Element(element) }).map(String::as_str);
    assert_eq!(at(Element::NoNodeEndpoints(Protocol::Tcp, 30080)), Some("drop"));
    assert_eq!(at(Element::NoEndpoints("192.0.2.9".parse().unwrap(), Protocol::Tcp, 80)), Some("drop"));
    assert!(at(Element::NodePort(Protocol::Tcp, 30080)).unwrap().starts_with("goto external-"));
    assert!(at(Element::Service("10.96.0.7".parse().unwrap(), Protocol::Tcp, 80)).is_some());
}

#[test]
fn source_ranges_keep_others_from_the_balancers_address_alone() {
    let of = |ranges: serde_json::Value, ips: &[&str]| {
        let spec = spec(json!({"loadBalancerSourceRanges": ranges, "ingressIPs": ["192.0.2.9"],
            "externalIPs": ["192.0.2.8"], "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}));
        let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
        let here = Here { ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(), ..Here::default() };
        let items = of_service(("shop", "web"), &view, &[pod("10.0.0.2")], &EndpointView::default(), &here, &[false]);
        let limited: Vec<String> = items
            .keys()
            .filter_map(|item| match &item.what {
                What::Element(element @ Element::Firewall(..)) => Some(element.key()),
                _ => None,
            })
            .collect();
        let is = |item: &Item| matches!(&item.what, What::Chain(name) if name.starts_with("firewall-"));
        (limited, items.iter().find(|(item, _)| is(item)).map(|(_, text)| text.trim_end().to_owned()))
    };
    let only = vec!["192.0.2.9 . tcp . 80".to_owned()];
    let rule = |text: &str| (only.clone(), Some(format!("ip saddr != {{ {text} }} drop")));
    assert_eq!(
        of(json!(["10.0.0.0/8", " 10.1.0.0/16 ", "203.0.113.0/24", "fd00::/8"]), &[]),
        rule("10.0.0.0/8, 203.0.113.0/24")
    );
    assert_eq!(of(json!(["203.0.113.0/24"]), &["203.0.113.7"]), rule("203.0.113.0/24, 192.0.2.9/32"));
    assert_eq!(of(json!([]), &[]), (vec![], None));
    assert_eq!(of(json!(["0.0.0.0/0", "10.0.0.0/8"]), &[]), (vec![], None));
    assert_eq!(of(json!(["fd00::/8"]), &[]), (vec![], None), "of the other family, as with kube-proxy");
    assert_eq!(of(json!(["everybody"]), &[]), (only.clone(), Some("drop".into())));
}

#[test]
fn special_addresses_are_never_services_or_endpoints() {
    let here = Here {
        ips: vec!["192.0.2.1".parse().unwrap()],
        subnets: vec!["10.85.0.0/24".parse().unwrap(), "fd00:85::/64".parse().unwrap()],
        ..Here::default()
    };
    let of = |field: &str, ip: &str| {
        let mut spec = spec(json!({}));
        spec[field] = json!([ip]);
        if field != "clusterIPs" {
            spec["clusterIPs"] = json!(["10.96.0.7"]);
        }
        let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
        let items =
            of_service(("shop", "web"), &view, &[pod("10.85.0.2")], &EndpointView::default(), &here, &[false, true]);
        let wanted: IpAddr = ip.parse().unwrap();
        items.keys().any(|item| matches!(&item.what, What::Element(Element::Service(at, ..) | Element::NoEndpoints(at, ..)) if *at == wanted))
    };
    for ip in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "169.254.169.254",
        "10.85.0.1",
        "10.85.0.2",
        "::",
        "::1",
        "ff02::1",
        "fe80::1",
        "::ffff:10.96.0.9",
        "fd00:85::1",
    ] {
        assert!(!of("clusterIPs", ip) && !of("externalIPs", ip) && !of("ingressIPs", ip), "{ip}");
    }
    assert!(of("externalIPs", "192.0.2.1") && !of("clusterIPs", "192.0.2.1"), "the node's own is an outside address");
    assert!(of("clusterIPs", "10.96.0.9") && of("clusterIPs", "fd00:96::9") && of("externalIPs", "8.8.8.8"));
    let view = ServiceView::read(&json!({ "spec": spec(json!({"selector": {}})) })).unwrap();
    let endpoints = ["127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.169.254"].map(|ip| json!({"addresses": [ip]}));
    let others = json!({"slices": [{"ports": [{"name": "http", "port": 8080}], "endpoints": endpoints}]});
    let others = EndpointView::read(&others).unwrap();
    let items = of_service(("shop", "web"), &view, &[], &others, &here, &[false]);
    assert!(items.values().any(|text| text == "goto reject-chain"), "{items:?}");
}

#[test]
fn s14_the_clusters_dns_is_answered_here_and_only_that() {
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53},
        {"name": "metrics", "port": 9153}]);
    let spec = json!({"clusterIPs": ["10.96.0.10", "fd00::a"], "ports": ports, "dns": true});
    let of = |here: &Here, v6| {
        let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
        let items = of_service(("kube-system", "kube-dns"), &view, &[], &EndpointView::default(), here, &[v6]);
        let text = |(item, text): (Item, String)| format!("{:?} {text}", item.what);
        items.into_iter().map(text).collect::<Vec<_>>()
    };
    let here = Here { dns: vec!["10.85.0.1".parse().unwrap(), "fd85::1".parse().unwrap()], ..Here::default() };
    let v4 = of(&here, false);
    assert!(has(&v4, "meta l4proto udp dnat to 10.85.0.1:53"), "{v4:#?}");
    assert!(has(&v4, "meta l4proto tcp dnat to 10.85.0.1:53"), "{v4:#?}");
    assert!(has(&v4, "NoEndpoints(10.96.0.10, Tcp, 9153)) goto reject-chain"), "{v4:#?}");
    assert!(has(&of(&here, true), "meta l4proto udp dnat to [fd85::1]:53"));
    // Off, it is a Service like others.
    assert!(has(&of(&Here::default(), false), "NoEndpoints(10.96.0.10, Udp, 53)) goto reject-chain"));
}

#[test]
fn affinity_has_a_set_for_each_endpoint() {
    let all = items(spec(json!({"affinitySeconds": 7})), &[pod("10.0.0.2"), pod("10.0.0.3")]);
    assert!(has(&all, "type ipv4_addr; flags dynamic,timeout; timeout 7s;"), "{all:#?}");
    assert!(has(&all, "meta l4proto tcp dnat to 10.0.0.2:80"), "{all:#?}");
    assert!(has(&all, "numgen random mod 2 vmap { 0 : goto endpoint-"), "{all:#?}");
}

#[test]
fn names_cannot_say_anything_to_nft() {
    let view = ServiceView::read(&json!({ "spec": spec(json!({})) })).unwrap();
    let of = |namespace: &str, name: &str| {
        of_service((namespace, name), &view, &[], &EndpointView::default(), &Here::default(), &[false]).len()
    };
    assert_eq!((of("shop", "web"), of("shop", "a; flush ruleset"), of("a\nb", "web")), (2, 0, 0));
    let evil = items(spec(json!({"ports": [{"name": "}; x", "port": 80}]})), &[pod("10.0.0.2")]);
    assert_eq!(evil, ["cluster-ips 10.96.0.7: "]);
    let long = "n".repeat(63);
    let ports = json!([{"name": long, "port": 80, "targetPort": 8080}]);
    let all = items(spec(json!({ "ports": ports })), &[pod("10.0.0.2")]);
    assert!(all.iter().all(|item| item.len() < 300), "{all:#?}");
}

#[test]
fn headless_services_are_nothing_to_the_kernel() {
    assert!(items(spec(json!({"clusterIPs": ["None"]})), &[pod("10.0.0.2")]).is_empty());
}
