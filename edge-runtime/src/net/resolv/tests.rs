//! The `resolv.conf` of pods.

use super::*;
use serde_json::json;

fn pod(spec: serde_json::Value) -> Pod {
    let mut spec = spec;
    spec["containers"] = json!([]);
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec})).unwrap()
}

fn node() -> NodeDns {
    NodeDns {
        cluster_dns: vec!["10.96.0.10".into()],
        cluster_domain: "cluster.local".into(),
        own: vec!["10.85.0.1".into()],
        node_resolv_conf: "# dhcp\nsearch old\nnameserver 192.168.1.1\nsearch home.lan.\noptions timeout:2 rotate\n"
            .into(),
    }
}

#[test]
fn stub_resolver_is_not_given_to_pods() {
    assert!(only_loopback("nameserver 127.0.0.53\noptions edns0\n") && only_loopback(""));
    assert!(!only_loopback("nameserver 127.0.0.1\nnameserver 192.168.1.1\n"));
    assert!(only_loopback("nameserver fe80::1%eth0\n"));
}

#[test]
fn default_policy_asks_the_node_where_its_servers_are_near() {
    let of = |pod_spec, servers: &[&str], own: &[&str]| {
        let lines: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
        let own = own.iter().map(|ip| (*ip).to_owned()).collect();
        let dns = NodeDns { node_resolv_conf: format!("search lan\n{lines}"), own, ..node() };
        resolv_conf(&pod(pod_spec), &dns).content.replace("search lan\n", "").replace("nameserver ", "")
    };
    let pod = || json!({"dnsPolicy": "Default"});
    assert_eq!(of(pod(), &["127.0.0.1"], &["10.85.0.1"]), "10.85.0.1\n");
    assert_eq!(of(pod(), &["fe80::1%eth0", "::1"], &["10.85.0.1"]), "10.85.0.1\n");
    assert_eq!(of(pod(), &["127.0.0.1"], &[]), "127.0.0.1\n", "nobody else is known");
    assert_eq!(of(pod(), &["127.0.0.1", "192.0.2.1", "fe80::1%2"], &["10.85.0.1"]), "192.0.2.1\n");
    let on_host = json!({"dnsPolicy": "Default", "hostNetwork": true});
    assert_eq!(of(on_host, &["127.0.0.1", "fe80::1%eth0"], &["10.85.0.1"]), "127.0.0.1\nfe80::1%eth0\n");
}

#[test]
fn cluster_first_asks_the_cluster_and_keeps_the_nodes_domains() {
    let conf = resolv_conf(&pod(json!({})), &node());
    assert_eq!(
        conf.content,
        "search shop.svc.cluster.local svc.cluster.local cluster.local home.lan\n\
             nameserver 10.96.0.10\noptions ndots:5\n"
    );
    assert!(conf.warnings.is_empty());
}

#[test]
fn host_network_needs_the_longer_policy_name_for_cluster_dns() {
    let plain = resolv_conf(&pod(json!({"hostNetwork": true})), &node());
    assert_eq!(plain.content, "search home.lan\nnameserver 192.168.1.1\noptions timeout:2 rotate\n");
    let policy = json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"});
    assert!(resolv_conf(&pod(policy), &node()).content.contains("nameserver 10.96.0.10\n"));
}

#[test]
fn default_policy_is_the_nodes_file() {
    let conf = resolv_conf(&pod(json!({"dnsPolicy": "Default"})), &node());
    assert!(conf.content.contains("nameserver 192.168.1.1\n") && !conf.content.contains("cluster.local"));
}

#[test]
fn policy_none_uses_only_the_pods_settings() {
    let spec = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.2.3.4"], "searches": ["a.b"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}});
    let conf = resolv_conf(&pod(spec), &node());
    assert_eq!(conf.content, "search a.b\nnameserver 1.2.3.4\noptions ndots:2 edns0\n");
}

#[test]
fn dns_config_overrides_options_by_name() {
    let spec = json!({"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}});
    assert!(resolv_conf(&pod(spec), &node()).content.ends_with("options ndots:1\n"));
}

#[test]
fn without_cluster_dns_the_nodes_file_is_used_with_a_warning() {
    let dns = NodeDns { cluster_dns: Vec::new(), ..node() };
    let conf = resolv_conf(&pod(json!({})), &dns);
    assert!(conf.content.contains("nameserver 192.168.1.1\n"));
    assert_eq!(conf.warnings[0].0, "MissingClusterDNS");
}

#[test]
fn limits_cut_the_file_and_warn() {
    let searches: Vec<String> = (0..40).map(|n| format!("{}{n}", "x".repeat(100))).collect();
    let spec = json!({"dnsConfig": {"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3"], "searches": searches}});
    let conf = resolv_conf(&pod(spec), &node());
    assert_eq!(conf.content.matches("nameserver").count(), MAX_NAMESERVERS);
    let line = conf.content.lines().next().unwrap();
    assert!(line.len() <= MAX_SEARCH_CHARS + "search ".len());
    assert_eq!(conf.warnings.len(), 2);
}
