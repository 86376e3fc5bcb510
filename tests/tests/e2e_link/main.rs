//! What the link promises when the network is bad: G1, G2, G7, G13 to G15 of the list of guarantees, with real binaries
//! over connections that are cut, silent, slow or lossy.
//!
//! `TEST_LINK_LONG=SECONDS` runs the changes of `changes.rs` for so long instead of half a minute.

mod changes;
mod cost;
mod uplinks;

use std::time::{Duration, Instant};

use sampan_tests::{Cluster, EdgeNode, until};
use serde_json::Value;

/// A node behind `bridge` (a URL), Ready.
fn node_behind(cluster: &Cluster, name: &str, bridge: &str) -> EdgeNode {
    let mut node = EdgeNode::prepare_behind(cluster, &format!("{name}-{}", cluster.kubectl.namespace), bridge, None);
    node.start();
    node.wait_ready();
    node
}

/// Connections of the node that the bridge has logged.
fn connections(cluster: &Cluster, node: &EdgeNode) -> usize {
    cluster.log().matches(&format!("node {}: connected", node.name)).count()
}

/// Waits until the node has connected once more than `before` times; gives how long that took.
fn reconnected(cluster: &Cluster, node: &EdgeNode, before: usize, within: Duration) -> Duration {
    let start = Instant::now();
    until(within, "the node is connected again", || match connections(cluster, node) {
        now if now > before => Ok(()),
        _ => Err(node.log().lines().rev().take(5).collect::<Vec<_>>().join("; ")),
    });
    start.elapsed()
}

/// Process of the pod's only container, on the host.
fn container_pid(node: &EdgeNode, pod: &Value) -> u32 {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
    let id = id.rsplit('/').next().unwrap_or_default();
    node.container_pids().get(id).copied().unwrap_or_else(|| panic!("no process of {id}: {}", pod["status"]))
}

/// A figure for whoever reads the run.
fn tell(text: &str) {
    use std::io::Write;
    // Only for a reader: nothing to do when stderr is gone.
    let _ = writeln!(std::io::stderr(), "measured: {text}");
}
