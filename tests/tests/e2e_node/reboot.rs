//! A power cut of the board: nothing runs any more, and the kernel has another boot id.

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
use serde_json::json;

#[test]
fn a_reboot_begins_pods_anew_and_says_so() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("reboot");
    let mut node = cluster.node("edge");
    let name = node.name.clone();
    let kubectl = &cluster.kubectl;
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    let mounts = json!({"volumeMounts": [{"name": "notes", "mountPath": "/notes"}]});
    let init = with(shell("first", "echo init >>/notes/order"), &mounts);
    let main = with(shell("c", "echo main >>/notes/order; exec sleep 1000"), &mounts);
    let more = json!({"initContainers": [init], "volumes": [host_path("notes", &notes)]});
    kubectl.apply_all(&[with_spec(pod("lives-on", &name, json!([main])), &more)]);
    let before = kubectl.wait_ready("lives-on");
    assert_eq!(kubectl.wait_event(&name, "Starting"), "Starting edge-runtime.");

    node.cut_power(cluster.folder());
    node.start();
    let after = kubectl.wait_pod("lives-on", 40, "runs again", |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == 1 && sampan_tests::kubectl::is_ready(pod)
    });
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["status"]["startTime"], before["status"]["startTime"]);
    let last = &after["status"]["containerStatuses"][0]["lastState"]["terminated"];
    // As with containerd: its exit status is unknown.
    assert_eq!((&last["exitCode"], &last["reason"]), (&json!(255), &json!("Unknown")), "{last}");
    // Init containers run again with a new sandbox (K8s pkg/kubelet/kuberuntime, `computePodActions`).
    assert_eq!(std::fs::read_to_string(notes.join("order")).expect("notes"), "init\nmain\ninit\nmain\n");
    let text = kubectl.wait_event("lives-on", "SandboxChanged");
    assert_eq!(text, "Pod sandbox changed, it will be killed and re-created.");
    let text = kubectl.wait_event(&name, "Rebooted");
    let boot = "5bd3e2d8-6b6a-4b8e-9d53-5f7a9b1c2d3e";
    assert_eq!(text, format!("Node {name} has been rebooted, boot id: {boot}"));
    let object = node.wait_ready();
    assert_eq!(object["status"]["nodeInfo"]["bootID"], boot);
}
