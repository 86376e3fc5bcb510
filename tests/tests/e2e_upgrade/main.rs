//! Another version of the node's programs: it stays if its trial succeeds, and otherwise the previous one runs again.
//! Containers are not affected.

mod bad;
mod disk;
mod installed;
mod job;
mod kills;

use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

use installed::{Bundle, Installed};

/// An installed node with running pods.
fn set_up(cluster: &Cluster, pods: usize) -> (EdgeNode, Installed) {
    let node = EdgeNode::prepare(cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let off = ["memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"];
    let off = off.map(|signal| format!("{signal}: '0'")).join(", ");
    node.configure(&format!("eviction: {{hard: {{{off}}}}}\n"));
    let installed = Installed::start(&node, cluster.folder());
    node.wait_ready();
    let name = |number| format!("p{number}");
    let all: Vec<Value> =
        (0..pods).map(|number| pod(&name(number), &node.name, json!([shell("c", "exec sleep 100000")]))).collect();
    cluster.kubectl.apply_all(&all);
    for number in 0..pods {
        cluster.kubectl.wait_ready(&name(number));
    }
    (node, installed)
}

/// Status and message of the Node's condition about upgrades.
fn condition(cluster: &Cluster, node: &EdgeNode) -> (String, String) {
    let object = cluster.kubectl.get("node", &node.name).expect("the node");
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let one = all.into_iter().find(|one| one["type"] == "Upgraded").unwrap_or_default();
    let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

fn wait_condition(cluster: &Cluster, node: &EdgeNode, status: &str, message: &str) {
    until(Duration::from_secs(40), "the condition Upgraded", || match condition(cluster, node) {
        (is, says) if is == status && says.contains(message) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn s18_a_good_version_stays_and_the_one_before_can_come_back() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("upgrade");
    let (node, installed) = set_up(&cluster, 3);
    let containers = node.container_pids();
    assert_eq!(containers.len(), 3);
    let bundle = Bundle::good(cluster.folder(), "one");
    let said = node.edge(&["upgrade", &bundle.path(), "--trial", "10"]).expect("it stays");
    assert!(said.contains("is in force"), "{said}");
    assert!(installed.program().starts_with(node.root().join("var/lib/edge-runtime/versions")), "{said}");
    assert_eq!(node.container_pids(), containers);
    wait_condition(&cluster, &node, "True", "is in force");
    // Repeating the upgrade does nothing.
    let again = node.edge(&["upgrade", &bundle.path(), "--trial", "10"]).unwrap_err();
    assert!(again.contains("in force already"), "{again}");
    let second = Bundle::good(cluster.folder(), "two");
    node.edge(&["upgrade", &second.path(), "--trial", "10"]).expect("it stays");
    node.edge(&["upgrade", "--back", "--trial", "10"]).expect("it stays");
    let state = node.edge_ok(&["upgrade", "--status", "--json"]);
    let state: Value = serde_json::from_str(&state).expect("JSON");
    assert!(state["current"].as_str().is_some_and(|name| installed.program().to_string_lossy().contains(name)));
    assert_eq!(node.container_pids(), containers, "nothing of it touches a container");
    // A user confirms before the end of the trial.
    let before = installed.program();
    let third = Bundle::good(cluster.folder(), "three");
    node.edge_ok(&["upgrade", &third.path(), "--trial", "60", "--no-wait"]);
    let said = node.edge_ok(&["upgrade", "--back"]);
    assert!(said.contains("the trial is over"), "{said}");
    installed.wait_program(&before);
    installed.wait_outcome(&node, false, "by hand");
    node.wait_ready();
    assert_eq!(node.container_pids(), containers);
    // Each of those daemons reported the running version.
    let told = node.edge_ok(&["events", "--for", "p0", "-o", "json"]);
    let started = told.lines().filter(|line| line.contains("\"Started\"")).count();
    assert_eq!(started, 1, "{told}");
    // A new pod gets everything from the current version.
    cluster.kubectl.apply_all(&[pod("later", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("later");
}

#[test]
fn s18_a_trial_without_the_link_that_was_there_before_goes_back() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("unlinked");
    let (node, installed) = set_up(&cluster, 1);
    node.wait_connected(&cluster);
    let (before, containers) = (installed.program(), node.container_pids());
    let bundle = Bundle::good(cluster.folder(), "one");
    node.edge_ok(&["upgrade", &bundle.path(), "--trial", "20", "--no-wait"]);
    cluster.kill_bridge();
    installed.wait_outcome(&node, false, "link");
    installed.wait_program(&before);
    // A node that was not connected before need not be connected afterwards.
    let second = Bundle::good(cluster.folder(), "two");
    node.edge(&["upgrade", &second.path(), "--trial", "10"]).expect("it stays");
    assert_eq!(node.container_pids(), containers);
    cluster.start_bridge();
    wait_condition(&cluster, &node, "True", "is in force");
}
