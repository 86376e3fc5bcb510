//! Two nodes of one LAN: their pods reach each other at their own addresses, and a Service leads to all of them.

use std::rc::Rc;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::{Cluster, EdgeNode, Kubectl, Lan, Uplink, can_run, until};
use serde_json::{Value, json};

const PODS: &str = "10.87.0.0/16";

struct Site {
    cluster: Cluster,
    a: EdgeNode,
    b: EdgeNode,
    lan: Lan,
}

/// A bridge on the LAN, and two Ready nodes that route to each other.
fn site(test: &str) -> Site {
    let lan = Lan::new();
    let cluster = Cluster::start_at(test, lan.router(), &["--cluster-cidr", PODS]);
    let url = format!("https://{}", cluster.listen);
    let node = |name: &str, number: u8, config: &str| {
        let name = format!("{name}-{}", cluster.kubectl.namespace);
        let mut node = EdgeNode::prepare_behind(&cluster, &name, &url, Some(lan.place(number)));
        node.configure(config);
        node.start();
        node
    };
    let routed = "network: {routes: lan}\n";
    let (a, b) = (node("a", 11, routed), node("b", 12, routed));
    a.wait_ready();
    b.wait_ready();
    Site { cluster, a, b, lan }
}

fn uplink(node: &EdgeNode) -> &Rc<Uplink> {
    node.uplink.as_ref().expect("it has one")
}

fn server(name: &str, on: &str) -> Value {
    let script = "hostname >/tmp/index.html; touch /tmp/ready; exec httpd -fv -p 8080 -h /tmp";
    let probe = json!({"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    let mut pod = pod(name, on, json!([with(shell("c", script), &json!({"readinessProbe": probe}))]));
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod
}

fn service(name: &str, more: &Value) -> Value {
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": with(spec, more)})
}

fn ip_of(kubectl: &Kubectl, pod: &str) -> String {
    kubectl.wait_ready(pod)["status"]["podIP"].as_str().expect("has one").to_owned()
}

fn fetch(node: &EdgeNode, pod: &str, url: &str) -> Result<String, String> {
    let command = format!("timeout 2 wget -qO- {url} 2>&1 || echo failed");
    let said = node.edge(&["exec", pod, "--", "sh", "-c", &command])?.trim().to_owned();
    if said.ends_with("failed") { Err(said) } else { Ok(said) }
}

fn answered_by(node: &EdgeNode, pod: &str, url: &str, wanted: &[&str]) {
    until(Duration::from_secs(20), &format!("{url} is answered by {wanted:?} on {}", node.name), || {
        let mut seen: Vec<String> = (0..16).map(|_| fetch(node, pod, url)).collect::<Result<_, _>>()?;
        seen.sort();
        seen.dedup();
        if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
    });
}

#[test]
fn s04_pods_of_two_nodes_reach_each_other_and_share_a_service() {
    if !can_run() {
        return;
    }
    let Site { mut cluster, mut a, b, lan } = site("neighbours");
    let kubectl = cluster.kubectl.clone();
    // Each has the range from the cluster.
    for node in [&a, &b] {
        let given = kubectl.get("node", &node.name).expect("it is there")["spec"]["podCIDR"].clone();
        assert!(given.as_str().is_some_and(|cidr| cidr.starts_with("10.87.")), "{given}");
    }
    kubectl.apply_all(&[server("on-a", &a.name), server("on-b", &b.name), service("web", &json!({}))]);
    kubectl.apply_all(&[service("all", &json!({"clusterIP": "None"}))]);
    let (ip_a, ip_b) = (ip_of(&kubectl, "on-a"), ip_of(&kubectl, "on-b"));
    assert_ne!(ip_a.rsplit_once('.').map(|(net, _)| net), ip_b.rsplit_once('.').map(|(net, _)| net));

    answered_by(&a, "on-a", &format!("http://{ip_b}:8080/"), &["on-b"]);
    until(Duration::from_secs(15), "the server on b has seen the pod on a", || {
        let log = kubectl.run(&["logs", "on-b"])?;
        if log.contains(&format!("{ip_a}]")) { Ok(()) } else { Err(log) }
    });
    let web = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    let url = format!("http://{web}/");
    answered_by(&a, "on-a", &url, &["on-a", "on-b"]);
    answered_by(&b, "on-b", &url, &["on-a", "on-b"]);
    until(Duration::from_secs(15), "the headless name leads to both", || {
        let said =
            a.edge(&["exec", "on-a", "--", "nslookup", &format!("all.{}.svc.cluster.local", kubectl.namespace)])?;
        if said.contains(&ip_a) && said.contains(&ip_b) { Ok(()) } else { Err(said) }
    });

    // A pod that is not ready is removed on the other node after the API says so, and comes back.
    b.edge_ok(&["exec", "on-b", "--", "rm", "/tmp/ready"]);
    answered_by(&a, "on-a", &url, &["on-a"]);
    b.edge_ok(&["exec", "on-b", "--", "touch", "/tmp/ready"]);
    answered_by(&a, "on-a", &url, &["on-a", "on-b"]);

    // Endpoints work without the cloud and the daemon, and a restarted daemon finds everything in the desired state.
    cluster.kill_bridge();
    a.kill();
    answered_by(&a, "on-a", &url, &["on-a", "on-b"]);
    a.start();
    until(Duration::from_secs(20), "the daemon knows its pods", || a.edge(&["ps"]));
    answered_by(&a, "on-a", &url, &["on-a", "on-b"]);
    // A node knows the state of its own pods before the cloud does.
    a.edge_ok(&["exec", "on-a", "--", "rm", "/tmp/ready"]);
    answered_by(&b, "on-b", &format!("http://{ip_a}:8080/"), &["on-a"]);
    answered_by(&a, "on-a", &url, &["on-b"]);

    // The kernel removes the routes of a link that was down.
    let route = uplink(&a).output(&["ip", "route", "show", "proto", "83"]);
    assert!(route.contains(&format!("via {}", lan.address(12))), "{route}");
    uplink(&a).inside(&["ip", "link", "set", "up0", "down"]);
    uplink(&a).inside(&["ip", "link", "set", "up0", "up"]);
    uplink(&a).inside(&["ip", "route", "replace", "default", "via", &lan.router().to_string()]);
    answered_by(&a, "on-a", &url, &["on-b"]);
}

#[test]
fn nobody_on_the_lan_speaks_with_the_address_of_a_pod_of_this_node() {
    if !can_run() {
        return;
    }
    let Site { cluster, a, b, lan } = site("neighbours-spoof");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[server("on-a", &a.name), server("on-b", &b.name)]);
    let (ip_a, ip_b) = (ip_of(kubectl, "on-a"), ip_of(kubectl, "on-b"));
    answered_by(&a, "on-a", &format!("http://{ip_b}:8080/"), &["on-b"]);
    // Another host at the switch that knows the route, and uses the address of a pod of node a.
    let stranger = lan.place(66);
    let forged = a_neighbour_of(&ip_a);
    stranger.inside(&["ip", "route", "add", &format!("{ip_a}/32"), "via", &lan.address(11).to_string()]);
    stranger.inside(&["ip", "addr", "add", &format!("{forged}/32"), "dev", "lo"]);
    let dropped = || {
        let rules = uplink(&a).output(&["nft", "-a", "list", "ruleset"]);
        rules.lines().any(|line| line.contains("ip saddr 10.87.") && line.contains("drop"))
    };
    assert!(dropped());
    let ask = |from: &str| {
        let said = std::process::Command::new("ip")
            .args(["netns", "exec", stranger.name(), "/bin/busybox", "ping", "-c", "2", "-W", "1", "-I", from, &ip_a])
            .output()
            .expect("iproute2 is installed");
        said.status.success()
    };
    // Its own address gets an answer, so the route works.
    assert!(ask(&lan.address(66).to_string()), "the stranger has a way");
    let before = received(&a, "on-a");
    assert!(!ask(&forged));
    assert_eq!(received(&a, "on-a"), before, "nothing of it has arrived");
}

/// Another address of its subnet.
fn a_neighbour_of(ip: &str) -> String {
    let (net, _) = ip.rsplit_once('.').expect("an address");
    format!("{net}.200")
}

/// Echo requests that the pod has received.
fn received(node: &EdgeNode, pod: &str) -> String {
    let snmp = node.edge_ok(&["exec", pod, "--", "grep", "^IcmpMsg", "/proc/net/snmp"]);
    snmp.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_node_without_routes_is_told_of_no_neighbour() {
    if !can_run() {
        return;
    }
    let lan = Lan::new();
    let cluster = Cluster::start_at("neighbours-off", lan.router(), &["--cluster-cidr", PODS]);
    let url = format!("https://{}", cluster.listen);
    let name = format!("a-{}", cluster.kubectl.namespace);
    let mut node = EdgeNode::prepare_behind(&cluster, &name, &url, Some(lan.place(11)));
    node.start();
    node.wait_ready();
    let annotations = cluster.kubectl.get("node", &name).expect("it is there")["metadata"]["annotations"].to_string();
    assert!(!annotations.contains("lan-addresses"), "{annotations}");
    assert_eq!(uplink(&node).output(&["ip", "route", "show", "proto", "83"]), "");
    let rules = uplink(&node).output(&["nft", "list", "ruleset"]);
    assert!(!rules.contains("from-outside"), "{rules}");
    // Enabled later, it applies the cluster's range; disabled again, it removes everything.
    for (config, annotated) in [("network: {routes: lan}\n", true), ("", false)] {
        node.kill();
        node.configure(config);
        node.start();
        until(Duration::from_secs(30), "the Node says whether it has routes", || {
            let node = cluster.kubectl.get("node", &name)?;
            let said = node["metadata"]["annotations"]["sampan.dev/lan-addresses"].is_string();
            if said == annotated { Ok(()) } else { Err(node["metadata"]["annotations"].to_string()) }
        });
    }
}
