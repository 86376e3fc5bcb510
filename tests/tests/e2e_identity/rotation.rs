//! Certificates with a lifetime of seconds.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

use crate::{join_again, processes, wait_log, wait_running};

/// Long enough for a busy host to renew it in time, and short enough to wait for.
const LIFE: u64 = 20;

fn identity(node: &EdgeNode) -> std::path::PathBuf {
    node.root().join("var/lib/edge-runtime/identity/identity.json")
}

#[test]
fn g24_no_pod_is_lost_when_certificates_are_renewed_or_expire() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start_with("rotation", &["--certificate-life", &format!("{LIFE}s")]);
    let mut node = cluster.node("edge");
    cluster.kubectl.apply_all(&[pod("stays", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("stays");
    let before = wait_running(&node, 1);

    let text = || std::fs::read_to_string(identity(&node)).expect("an identity");
    let first = text();
    until(Duration::from_secs(LIFE + 10), "the identity is another", || {
        if text() == first { Err(node.log()) } else { Ok(()) }
    });
    let mode = std::fs::metadata(identity(&node)).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the new key is as private as the old");
    // The connection outlives the first certificate, because it has the second.
    let ended = format!("node {}: connection", node.name);
    until(Duration::from_secs(LIFE + 10), "the first certificate ends", || {
        let log = cluster.log();
        if log.lines().any(|line| line.contains(&ended) && line.contains("certificate")) { Ok(()) } else { Err(log) }
    });
    node.wait_connected(&cluster);
    assert!(!node.log().contains("refused this node"), "{}", node.log());
    assert_eq!(processes(&node), before);

    // Offline for longer than its certificate is valid: it is refused with a reason, and keeps its pod.
    node.kill();
    std::thread::sleep(Duration::from_secs(LIFE + 1));
    let seen = node.log().len();
    node.start();
    wait_log(&node, seen, 30, "join again with a fresh token");
    assert_eq!(processes(&node), before);
    join_again(&cluster, &node);
    node.wait_connected(&cluster);
    assert_eq!(processes(&node), before, "no container was touched");
    let pod = cluster.kubectl.wait_ready("stays");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}
