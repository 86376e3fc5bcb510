//! A pod from `kubectl apply` to its end, as a user sees it.

mod configured;
mod containers;
mod cpus;
mod end;
mod env;
mod holds;
mod host;
mod limits;
mod logs;
mod network;
mod probes;
mod refusals;
mod statics;
mod volumes;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, can_run};
use serde_json::{Value, json};

/// Status of the container `name`, init containers included.
fn status(pod: &Value, name: &str) -> Value {
    let of = |list: &str| pod["status"][list].as_array().cloned().unwrap_or_default();
    let all = of("containerStatuses").into_iter().chain(of("initContainerStatuses"));
    all.into_iter().find(|one| one["name"] == name).unwrap_or(Value::Null)
}

#[test]
fn a_pod_runs_logs_and_goes() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("road");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[pod("hello", &node.name, json!([shell("c", "echo hello; exec sleep 1000")]))]);
    let ready = kubectl.wait_ready("hello");
    assert_eq!(ready["status"]["phase"], "Running");
    let status = status(&ready, "c");
    let runtime = format!("{}://", sampan_tests::node::oci_runtime());
    assert!(status["containerID"].as_str().is_some_and(|id| id.starts_with(&runtime)), "{status}");
    assert_eq!(status["restartCount"], 0);
    assert_eq!(kubectl.ok(&["logs", "hello"]), "hello\n");
    let _ = kubectl.ok(&["delete", "pod", "hello", "--wait=false"]);
    kubectl.wait_gone("pod", "hello", 15);
    assert!(node.container_pids().is_empty());
}
