//! persistentVolumeClaims bound to folders of the node.

use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use crate::{log_until, mounts};

#[test]
fn a_claim_waits_for_its_volume_and_data_outlive_the_pod() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("claims");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let folder = cluster.folder().join("disk");
    std::fs::create_dir(&folder).expect("a folder");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Mi"}}}});
    let user = |name: &str| {
        let script = "cat /data/f 2>/dev/null; echo kept >/data/f; echo end; exec sleep 1000";
        let container = with(shell("c", script), &mounts(&[("v", "/data")]));
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
        with_spec(pod(name, &node.name, json!([container])), &json!({ "volumes": volumes }))
    };
    kubectl.apply_all(&[claim, user("first")]);
    until(Duration::from_secs(10), "an event says that the claim is not bound", || {
        let events = kubectl.run(&["get", "events"])?;
        if events.contains("FailedMount") && events.contains("PVC is not bound") { Ok(()) } else { Err(events) }
    });
    let name = format!("pv-{}", kubectl.namespace);
    kubectl.apply_all(&[json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": folder},
            "claimRef": {"namespace": kubectl.namespace, "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}]}]}}}})]);
    kubectl.wait_ready("first");
    let _ = kubectl.ok(&["delete", "pod", "first", "--wait=false"]);
    kubectl.wait_gone("pod", "first", 20);
    kubectl.apply_all(&[user("second")]);
    kubectl.wait_ready("second");
    assert_eq!(log_until(kubectl, "second", "end"), "kept\nend\n");
    assert_eq!(std::fs::read_to_string(folder.join("f")).expect("on the node"), "kept\n");

    // The pod's group owns every file; with OnRootMismatch only if the volume's own folder has another group or mode
    // (K8s pkg/volume/volume_linux.go).
    let file = folder.join("f");
    let group = || std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(&file).expect("on the node"));
    let of_group = |name: &str, policy: &str| {
        let _ = kubectl.ok(&["delete", "pods", "--all", "--wait=false"]);
        kubectl.apply_all(&[with_spec(
            user(name),
            &json!({"securityContext": {"fsGroup": 4321, "fsGroupChangePolicy": policy}}),
        )]);
        kubectl.wait_ready(name);
        log_until(kubectl, name, "end");
    };
    assert_eq!(group(), 0);
    of_group("takes", "OnRootMismatch");
    assert_eq!(group(), 4321, "the folder was root's");
    std::os::unix::fs::chown(&file, None, Some(99)).expect("changed");
    of_group("leaves", "OnRootMismatch");
    assert_eq!(group(), 99, "the folder is right already");
    of_group("takes-all", "Always");
    assert_eq!(group(), 4321);
    let _ = kubectl.ok(&["delete", "pv", &name, "--wait=false"]);
}
