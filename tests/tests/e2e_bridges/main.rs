//! Two bridges over one API server, real binaries: a node goes on at the other one when its own dies, and both ends
//! show the link.

mod kubelet;
mod rules;
#[path = "../e2e_rules/target.rs"]
#[allow(dead_code, reason = "the half of it that is used here")]
mod target;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::cluster::kubelet_address;
use sampan_tests::manifest::{pod, shell};
use sampan_tests::ports::free_address;
use sampan_tests::process::{Process, binary};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

/// One `cloud-bridge serve` of several over the cluster's API.
struct Replica {
    process: Process,
    listen: SocketAddr,
}

fn kubeconfig(cluster: &Cluster) -> PathBuf {
    cluster.kubectl.kubeconfig.clone()
}

fn replica(cluster: &Cluster, number: u16) -> Replica {
    let ca = std::env::var_os("TEST_KUBELET_CLIENT_CA").map(PathBuf::from);
    replica_with(cluster, number, ca.as_deref())
}

/// Its kubelet ports know callers with certificates of `ca`.
fn replica_with(cluster: &Cluster, number: u16, ca: Option<&Path>) -> Replica {
    replica_of(cluster, number, ca, &[])
}

/// Starts a replica with more arguments.
fn replica_of(cluster: &Cluster, number: u16, ca: Option<&Path>, more: &[&str]) -> Replica {
    let listen = free_address();
    // Kubelet ports of two replicas on one machine must not meet.
    let ports = format!("{}-{}", 24_000 + number * 100, 24_099 + number * 100);
    let mut command = Command::new(binary("cloud-bridge"));
    command.arg("serve").arg("--kubeconfig").arg(kubeconfig(cluster)).arg("--listen").arg(listen.to_string());
    command.args(["--kubelet-address", &kubelet_address(), "--kubelet-ports", &ports]).args(more);
    if let Some(ca) = ca {
        command.arg("--kubelet-client-ca").arg(ca);
    }
    let mut process = Process::start(&mut command, &cluster.folder().join(format!("replica-{number}.log")));
    until(Duration::from_secs(20), "the replica is up", || {
        assert!(process.is_running(), "{}", process.log());
        std::net::TcpStream::connect(listen).map_err(|error| error.to_string())
    });
    Replica { process, listen }
}

fn bridge(args: &[&str], kubeconfig: &Path) -> String {
    let output = Command::new(binary("cloud-bridge")).args(args).arg("--kubeconfig").arg(kubeconfig).output();
    let output = output.expect("cloud-bridge starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a replica says of a node.
fn seen(cluster: &Cluster, replica: &Replica, node: &str) -> Option<Value> {
    let url = format!("https://{}", replica.listen);
    let text = bridge(&["nodes", "--json", "--bridge", &url], &kubeconfig(cluster));
    let nodes: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    nodes.into_iter().find(|one| one["node"] == node)
}

fn status(node: &EdgeNode) -> Value {
    serde_json::from_str(&node.edge_ok(&["status", "--json"])).expect("JSON")
}

#[test]
fn g11_a_node_moves_to_the_other_bridge_and_g30_both_ends_show_it() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("bridges");
    let (mut one, two) = (replica(&cluster, 1), replica(&cluster, 2));
    let name = format!("moves-{}", cluster.kubectl.namespace);
    let token = bridge(&["token", "create", &name], &kubeconfig(&cluster));
    let token = token.split_whitespace().find(|word| word.starts_with("sampan1.")).expect("a token").to_owned();
    let urls = [one.listen, two.listen].map(|address| format!("https://{address}"));
    let mut node = EdgeNode::bare(&cluster, &name);
    node.edge_ok(&["join", "--bridge", &urls[0], "--bridge", &urls[1], "--token", &token, "--node", &name]);
    node.import_busybox(&cluster);
    node.start();
    node.wait_ready();

    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[pod("first", &name, json!([shell("c", "echo here; exec sleep 1000")]))]);
    kubectl.wait_ready("first");
    let table = bridge(&["nodes", "--bridge", &urls[0]], &kubeconfig(&cluster));
    let line = table.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{name} in {table}"));
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((cells[1], cells[2], cells[3], cells[4]), ("True", env!("CARGO_PKG_VERSION"), "1/1", "up"), "{table}");
    let before = node.container_pids();
    let (view, edge) = until(Duration::from_secs(20), "both ends tell the same of a link at rest", || {
        let view = seen(&cluster, &one, &name).expect("the first has it");
        let edge = status(&node);
        let same = (&edge["link"]["epoch"], &edge["sequence"]) == (&view["epoch"], &view["acked"]);
        let rest = (&view["queueBytes"], &edge["queuedReports"]) == (&json!(0), &json!(0));
        if same && rest { Ok((view, edge)) } else { Err(format!("{view} and {edge}")) }
    });
    assert_eq!((&view["connected"], &edge["link"]["connected"]), (&json!(true), &json!(true)), "{view} {edge}");
    assert_eq!(view["acked"], view["sequence"], "{view}");
    assert!(seen(&cluster, &two, &name).is_none(), "the second has never heard of it");
    assert_eq!(edge["link"]["bridge"], urls[0], "{edge}");

    one.process.kill();
    // It says so while it is offline, too; the second bridge may be quick to answer.
    until(Duration::from_secs(30), "the node is at the second bridge", || {
        let view = seen(&cluster, &two, &name).ok_or("not there yet")?;
        if view["connected"] == true { Ok(view) } else { Err(view.to_string()) }
    });
    kubectl.apply_all(&[pod("second", &name, json!([shell("c", "echo there; exec sleep 1000")]))]);
    kubectl.wait_ready("second");
    let after = node.container_pids();
    assert!(before.iter().all(|(id, pid)| after.get(id) == Some(pid)), "the first pod was left alone");
    let moved = until(Duration::from_secs(20), "the node's own view", || {
        let edge = status(&node);
        if edge["link"]["bridge"] == urls[1] { Ok(edge) } else { Err(edge.to_string()) }
    });
    assert!(moved["link"]["epoch"].as_u64() > view["epoch"].as_u64(), "{moved}");
    if std::env::var_os("TEST_KUBECONFIG").is_some() {
        // The API server finds the bridge that holds the node.
        kubectl.wait_log("second", "there");
    }
    let object = kubectl.get("node", &name).expect("the node");
    let port = object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap_or_default();
    assert!((24_200..24_300).contains(&port), "logs come from the second: {port}");

    node.kill();
    let offline = status(&node);
    assert_eq!((&offline["running"], &offline["link"]["connected"]), (&json!(false), &json!(false)), "{offline}");
    assert!(offline["link"]["lastSeen"].is_string() && offline["sequence"].is_u64(), "{offline}");
    let table = node.edge_ok(&["status"]);
    assert!(table.contains("does not run"), "{table}");
}
