//! Names in namespaces where the node has no pod, beside a cluster: requested once, answered from then on.

use std::process::Command;
use std::time::{Duration, Instant};

use sampan_tests::cluster::kubelet_address;
use sampan_tests::ports::free_address;
use sampan_tests::process::{Process, binary};
use sampan_tests::wait::patient;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

use super::names::{leads_to, look_up};
use super::{apply_in, client, service};

/// A bridge of many nodes, which tells each what it needs.
fn serve(cluster: &Cluster, listen: std::net::SocketAddr) -> Process {
    let mut command = Command::new(binary("cloud-bridge"));
    command.arg("serve").arg("--kubeconfig").arg(&cluster.kubectl.kubeconfig);
    command.arg("--listen").arg(listen.to_string());
    command.args(["--kubelet-address", &kubelet_address(), "--kubelet-ports", "24700-24799"]);
    let mut process = Process::start(&mut command, &cluster.folder().join("serve.log"));
    until(Duration::from_secs(20), "the bridge is up", || {
        assert!(process.is_running(), "{}", process.log());
        std::net::TcpStream::connect(listen).map_err(|error| error.to_string())
    });
    process
}

#[test]
fn s14_names_of_other_namespaces_are_asked_for_and_never_denied_unknown() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("interests");
    let listen = free_address();
    let mut bridge = serve(&cluster, listen);
    let name = format!("far-{}", cluster.kubectl.namespace);
    let mut node = EdgeNode::bare(&cluster, &name);
    let (url, token) = (format!("https://{listen}"), cluster.token(&name));
    node.edge_ok(&["join", "--bridge", &url, "--token", &token, "--node", &name]);
    node.import_busybox(&cluster);
    node.start();
    node.wait_ready();
    let kubectl = &cluster.kubectl;
    let far = format!("{}-far", kubectl.namespace);
    let _ = kubectl.ok(&["create", "namespace", &far]);
    let fixed = |name: &str, last: u8| {
        let mut one = service(name, "none", &json!({"clusterIP": format!("10.96.77.{last}")}));
        one["metadata"]["namespace"] = json!(far);
        one
    };
    apply_in(&cluster, &far, &fixed("web", 1));
    kubectl.apply_all(&[client("client", &name)]);
    kubectl.wait_ready("client");
    let zone = format!("{far}.svc.cluster.local");

    // The very first question is answered.
    let since = Instant::now();
    leads_to(&node, &format!("web.{zone}"), "10.96.77.1");
    assert!(since.elapsed() < patient(Duration::from_secs(10)), "{:?}", since.elapsed());
    let denied = |name: &str| look_up(&node, "client", name).expect("runs").contains("NXDOMAIN");
    assert!(denied(&format!("none.{zone}")), "what is followed is known");
    // A later one is told as any other.
    apply_in(&cluster, &far, &fixed("late", 2));
    leads_to(&node, &format!("late.{zone}"), "10.96.77.2");

    // Without a cloud, what was asked for is known, and of the rest nothing is said.
    bridge.kill();
    node.kill();
    node.start();
    until(Duration::from_secs(20), "the daemon is back", || node.edge(&["ps"]));
    leads_to(&node, &format!("web.{zone}"), "10.96.77.1");
    let unknown = format!("web.{}-other.svc.cluster.local", kubectl.namespace);
    let said = look_up(&node, "client", &unknown).expect("runs");
    assert!(said.contains("SERVFAIL"), "{said}");

    // A bridge that has never heard of the node follows the same for it, and what was asked for meanwhile.
    let other = format!("{}-other", kubectl.namespace);
    let _ = kubectl.ok(&["create", "namespace", &other]);
    let mut late = fixed("web", 3);
    late["metadata"]["namespace"] = json!(other);
    apply_in(&cluster, &other, &late);
    let mut again = serve(&cluster, listen);
    leads_to(&node, &unknown, "10.96.77.3");
    leads_to(&node, &format!("web.{zone}"), "10.96.77.1");
    again.kill();
}
