//! Effects of a node's configuration and of its administrator: the DNS of pods, taints, subnets, the Node object.

use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with_spec};
use sampan_tests::node::BUSYBOX;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

const SERVER: &str = "10.96.0.10";

/// Values of the lines of a `resolv.conf` that begin with this word.
fn values(file: &str, keyword: &str) -> Vec<String> {
    let lines = file.lines().filter_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

#[test]
fn a_node_is_as_its_configuration_says() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("configured");
    let kubectl = &cluster.kubectl;
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", kubectl.namespace));
    let subnet = "10.87.0.0/24";
    let config = format!(
        "network: {{cluster-dns: [{SERVER}], cluster-domain: edge.test, subnet: {subnet}}}\n\
         taints: ['site=far:NoSchedule', 'slow:PreferNoSchedule']\nlabels: {{place: field}}\n"
    );
    node.configure(&config);
    node.start();
    node.wait_ready();
    let resolved = |name: &str, more: &Value| {
        with_spec(pod(name, &node.name, json!([shell("c", "cat /etc/resolv.conf; echo end; exec sleep 1000")])), more)
    };
    let names: Vec<String> = (0..32).map(|number| format!("d{number}.test")).collect();
    let more = json!({"dnsConfig": {"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"], "searches": names,
        "options": [{"name": "ndots", "value": "2"}]}});
    kubectl.apply_all(&[
        resolved("cluster", &json!({})),
        resolved("hosts-own", &json!({"hostNetwork": true})),
        resolved("on-host", &json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"})),
        resolved("default", &json!({"dnsPolicy": "Default"})),
        resolved("many", &more),
    ]);

    // Pods' DNS (K8s pkg/kubelet/network/dns/dns.go).
    let of = |name: &str| kubectl.wait_log(name, "end");
    let host = std::fs::read_to_string("/etc/resolv.conf").expect("the host's own");
    let first = [format!("{}.svc.edge.test", kubectl.namespace), "svc.edge.test".into(), "edge.test".into()];
    for name in ["cluster", "on-host"] {
        let file = of(name);
        assert_eq!(values(&file, "nameserver"), [SERVER], "{name}: {file}");
        let search = values(&file, "search");
        assert!(search.starts_with(&first) && search.ends_with(&values(&host, "search")), "{name}: {file}");
        assert_eq!(values(&file, "options"), ["ndots:5"], "{name}: {file}");
    }
    for name in ["default", "hosts-own"] {
        let file = of(name);
        assert!(!file.contains(SERVER) && !file.contains("edge.test"), "{name}: {file}");
        assert_eq!(values(&file, "nameserver"), values(&host, "nameserver"), "{name}: {file}");
    }
    let many = of("many");
    assert_eq!(values(&many, "nameserver"), [SERVER, "192.0.2.1", "192.0.2.2"], "{many}");
    assert_eq!(values(&many, "options"), ["ndots:2"], "{many}");
    let search = values(&many, "search");
    assert!(search.len() == 32 && search.starts_with(&first), "{many}");
    until(Duration::from_secs(30), "events of what was cut", || {
        let selector = "involvedObject.name=many,reason=DNSConfigForming";
        let events = kubectl.run(&["get", "events", "--field-selector", selector])?;
        let cut = format!("the applied nameserver line is: {SERVER} 192.0.2.1 192.0.2.2");
        let told = events.contains(&cut) && events.contains("Search Line limits were exceeded");
        if told { Ok(()) } else { Err(events) }
    });

    // The Node.
    let object = kubectl.get("node", &node.name).expect("the node");
    let taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let has = |key: &str, value: &str, effect: &str| {
        taints.iter().any(|one| {
            one["key"] == key && one["effect"] == effect && one["value"].as_str().unwrap_or_default() == value
        })
    };
    assert!(has("site", "far", "NoSchedule") && has("slow", "", "PreferNoSchedule"), "{taints:?}");
    assert_eq!(object["metadata"]["labels"]["place"], "field");
    let address = kubectl.wait_ready("cluster")["status"]["podIP"].as_str().unwrap_or_default().to_owned();
    assert!(address.starts_with("10.87.0."), "{address}");
    if cluster.api_address().is_some() {
        // The cluster sets it; no kubelet writes it.
        assert_eq!((&object["spec"]["podCIDR"], &object["spec"]["podCIDRs"]), (&Value::Null, &Value::Null));
    }
    let images = object["status"]["images"].as_array().cloned().unwrap_or_default();
    let image = images.iter().find(|image| image["names"].to_string().contains(BUSYBOX));
    assert!(image.is_some_and(|image| image["sizeBytes"].as_u64().is_some_and(|size| size > 100_000)), "{images:?}");
    // Only of a node that an API server reaches through its bridge.
    let features = &object["status"]["declaredFeatures"];
    let wanted = if cluster.api_address().is_some() { Value::Null } else { json!(["ExtendWebSocketsToKubelet"]) };
    assert_eq!(features, &wanted);
    assert_eq!(object["status"]["capacity"]["pods"], "110");

    // The cluster acts on taints of an administrator: pods that do not tolerate them are evicted, and the node starts
    // those that do.
    if cluster.api_address().is_some() {
        let _ = kubectl.ok(&["taint", "node", &node.name, "broken=yes:NoExecute"]);
        let tolerant = pod("later", &node.name, json!([shell("c", "exec sleep 1000")]));
        kubectl.apply_all(&[with_spec(tolerant, &json!({"tolerations": [{"key": "broken", "operator": "Exists"}]}))]);
        kubectl.wait_gone("pod", "cluster", 60);
        let later = kubectl.wait_ready("later");
        assert!(later["metadata"]["deletionTimestamp"].is_null(), "{later}");
        let taints = kubectl.get("node", &node.name).expect("the node")["spec"]["taints"].to_string();
        assert!(taints.contains("NoExecute") && taints.contains("far"), "{taints}");
    }
}
