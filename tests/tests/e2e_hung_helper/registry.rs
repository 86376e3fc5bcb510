//! Registries and name servers that accept a question and do not answer, and a network that drops everything.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::process::signal;
use sampan_tests::wait::patient;
use sampan_tests::{Cluster, EdgeNode, Silent, can_run, until};
use serde_json::{Value, json};

/// Time for all registries together, after which the node uses the images that it has.
const CHECK: Duration = Duration::from_secs(3);

fn container(image: &str, policy: &str) -> Value {
    with(shell("c", "exec sleep 1000"), &json!({"image": image, "imagePullPolicy": policy}))
}

/// A shell that runs the node with this `/etc/resolv.conf`.
pub(crate) fn with_name_server(folder: &Path, server: &str) -> Vec<String> {
    let file = folder.join("resolv.conf");
    std::fs::write(&file, format!("nameserver {server}\n")).expect("written");
    let script = format!("mount --bind {} /etc/resolv.conf && exec \"$0\" \"$@\"", file.display());
    ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned).into()
}

fn take_in(node: &EdgeNode, cluster: &Cluster, image: &str) {
    let archive = cluster.folder().join("busybox.tar").display().to_string();
    node.edge_ok(&["import", &archive, "--reference", image]);
}

#[test]
fn a_silent_registry_is_one_pods_trouble() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("silentreg");
    let registry = Silent::tcp("127.0.0.1:0".parse().expect("an address"));
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let here = format!("{}/here:latest", registry.address);
    take_in(&node, &cluster, &here);
    // One image must be downloaded, and the download never begins.
    let missing = format!("{}/missing:latest", registry.address);
    kubectl.apply_all(&[pod("stuck", &node.name, json!([container(&missing, "IfNotPresent")]))]);
    until(
        Duration::from_secs(20),
        "the pull has started",
        || {
            if registry.heard() > 0 { Ok(()) } else { Err(node.log()) }
        },
    );
    kubectl.apply_all(&[pod("always", &node.name, json!([container(&here, "Always")]))]);
    kubectl.wait_ready("always");
    let events = || kubectl.ok(&["get", "events", "--field-selector", "involvedObject.name=always"]);
    until(Duration::from_secs(20), "the event names the registry", || {
        let events = events();
        let told = events.contains("using the image that is on this node") && events.contains(&here);
        if told { Ok(()) } else { Err(events) }
    });
    // A restart during the download.
    let started = Instant::now();
    signal(*node.container_pids().values().next().expect("it runs"), "KILL");
    kubectl.wait_pod("always", 30, "runs again", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["ready"] == true
    });
    assert!(started.elapsed() < patient(CHECK * 3), "{:?}", started.elapsed());
    let stuck = kubectl.get("pod", "stuck").expect("it is there");
    assert_eq!(stuck["status"]["phase"], "Pending");
    // The pull ends with an error.
    until(Duration::from_secs(90), "the pull is given up", || {
        let events = kubectl.ok(&["get", "events", "--field-selector", "involvedObject.name=stuck"]);
        let told = events.contains("cannot be reached") && events.contains(&registry.address.to_string());
        if told { Ok(()) } else { Err(events) }
    });
}

#[test]
fn a_silent_name_server_is_one_pods_trouble() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("silentdns");
    // No resolver of this host listens there.
    let server = Silent::udp(SocketAddr::from(([127, 213, 0, 53], 53)));
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let here = "registry.example/here:latest";
    take_in(&node, &cluster, here);
    node.wrapper = with_name_server(cluster.folder(), &server.address.ip().to_string());
    node.start();
    node.wait_ready();
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[
        pod("stuck", &node.name, json!([container("other.example/missing:latest", "Always")])),
        pod("always", &node.name, json!([container(here, "Always")])),
    ]);
    kubectl.wait_ready("always");
    assert!(server.heard() > 0, "it was asked");
    until(Duration::from_secs(60), "the event names the host", || {
        let events = kubectl.ok(&["get", "events", "--field-selector", "involvedObject.name=stuck"]);
        if events.contains("other.example: no answer from") { Ok(()) } else { Err(events) }
    });
}
