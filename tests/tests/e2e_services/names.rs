//! Names of the cluster, resolved inside pods.

use std::time::Duration;

use sampan_tests::manifest::with;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

use super::{address, apply_in, client, server, service};

/// Output of `nslookup` in the pod, without the cloud.
pub(super) fn look_up(node: &EdgeNode, pod: &str, name: &str) -> Result<String, String> {
    node.edge(&["exec", pod, "--", "sh", "-c", &format!("timeout 5 nslookup {name} 2>&1; true")])
}

pub(super) fn leads_to(node: &EdgeNode, name: &str, wanted: &str) {
    until(Duration::from_secs(15), &format!("{name} leads to {wanted}"), || {
        let said = look_up(node, "client", name)?;
        let answer = said.split_once("\n\n").map_or("", |(_, answer)| answer);
        if answer.split_whitespace().any(|word| word == wanted) { Ok(()) } else { Err(said) }
    });
}

#[test]
fn s13_s14_names_lead_to_services_and_pods_with_the_cloud_and_without() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("names");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let named = |name: &str| {
        let mut pod = server(name, &on, "db");
        pod["spec"] = with(pod["spec"].clone(), &json!({"hostname": name, "subdomain": "heads"}));
        pod
    };
    kubectl.apply_all(&[
        service("web", "web", &json!({})),
        service("heads", "db", &json!({"clusterIP": "None"})),
        client("client", &on),
        server("a", &on, "web"),
        named("db-0"),
    ]);
    let ip = |pod: &str| kubectl.wait_ready(pod)["status"]["podIP"].as_str().expect("has one").to_owned();
    let (db, _) = (ip("db-0"), ip("client"));
    let namespace = on.trim_start_matches("edge-").to_owned();
    let zone = format!("{namespace}.svc.cluster.local");
    let web = address(kubectl, "web");
    leads_to(&node, &format!("web.{zone}"), &web);
    leads_to(&node, &format!("heads.{zone}"), &db);
    leads_to(&node, &format!("db-0.heads.{zone}"), &db);
    leads_to(&node, "kubernetes.default.svc.cluster.local", &address_of_api(&cluster));
    let none = look_up(&node, "client", &format!("none.{zone}")).expect("runs");
    assert!(none.contains("NXDOMAIN"), "{none}");
    let file = node.edge_ok(&["exec", "client", "--", "cat", "/etc/resolv.conf"]);
    assert!(file.contains(&format!("search {zone} svc.cluster.local cluster.local")), "{file}");

    // Names resolve without cloud and daemon, and again soon after the helper is killed.
    cluster.kill_bridge();
    node.kill();
    leads_to(&node, &format!("web.{zone}"), &web);
    node.start();
    until(Duration::from_secs(20), "the daemon knows its pods", || node.edge(&["ps"]));
    node.edge_ok(&["exec", "db-0", "--", "rm", "/tmp/ready"]);
    until(Duration::from_secs(10), "no endpoint, no name", || {
        let said = look_up(&node, "client", &format!("heads.{zone}"))?;
        if said.contains("NXDOMAIN") { Ok(()) } else { Err(said) }
    });
    node.edge_ok(&["exec", "db-0", "--", "touch", "/tmp/ready"]);
    leads_to(&node, &format!("heads.{zone}"), &db);
    let helper = node.dns_pid().expect("one runs");
    sampan_tests::process::signal(helper, "KILL");
    leads_to(&node, &format!("web.{zone}"), &web);
    assert!(node.dns_pid().is_some_and(|another| another != helper));
}

#[test]
fn s14_node_answers_cluster_dns_for_pods_and_for_itself() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("dns-address");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53},
        {"name": "metrics", "port": 9153}]);
    // The Service has no endpoints.
    let mut dns = service("any", "nobody", &json!({ "ports": ports }));
    dns["metadata"] = json!({"name": "any", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}});
    apply_in(&cluster, "kube-system", &dns);
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &node.name)]);
    kubectl.wait_ready("client");
    let address = ["get", "service", "any", "-n", "kube-system", "-o", "jsonpath={.spec.clusterIP}"];
    let (server, web) = (kubectl.ok(&address), address_of(&cluster, "web"));
    let name = format!("web.{}.svc.cluster.local", node.name.trim_start_matches("edge-"));
    cluster.kill_bridge();
    leads_to(&node, &format!("{name} {server}"), &web);
    let octets = web.parse::<std::net::Ipv4Addr>().expect("an address").octets();
    let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).expect("short"));
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    until(Duration::from_secs(10), "the node itself is answered by UDP and TCP", || {
        let mut answer = [0; 512];
        let told = |error: std::io::Error| error.to_string();
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(told)?;
        socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(told)?;
        socket.connect(format!("{server}:53")).and_then(|()| socket.send(&question)).map_err(told)?;
        let length = socket.recv(&mut answer).map_err(told)?;
        assert!(answer[..length].ends_with(&octets), "{:?}", &answer[..length]);
        let mut stream = std::net::TcpStream::connect(format!("{server}:53")).map_err(told)?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).map_err(told)?;
        let length = u16::try_from(question.len()).expect("short").to_be_bytes();
        std::io::Write::write_all(&mut stream, &[&length[..], &question].concat()).map_err(told)?;
        let length = std::io::Read::read(&mut stream, &mut answer).map_err(told)?;
        assert!(answer[..length].ends_with(&octets), "{:?}", &answer[..length]);
        Ok(())
    });
    // Other ports behave like any Service without endpoints.
    let metrics = std::net::TcpStream::connect(format!("{server}:9153"));
    assert!(metrics.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused));
}

fn address_of(cluster: &Cluster, service: &str) -> String {
    address(&cluster.kubectl, service)
}

fn address_of_api(cluster: &Cluster) -> String {
    cluster.kubectl.ok(&["get", "service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}"])
}
