//! Static pods: from a manifest file on the node to a mirror pod in the API, and back.

use sampan_tests::manifest::{pod, shell};
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
    let mut manifest = pod("agent", "", json!([shell("c", "echo static; exec sleep 1000")]));
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

    // One that was left by a node of this name before it was installed anew.
    let mut left = pod("left", &node.name, json!([shell("c", "exec sleep 1000")]));
    left["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "0123", "kubernetes.io/config.hash": "0123",
        "kubernetes.io/config.source": "file"});
    kubectl.apply_all(&[left]);
    kubectl.wait_gone("pod", "left", 20);
}
