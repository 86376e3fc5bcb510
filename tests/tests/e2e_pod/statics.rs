//! Static pods: from a manifest file on the node to a mirror pod in the API, and back.

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
use serde_json::json;

#[test]
fn a_static_pod_lives_by_its_file_alone() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("static");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let manifests = node.root().join("etc/edge-runtime/manifests");
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    // A stop signal in the manifest: API servers drop it by default (feature ContainerStopSignals), a file keeps it.
    let script = "trap 'echo usr2 >/notes/end; exit 0' USR2; echo static; while :; do sleep 0.1; done";
    let container = with(
        shell("c", script),
        &json!({"lifecycle": {"stopSignal": "SIGUSR2"}, "volumeMounts": [{"name": "notes", "mountPath": "/notes"}]}),
    );
    let more =
        json!({"os": {"name": "linux"}, "terminationGracePeriodSeconds": 10, "volumes": [host_path("notes", &notes)]});
    let mut manifest = with_spec(pod("agent", "", json!([container])), &more);
    manifest["metadata"]["namespace"] = json!(kubectl.namespace);
    manifest["spec"].as_object_mut().expect("a spec").remove("nodeName");
    std::fs::write(manifests.join("agent.yaml"), manifest.to_string()).expect("written");

    let name = format!("agent-{}", node.name);
    let mirror = kubectl.wait_ready(&name);
    let annotations = &mirror["metadata"]["annotations"];
    assert!(annotations["kubernetes.io/config.mirror"].is_string(), "{annotations}");
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");
    kubectl.wait_log(&name, "static");
    let pids = node.container_pids();

    let _ = kubectl.ok(&["delete", "pod", &name, "--wait=false", "--grace-period=0", "--force"]);
    kubectl.wait_pod(&name, 20, "is back", |pod| {
        pod["metadata"]["uid"] != mirror["metadata"]["uid"] && pod["status"]["phase"] == "Running"
    });
    assert_eq!(node.container_pids(), pids, "the container never noticed");

    std::fs::remove_file(manifests.join("agent.yaml")).expect("removed");
    kubectl.wait_gone("pod", &name, 20);
    assert!(node.container_pids().is_empty(), "the mirror outlives the container");
    assert_eq!(std::fs::read_to_string(notes.join("end")).ok().as_deref(), Some("usr2\n"));

    // A mirror pod of an earlier installation of a node with this name.
    let mut left = pod("left", &node.name, json!([shell("c", "exec sleep 1000")]));
    left["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "0123", "kubernetes.io/config.hash": "0123",
        "kubernetes.io/config.source": "file"});
    kubectl.apply_all(&[left]);
    kubectl.wait_gone("pod", "left", 20);
}
