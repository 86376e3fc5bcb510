//! External clients: load balancers, their source ranges, and node ports. The node has a separate network, so that the
//! test is outside.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use sampan_tests::{Cluster, EdgeNode, Kubectl, Uplink, can_run, get, until};
use serde_json::{Value, json};

use super::{server, service};

fn patch(kubectl: &Kubectl, patch: &Value) {
    let _ = kubectl.ok(&["patch", "service", "web", "--type=merge", "-p", &patch.to_string()]);
}

fn answers(at: SocketAddr, wanted: bool, when: &str) {
    until(Duration::from_secs(20), &format!("{at} answers: {wanted} {when}"), || match get(at) {
        Ok(body) if wanted && body == "a\n" => Ok(()),
        Err(_) if !wanted => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_load_balancers_address_is_a_nodes_and_lets_in_whom_it_may() {
    if !can_run() {
        return;
    }
    let uplink = Rc::new(Uplink::new());
    let cluster = Cluster::start_at("services-balancer", uplink.bridge_ip(), &["--load-balancer", "nodes"]);
    let kubectl = &cluster.kubectl;
    let name = format!("edge-{}", kubectl.namespace);
    let direct = format!("https://{}", cluster.listen);
    let mut node = EdgeNode::prepare_behind(&cluster, &name, &direct, Some(Rc::clone(&uplink)));
    node.start();
    node.wait_ready();
    kubectl.apply_all(&[service("web", "web", &json!({"type": "LoadBalancer"})), server("a", &name, "web")]);
    let host = kubectl.wait_ready("a")["status"]["hostIP"].as_str().expect("has one").to_owned();
    let named = |wanted: &str| {
        until(Duration::from_secs(20), &format!("the Service's address is {wanted:?}"), || {
            let ip = kubectl.run(&["get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"])?;
            if ip == wanted { Ok(()) } else { Err(ip) }
        });
    };
    named(&host);
    let port = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}"]);
    let balancer: SocketAddr = format!("{host}:80").parse().expect("an address");
    let node_port: SocketAddr = format!("{host}:{port}").parse().expect("an address");
    answers(balancer, true, "for everybody");
    patch(kubectl, &json!({"spec": {"loadBalancerSourceRanges": ["203.0.113.0/24"]}}));
    answers(balancer, false, "for others alone");
    answers(node_port, true, "whoever may come by the balancer");
    patch(kubectl, &json!({"spec": {"loadBalancerSourceRanges": ["203.0.113.0/24", "10.213.0.0/16"]}}));
    answers(balancer, true, "for us, too");

    // Pods and nodes of other sites do not count.
    patch(kubectl, &json!({"metadata": {"annotations": {"sampan.dev/site": "north"}}}));
    named("");
    answers(balancer, false, "at another site");
    let _ = kubectl.ok(&["label", "node", &name, "sampan.dev/site=north"]);
    named(&host);
    answers(balancer, true, "at this site");
    node.edge_ok(&["exec", "a", "--", "rm", "/tmp/ready"]);
    named("");
    node.edge_ok(&["exec", "a", "--", "touch", "/tmp/ready"]);
    named(&host);

    // Another configuration needs another table, also if nothing else has changed.
    answers(node_port, true, "at every address");
    node.kill();
    node.configure("services: {node-port-addresses: [203.0.113.0/24]}\n");
    node.start();
    answers(node_port, false, "at none of its addresses");
    node.kill();
    node.configure("services: {node-port-addresses: [primary]}\n");
    node.start();
    answers(node_port, true, "at its own address");
}
