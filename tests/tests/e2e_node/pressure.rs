//! Low memory: which pods are admitted and which are evicted.

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;
use std::time::Duration;

use crate::{NO_DISK, condition, configure, node_with, pod_condition};

#[test]
fn memory_pressure_evicts_and_refuses() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("memory");
    // No host has this much: the node is under pressure from the start.
    let node = node_with(&cluster, "edge", &format!("eviction: {{hard: {{memory.available: 100%, {NO_DISK}}}}}\n"));
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let manifests = node.root().join("etc/edge-runtime/manifests");
    let vital = with(
        pod("vital", on, json!([shell("c", "exec sleep 1000")])),
        &json!({"metadata": {"name": "vital", "namespace": kubectl.namespace}}),
    );
    std::fs::write(manifests.join("vital.yaml"), vital.to_string()).expect("written");
    let vital = format!("vital-{on}");
    kubectl.wait_ready(&vital);

    let seen = until(Duration::from_secs(20), "memory pressure", || {
        let node = kubectl.get("node", on)?;
        let one = condition(&node, "MemoryPressure");
        if one["status"] == "True" { Ok(one) } else { Err(one.to_string()) }
    });
    assert_eq!(seen["reason"], "KubeletHasInsufficientMemory");
    kubectl.wait_event(on, "NodeHasInsufficientMemory");

    let asks = with(shell("c", "exec sleep 1000"), &json!({"resources": {"requests": {"cpu": "1m"}}}));
    kubectl.apply_all(&[
        pod("best-effort", on, json!([shell("c", "exec sleep 1000")])),
        pod("burstable", on, json!([asks])),
    ]);
    let refused = kubectl.wait_phase("best-effort", "Failed");
    assert_eq!(refused["status"]["reason"], "Evicted");
    assert_eq!(refused["status"]["message"], "Pod was rejected: The node had condition: [MemoryPressure]. ");

    let evicted = kubectl.wait_phase("burstable", "Failed");
    let status = &evicted["status"];
    assert_eq!(status["reason"], "Evicted");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: "), "{message}");
    let target = pod_condition(&evicted, "DisruptionTarget");
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("TerminationByKubelet")));
    kubectl.wait_event("burstable", "Evicted");
    kubectl.wait_event(on, "EvictionThresholdMet");
    // The critical pod is never evicted.
    kubectl.wait_ready(&vital);
}

#[test]
fn a_node_short_of_inodes_evicts_for_them() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("inodes");
    let mut node = node_with(&cluster, "edge", &format!("eviction: {{hard: {{memory.available: '0', {NO_DISK}}}}}\n"));
    let on = node.name.clone();
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[pod("goes", &on, json!([shell("c", "exec sleep 1000")]))]);
    kubectl.wait_ready("goes");
    node.kill();
    // No file system has this many free.
    let others = "memory.available: '0', nodefs.available: '0', imagefs.available: '0', imagefs.inodesFree: '0'";
    configure(&node, &format!("eviction: {{hard: {{nodefs.inodesFree: 100%, {others}}}}}\n"));
    node.start();
    let evicted = kubectl.wait_phase("goes", "Failed");
    assert_eq!(evicted["status"]["reason"], "Evicted");
    let message = evicted["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("The node was low on resource: inodes. Threshold quantity: "), "{message}");
    assert_eq!(pod_condition(&evicted, "DisruptionTarget")["reason"], "TerminationByKubelet");
    until(Duration::from_secs(20), "disk pressure", || {
        let one = condition(&kubectl.get("node", &on)?, "DiskPressure");
        if one["status"] == "True" { Ok(()) } else { Err(one.to_string()) }
    });
    kubectl.apply_all(&[pod("late", &on, json!([shell("c", "exec sleep 1000")]))]);
    let refused = kubectl.wait_phase("late", "Failed");
    assert_eq!(refused["status"]["message"], "Pod was rejected: The node had condition: [DiskPressure]. ");
}
