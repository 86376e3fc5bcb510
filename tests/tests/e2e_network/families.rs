//! IPv4 and IPv6 together, bandwidth, and the cleanup after pods.

use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with_spec};
use sampan_tests::{Cluster, EdgeNode, can_run, get, until};
use serde_json::{Value, json};

use super::rules;

/// Joins a node with this configuration file, starts it and waits until it is Ready.
pub(super) fn node_with(cluster: &Cluster, config: &str) -> EdgeNode {
    let mut node = prepared(cluster, config);
    node.start();
    node.wait_ready();
    node
}

/// Same as [`node_with`], but not started.
pub(super) fn prepared(cluster: &Cluster, config: &str) -> EdgeNode {
    let name = format!("edge-{}", cluster.kubectl.namespace);
    let node = EdgeNode::prepare(cluster, &name);
    let folder = node.root().join("etc/edge-runtime");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("config.yaml"), config).expect("written");
    node
}

/// Output of a program on the host.
pub(super) fn host(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect("starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ips(pod: &Value) -> Vec<String> {
    let all = pod["status"]["podIPs"].as_array().cloned().unwrap_or_default();
    all.iter().filter_map(|one| one["ip"].as_str().map(str::to_owned)).collect()
}

#[test]
fn pods_have_an_address_of_each_family_and_keep_them() {
    if !can_run() {
        return;
    }
    if !std::path::Path::new("/proc/sys/net/ipv6").is_dir() {
        return;
    }
    let cluster = Cluster::start("dual");
    let network = "network: {bridge: smp-dual0, pod-cidrs: [10.84.77.0/24, 'fd84:77::/64']}\n";
    let mut node = node_with(&cluster, network);
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    let serve = "echo served >/tmp/index.html; httpd -p 8080 -h /tmp; cat /etc/hosts; exec sleep 1000";
    kubectl.apply_all(&[pod("web", &on, json!([shell("c", serve)]))]);
    let web = ips(&kubectl.wait_ready("web"));
    assert!(web.len() == 2 && web[0].starts_with("10.84.77.") && web[1].starts_with("fd84:77::"), "{web:?}");
    let hosts = kubectl.wait_log("web", &format!("{}\tweb", web[1]));
    assert!(hosts.contains(&format!("{}\tweb", web[0])), "{hosts}");

    let fetch =
        format!("wget -qO- http://{}:8080/; wget -qO- http://[{}]:8080/; ip addr show dev eth0", web[0], web[1]);
    let client = with_spec(pod("client", &on, json!([shell("c", &fetch)])), &json!({"restartPolicy": "Never"}));
    kubectl.apply_all(&[client]);
    kubectl.wait_phase("client", "Succeeded");
    let log = kubectl.ok(&["logs", "client"]);
    assert!(log.starts_with("served\nserved\n"), "{log}");
    assert!(rules().contains("ip6 saddr fd84:77::/64 oifname != \"smp-dual0\""), "{}", rules());

    node.kill();
    node.start();
    node.wait_connected(&cluster);
    assert_eq!(ips(&kubectl.get("pod", "web").expect("the pod")), web);
    assert!(get(format!("[{}]:8080", web[1]).parse().expect("an address")).is_ok());
}

/// The daemon is killed during its work with pods of every kind: after their end nothing of them is left.
#[test]
fn nothing_is_left_of_pods_that_are_gone() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("left");
    let mut node = node_with(&cluster, "network: {bridge: smp-left0, subnet: 10.84.78.0/24}\n");
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    let sleep = |name: &str| pod(name, &on, json!([shell("c", "exec sleep 1000")]));
    let mut limited = sleep("limited");
    limited["metadata"]["annotations"] = json!({"kubernetes.io/ingress-bandwidth": "8M"});
    let mut absurd = sleep("absurd");
    absurd["metadata"]["annotations"] = json!({"kubernetes.io/egress-bandwidth": "1"});
    kubectl.apply_all(&[limited, absurd]);
    kubectl.wait_ready("limited");
    let queues = host("tc", &["qdisc"]);
    assert!(queues.lines().any(|line| line.contains("tbf") && line.contains("rate 8Mbit")), "{queues}");
    until(Duration::from_secs(20), "the event of an absurd limit", || {
        let events = kubectl.run(&["get", "events", "-o", "json"])?;
        if events.contains("unreasonably small") { Ok(()) } else { Err(events) }
    });
    let names: Vec<String> = (0..4).map(|n| format!("p{n}")).collect();
    kubectl.apply_all(&names.iter().map(|name| sleep(name)).collect::<Vec<_>>());
    // At any stage of their start.
    until(Duration::from_secs(20), "the first of them has an address", || {
        let pods = kubectl.get("pods", "p0")?;
        if pods["status"]["podIP"].is_string() { Ok(()) } else { Err(pods["status"].to_string()) }
    });
    node.kill();
    node.start();
    let _ = kubectl.ok(&["delete", "pods", "--all", "--wait=false"]);
    for name in names.iter().map(String::as_str).chain(["limited", "absurd"]) {
        kubectl.wait_gone("pod", name, 30);
    }
    until(Duration::from_secs(10), "no link is left on the bridge", || {
        let links = host("ip", &["-br", "link", "show", "master", "smp-left0"]);
        if links.is_empty() { Ok(()) } else { Err(links) }
    });
    let pinned = std::fs::read_dir(node.root().join("run/edge-runtime/ns")).map_or(0, Iterator::count);
    assert_eq!(pinned, 0);
}
