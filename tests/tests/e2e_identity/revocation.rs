//! Revoked nodes: disconnected at once and permanently, without an effect on their running pods.

use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use crate::{join_again, processes, wait_log, wait_running};

#[test]
fn g28_pods_of_a_deleted_node_run_until_it_joins_again() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("revoked");
    let mut node = cluster.node("edge");
    cluster.kubectl.apply_all(&[pod("stays", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("stays");
    let before = wait_running(&node, 1);

    let seen = node.log().len();
    let _ = cluster.kubectl.ok(&["delete", "node", &node.name]);
    wait_log(&node, seen, 10, "join again with a fresh token");
    // A restart of the bridge or the daemon does not help.
    cluster.kill_bridge();
    cluster.start_bridge();
    node.kill();
    let seen = node.log().len();
    node.start();
    wait_log(&node, seen, 30, "join again with a fresh token");
    assert!(cluster.kubectl.get("node", &node.name).is_err(), "it did not register again");
    assert_eq!(processes(&node), before, "its pods run on");

    join_again(&cluster, &node);
    node.wait_ready();
    // A controller of the cluster may have deleted the pod with its node; otherwise it is the same.
    match cluster.kubectl.get("pod", "stays") {
        Ok(pod) if pod["metadata"]["deletionTimestamp"].is_null() => {
            assert_eq!(processes(&node), before);
            until(Duration::from_secs(30), "the pod is told again", || {
                let pod = cluster.kubectl.get("pod", "stays")?;
                let status = &pod["status"]["containerStatuses"][0];
                if status["ready"] == true && status["restartCount"] == 0 { Ok(()) } else { Err(pod.to_string()) }
            });
        }
        _ => node.wait_no_container(),
    }
}
