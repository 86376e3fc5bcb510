//! Pods whose containers see each other's processes.

use sampan_tests::manifest::{container_id, pod, shell, with_spec};
use sampan_tests::process::signal;
use sampan_tests::{Cluster, can_run};
use serde_json::json;

use crate::status;

#[test]
fn containers_share_their_processes() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("shared");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let wait = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let look = format!("until ps -o args | grep -q '[s]leep 10009'; do sleep 0.1; done; ps -o pid,args; {wait}");
    // With a token, which the start of the sandbox's process looks up like any other's.
    let token = json!({"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}});
    let shared = with_spec(
        // An orphan becomes a child of the namespace's first process.
        pod("shared", &node.name, json!([shell("a", "(sleep 10009 &); exec sleep 10011"), shell("b", &look)])),
        &json!({"shareProcessNamespace": true, "volumes": [token]}),
    );
    kubectl.apply_all(&[shared]);
    let ready = kubectl.wait_ready("shared");
    let seen = kubectl.wait_log_of("shared", "b", "sleep 10011");
    assert!(seen.lines().any(|line| line.trim_start().starts_with("1 ") && line.contains("pause")), "{seen}");
    let names: Vec<_> = ready["status"]["containerStatuses"].as_array().into_iter().flatten().collect();
    assert_eq!(names.len(), 2, "the holder of the namespace is not shown");

    // The daemon may die; if the namespace ends, the pod starts over.
    node.kill();
    node.start();
    node.wait_ready();
    let kept = kubectl.get("pod", "shared").expect("a pod");
    assert_eq!(status(&kept, "a")["restartCount"], 0);
    let ours: Vec<String> = ["a", "b"].map(|c| container_id(&status(&kept, c))).into();
    let pids = node.container_pids();
    let (_, holder) = pids.iter().find(|(id, _)| !ours.contains(id)).expect("a holder");
    signal(*holder, "KILL");
    kubectl.wait_pod("shared", 30, "is started over", |pod| {
        ["a", "b"].iter().all(|c| {
            let one = status(pod, c);
            one["restartCount"].as_u64() >= Some(1) && one["state"]["running"].is_object()
        })
    });
    let _ = kubectl.ok(&["delete", "pod", "shared", "--wait=false"]);
    kubectl.wait_gone("pod", "shared", 15);
    node.wait_no_container();
}
