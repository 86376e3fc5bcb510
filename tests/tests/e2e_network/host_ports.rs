//! `hostPort`: reachable from everywhere, given to one pod only, gone with the pod.

use std::net::SocketAddr;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::ports::free_address;
use sampan_tests::{Cluster, Kubectl, can_run, get, until};
use serde_json::{Value, json};

use super::rules;

/// A container that serves the pod's name.
fn server(ports: &Value) -> Value {
    let script = "hostname >/tmp/index.html; exec httpd -f -p 8080 -h /tmp";
    with(shell("c", script), &json!({"ports": ports}))
}

fn serving(kubectl: &Kubectl, name: &str, at: SocketAddr) {
    kubectl.wait_ready(name);
    let body = until(Duration::from_secs(10), &format!("{name} answers at {at}"), || get(at));
    assert_eq!(body, format!("{name}\n"));
}

/// The node's own address, as its pods have it: beside a real API server its InternalIP is the bridge's.
fn host_ip(kubectl: &Kubectl, node: &str) -> String {
    kubectl.apply_all(&[pod("where", node, json!([shell("c", "exec sleep 1000")]))]);
    let pod = kubectl.wait_ready("where");
    pod["status"]["hostIP"].as_str().expect("a running pod has it").to_owned()
}

#[test]
fn a_host_port_leads_to_its_pod_and_to_no_other() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("ports");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let host_ip = host_ip(kubectl, &node.name);
    let port = free_address().port();
    let local: SocketAddr = format!("127.0.0.1:{port}").parse().expect("an address");
    let outer: SocketAddr = format!("{host_ip}:{port}").parse().expect("an address");
    kubectl.apply_all(&[pod("web", &on, json!([server(&json!([{"containerPort": 8080, "hostPort": port}]))]))]);
    serving(kubectl, "web", local);
    serving(kubectl, "web", outer);

    // From a neighbour, and from the pod itself.
    let fetch = format!("until wget -qO- http://{outer}/; do sleep 0.2; done");
    let client = with_spec(pod("client", &on, json!([shell("c", &fetch)])), &json!({"restartPolicy": "Never"}));
    let own = format!(
        "hostname >/tmp/index.html; httpd -p 8080 -h /tmp; {}; exec sleep 1000",
        fetch.replace(&port.to_string(), &(port ^ 1).to_string())
    );
    let own = with(shell("c", &own), &json!({"ports": [{"containerPort": 8080, "hostPort": port ^ 1}]}));
    // The port is taken, whatever the address.
    let second = json!([{"containerPort": 8080, "hostPort": port, "hostIP": "127.0.0.1"}]);
    kubectl.apply_all(&[client, pod("own", &on, json!([own])), pod("second", &on, json!([server(&second)]))]);
    kubectl.wait_phase("client", "Succeeded");
    assert_eq!(kubectl.ok(&["logs", "client"]), "web\n");
    kubectl.wait_log("own", "own\n");
    let refused = kubectl.wait_phase("second", "Failed");
    assert_eq!(refused["status"]["reason"], "NodePorts");
    let text =
        "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    assert_eq!(refused["status"]["message"], text);

    // The daemon's death changes nothing, and its restart keeps the ports.
    node.kill();
    assert_eq!(get(local).as_deref(), Ok("web\n"));
    node.start();
    node.wait_connected(&cluster);
    assert_eq!(get(outer).as_deref(), Ok("web\n"));
    assert!(rules().contains(&format!("dport {port} ")));

    let _ = kubectl.ok(&["delete", "pod", "web", "own", "--wait=false"]);
    kubectl.wait_gone("pod", "web", 15);
    kubectl.wait_gone("pod", "own", 15);
    assert!(get(local).is_err());
    let left = rules();
    assert!(!left.contains(&format!("dport {port} ")) && !left.contains(&format!("dport {} ", port ^ 1)), "{left}");
}

/// K8s test/e2e/network/hostport.go: "no conflict between pods with same hostPort but different hostIP and protocol".
#[test]
fn one_port_of_several_addresses_and_protocols() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostip");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let host_ip = host_ip(kubectl, on);
    let port = free_address().port();
    let ports = |ip: &str, protocol: &str| json!([{"containerPort": 8080, "hostPort": port, "hostIP": ip, "protocol": protocol}]);
    let udp = with(shell("c", "exec sleep 1000"), &json!({"ports": ports(&host_ip, "UDP")}));
    kubectl.apply_all(&[
        pod("pod1", on, json!([server(&ports("127.0.0.1", "TCP"))])),
        pod("pod2", on, json!([server(&ports(&host_ip, "TCP"))])),
        pod("pod3", on, json!([udp])),
    ]);
    let at = |ip: &str| -> SocketAddr { format!("{ip}:{port}").parse().expect("an address") };
    serving(kubectl, "pod1", at("127.0.0.1"));
    serving(kubectl, "pod2", at(&host_ip));
    let pod3 = kubectl.wait_ready("pod3");
    let rule = format!("udp dport {port} dnat to {}:8080", pod3["status"]["podIP"].as_str().unwrap_or_default());
    assert!(rules().contains(&rule), "{}", rules());
}
