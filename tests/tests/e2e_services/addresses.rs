//! The address of a Service.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use sampan_tests::manifest::container_id;
use sampan_tests::wait::patient;
use sampan_tests::{Cluster, EdgeNode, can_run, get, until};
use serde_json::json;

use super::{address, answered_by, client, fetch, server, service, tables};

#[test]
fn s01_a_service_leads_to_its_ready_pods_and_no_longer_than_it_is_there() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("services");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &on)]);
    kubectl.wait_ready("client");
    let url = format!("http://{}:80/", address(kubectl, "web"));
    // Without endpoints: refused at once, not silent.
    until(Duration::from_secs(10), "the Service refuses", || {
        let begin = Instant::now();
        match fetch(&node, "client", &url) {
            Err(why) if why.contains("refused") && begin.elapsed() < patient(Duration::from_secs(1)) => Ok(()),
            other => Err(format!("{other:?} after {:?}", begin.elapsed())),
        }
    });
    kubectl.apply_all(&[server("a", &on, "web"), server("b", &on, "web"), server("other", &on, "other")]);
    kubectl.wait_ready("a");
    kubectl.wait_ready("b");
    answered_by(&node, "client", &url, &["a", "b"]);
    // A pod behind a Service reaches itself by it, too.
    answered_by(&node, "a", &url, &["a", "b"]);
    let _ = kubectl.ok(&["delete", "service", "web"]);
    until(Duration::from_secs(10), "the Service is gone", || match fetch(&node, "client", &url) {
        Err(_) if tables(&node).is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn s02_s05_readiness_acts_at_once_without_cloud_or_daemon() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("services-cut");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[
        service("web", "web", &json!({})),
        client("client", &on),
        server("a", &on, "web"),
        server("b", &on, "web"),
    ]);
    ["client", "a", "b"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let url = format!("http://{}:80/", address(kubectl, "web"));
    answered_by(&node, "client", &url, &["a", "b"]);

    cluster.kill_bridge();
    node.edge_ok(&["exec", "b", "--", "rm", "/tmp/ready"]);
    answered_by(&node, "client", &url, &["a"]);
    node.edge_ok(&["exec", "b", "--", "touch", "/tmp/ready"]);
    answered_by(&node, "client", &url, &["a", "b"]);

    // A restarted daemon finds that there is nothing to change, and continues.
    let before = tables(&node);
    node.kill();
    answered_by(&node, "client", &url, &["a", "b"]);
    node.start();
    until(Duration::from_secs(20), "the daemon knows its pods", || node.edge(&["ps"]));
    node.edge_ok(&["exec", "a", "--", "rm", "/tmp/ready"]);
    answered_by(&node, "client", &url, &["b"]);
    node.edge_ok(&["exec", "a", "--", "touch", "/tmp/ready"]);
    answered_by(&node, "client", &url, &["a", "b"]);
    assert_eq!(tables(&node), before);
}

#[test]
fn s07_a_server_sees_the_pod_that_asks() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("services-source");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &on), server("a", &on, "web")]);
    kubectl.wait_ready("a");
    let ip = kubectl.wait_ready("client")["status"]["podIP"].as_str().expect("has one").to_owned();
    let url = format!("http://{}:80/", address(kubectl, "web"));
    until(Duration::from_secs(15), "the server tells who asked", || {
        let _ = fetch(&node, "client", &url);
        let log = kubectl.run(&["logs", "a"])?;
        if log.contains(&format!("{ip}]")) { Ok(()) } else { Err(log) }
    });
}

#[test]
fn s11_a_node_whose_services_are_off_has_no_table() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("services-off");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    node.configure("services: {enabled: false}\n");
    node.start();
    node.wait_ready();
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[service("web", "web", &json!({})), server("a", &node.name, "web")]);
    kubectl.wait_ready("a");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(tables(&node), "");
    let held = node.edge_ok(&["inspect", "a"]);
    assert!(!held.contains("ServiceView"), "{held}");
}

#[test]
fn s03_after_an_offline_boot_services_lead_to_current_pods() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("services-reboot");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[
        service("web", "web", &json!({})),
        client("client", &on),
        server("a", &on, "web"),
        server("b", &on, "web"),
    ]);
    ["client", "a", "b"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let url = format!("http://{}:80/", address(kubectl, "web"));
    answered_by(&node, "client", &url, &["a", "b"]);
    cluster.kill_bridge();
    node.cut_power(cluster.folder());
    node.start();
    answered_by(&node, "client", &url, &["a", "b"]);
}

#[test]
fn node_ports_lead_in_from_the_host_and_from_pods() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("services-port");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let ports = json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": 8080, "name": "http"}]});
    kubectl.apply_all(&[service("web", "web", &ports), client("client", &on), server("a", &on, "web")]);
    let host = kubectl.wait_ready("a")["status"]["hostIP"].as_str().expect("has one").to_owned();
    kubectl.wait_ready("client");
    let port = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}"]);
    answered_by(&node, "client", &format!("http://{host}:{port}/"), &["a"]);
    let from_host = |ip: &str, port: &str| {
        let at: SocketAddr = format!("{ip}:{port}").parse().expect("an address");
        let body = until(Duration::from_secs(10), &format!("{at} answers the host"), || get(at));
        assert_eq!(body, "a\n");
    };
    from_host(&host, &port);
    from_host(&address(kubectl, "web"), "80");
}

#[test]
fn s08_a_sender_of_datagrams_that_never_pauses_finds_the_next_pod() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("services-udp");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let ports = json!({"ports": [{"port": 80, "targetPort": 8080, "protocol": "UDP"}]});
    kubectl.apply_all(&[service("echo", "echo", &ports), server("a", &on, "echo")]);
    // Answers each datagram with its name, in the pod's network.
    let echo = |pod: &'static str| {
        let id = container_id(&kubectl.wait_ready(pod)["status"]["containerStatuses"][0]);
        let network = format!("/proc/{}/ns/net", node.container_pids()[&id]);
        let network = std::fs::File::open(network).expect("the pod's network");
        std::thread::spawn(move || {
            nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).expect("entered");
            let socket = UdpSocket::bind("0.0.0.0:8080").expect("a port");
            let mut datagram = [0; 64];
            while let Ok((_, from)) = socket.recv_from(&mut datagram) {
                let _ = socket.send_to(pod.as_bytes(), from);
            }
        });
    };
    echo("a");
    let at: SocketAddr = format!("{}:80", address(kubectl, "echo")).parse().expect("an address");
    let sender = UdpSocket::bind("0.0.0.0:0").expect("a port");
    sender.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    let answers = |wanted: &str| {
        until(Duration::from_secs(15), &format!("datagrams are answered by {wanted}"), || {
            let mut answer = [0; 64];
            let sent = sender.send_to(b"x\n", at).and_then(|_| sender.recv_from(&mut answer));
            let (length, from) = sent.map_err(|error| error.to_string())?;
            let said = String::from_utf8_lossy(&answer[..length]).trim().to_owned();
            if said == wanted && from == at { Ok(()) } else { Err(format!("{said} at {from}")) }
        });
    };
    answers("a");
    kubectl.apply_all(&[server("b", &on, "echo")]);
    echo("b");
    node.edge_ok(&["exec", "a", "--", "rm", "/tmp/ready"]);
    answers("b");
}
