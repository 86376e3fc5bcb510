//! Containers that are added later: `pods/ephemeralcontainers`, as `kubectl debug` uses it
//! (test/e2e/common/node/ephemeral_containers.go).

use sampan_tests::kubectl::is_ready;
use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::{Cluster, Kubectl, can_run};
use serde_json::{Value, json};

/// Puts the list; returns the pod.
fn put(cluster: &Cluster, kubectl: &Kubectl, name: &str, list: &Value) -> Result<Value, String> {
    let mut pod = kubectl.get("pod", name)?;
    pod["spec"]["ephemeralContainers"] = list.clone();
    // The node may change the pod meanwhile.
    pod["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    let file = cluster.folder().join("ephemeral.json");
    std::fs::write(&file, pod.to_string()).expect("a file");
    let path = format!("/api/v1/namespaces/{}/pods/{name}/ephemeralcontainers", kubectl.namespace);
    let answer = kubectl.run(&["replace", "--raw", &path, "-f", file.to_str().expect("a path")])?;
    serde_json::from_str(&answer).map_err(|error| error.to_string())
}

fn ephemeral(pod: &Value, name: &str) -> Value {
    let all = pod["status"]["ephemeralContainerStatuses"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["name"] == name).unwrap_or(Value::Null)
}

#[test]
fn a_pod_that_runs_is_given_another_container() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("debug");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[pod("app", &node.name, json!([shell("c", "exec sleep 10007")]))]);
    let before = kubectl.wait_ready("app");
    assert_eq!(before["metadata"]["generation"], 1);

    let seeing = with(
        shell("seeing", "echo marco; ps -o args; trap 'exit 0' TERM; while :; do sleep 0.1; done"),
        &json!({"targetContainerName": "c"}),
    );
    let short = shell("short", "ps -o args; exit 3");
    let put_one = put(&cluster, kubectl, "app", &json!([seeing])).expect("taken");
    assert_eq!(put_one["metadata"]["generation"], 2, "{put_one}");
    kubectl.wait_pod("app", 20, "the debugger runs", |pod| ephemeral(pod, "seeing")["state"]["running"].is_object());
    let stored = kubectl.get("pod", "app").expect("a pod")["spec"]["ephemeralContainers"].clone();
    let both = json!([stored[0], short]);
    assert_eq!(put(&cluster, kubectl, "app", &both).expect("taken")["metadata"]["generation"], 3);
    let pod = kubectl.wait_pod("app", 20, "the short one has ended", |pod| {
        ephemeral(pod, "short")["state"]["terminated"]["exitCode"] == 3
    });
    assert!(is_ready(&pod) && pod["status"]["phase"] == "Running", "{}", pod["status"]);
    assert_eq!(ephemeral(&pod, "seeing")["ready"], false);

    let seen = kubectl.wait_log_of("app", "seeing", "ps -o args");
    assert!(seen.contains("marco") && seen.contains("sleep 10007"), "it sees its target's processes: {seen}");
    let seen = kubectl.ok(&["logs", "app", "-c", "short"]);
    assert!(!seen.contains("sleep 10007"), "without a target it sees its own: {seen}");

    let refused = put(&cluster, kubectl, "app", &json!([stored[0]])).expect_err("one is missing");
    assert!(refused.contains("may not be removed"), "{refused}");
    let _ = kubectl.ok(&["delete", "pod", "app", "--wait=false"]);
    kubectl.wait_gone("pod", "app", 15);
    node.wait_no_container();
}
