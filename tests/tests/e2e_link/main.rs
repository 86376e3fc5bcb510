//! Guarantees of the link on a bad network: G1, G2, G7, G13 to G18 of the list of guarantees, with real binaries over
//! connections that are cut, silent, slow or lossy.
//!
//! `TEST_LINK_LONG=SECONDS` sets how long the changes of `changes.rs` run instead of half a minute.

mod changes;
mod cost;
mod narrow;
mod silence;
mod uplinks;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use sampan_tests::{Cluster, EdgeNode, Kubectl, until};
use serde_json::Value;

/// A node behind `bridge` (a URL), Ready.
fn node_behind(cluster: &Cluster, name: &str, bridge: &str) -> EdgeNode {
    let mut node = EdgeNode::prepare_behind(cluster, &format!("{name}-{}", cluster.kubectl.namespace), bridge, None);
    node.start();
    node.wait_ready();
    node
}

/// Status of a node's Ready condition.
fn ready(kubectl: &Kubectl, node: &str) -> Result<String, String> {
    let node = kubectl.get("node", node)?;
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|one| one["type"] == "Ready");
    ready.and_then(|one| one["status"].as_str()).map(str::to_owned).ok_or_else(|| node["status"].to_string())
}

/// Connections of the node that the bridge has logged.
fn connections(cluster: &Cluster, node: &EdgeNode) -> usize {
    cluster.log().matches(&format!("node {}: connected", node.name)).count()
}

/// Waits until the node has connected once more than `before` times; returns how long that took.
fn reconnected(cluster: &Cluster, node: &EdgeNode, before: usize, within: Duration) -> Duration {
    let start = Instant::now();
    until(within, "the node is connected again", || match connections(cluster, node) {
        now if now > before => Ok(()),
        _ => Err(node.log().lines().rev().take(5).collect::<Vec<_>>().join("; ")),
    });
    start.elapsed()
}

/// kubectl in the background, its output discarded.
struct Background(Child);

impl Background {
    fn start(kubectl: &Kubectl, args: &[&str]) -> Self {
        let mut command = kubectl.command(args);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("kubectl starts"))
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Process of the pod's only container, on the host.
fn container_pid(node: &EdgeNode, pod: &Value) -> u32 {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
    let id = id.rsplit('/').next().unwrap_or_default();
    node.container_pids().get(id).copied().unwrap_or_else(|| panic!("no process of {id}: {}", pod["status"]))
}

/// A field of `/proc/PID/status` in KiB.
fn memory_kib(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim_matches([':', ' ', '\t']).split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Prints a figure for the reader of the log.
fn tell(text: &str) {
    use std::io::Write;
    // There is nothing to do if stderr is closed.
    let _ = writeln!(std::io::stderr(), "measured: {text}");
}
