//! A pod from `kubectl apply` to its end, as a user sees it.

use sampan_tests::node::BUSYBOX;
use sampan_tests::{Cluster, can_run};

fn pod(name: &str, node: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 1\n{spec}"
    )
}

#[test]
fn a_pod_runs_logs_and_goes() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("road");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let spec = format!(
        "  containers:\n  - name: c\n    image: {BUSYBOX}\n    imagePullPolicy: Never\n    command: [sh, -c, 'echo hello; exec sleep 1000']\n"
    );
    kubectl.apply(&pod("hello", &node.name, &spec));
    let ready = kubectl.wait_ready("hello");
    assert_eq!(ready["status"]["phase"], "Running");
    let status = &ready["status"]["containerStatuses"][0];
    assert!(status["containerID"].as_str().is_some_and(|id| id.starts_with("runc://")), "{status}");
    assert_eq!(status["restartCount"], 0);
    assert_eq!(kubectl.ok(&["logs", "hello"]), "hello\n");
    let _ = kubectl.ok(&["delete", "pod", "hello", "--wait=false"]);
    kubectl.wait_gone("pod", "hello", 15);
    assert!(node.container_pids().is_empty());
}
