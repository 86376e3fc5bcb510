//! Claims with volumes on the nodes of their pods: the default StorageClass of a site.

use std::time::Duration;

use sampan_tests::manifest::{shell, with};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

use crate::{log_until, mounts};

/// A single pod that is not root, with a volume.
fn database() -> Value {
    let script = "cat /data/f 2>/dev/null; echo kept >/data/f; echo end; exec sleep 1000";
    let container = with(shell("c", script), &mounts(&[("data", "/data")]));
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"terminationGracePeriodSeconds": 1, "securityContext": {"runAsUser": 1000},
                    "containers": [container]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}}}}],
        },
    })
}

fn volumes(node: &EdgeNode) -> Vec<String> {
    let folder = node.root().join("var/lib/edge-runtime/volumes");
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|one| one.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| !name.starts_with('.')).collect()
}

#[test]
fn a_volume_is_made_where_its_pod_is_and_goes_with_its_claim() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("provisioned");
    if cluster.api_address().is_none() {
        return;
    }
    let mut nodes = [cluster.node("one"), cluster.node("two")];
    let kubectl = &cluster.kubectl;
    let class = kubectl.get("storageclass", "sampan-local").expect("made at the start");
    assert_eq!(class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"], "true");
    kubectl.apply_all(&[
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "alone"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}),
        database(),
    ]);
    kubectl.wait_event("alone", "WaitForFirstConsumer");
    kubectl.wait_ready("db-0");
    assert_eq!(log_until(kubectl, "db-0", "end"), "end\n");
    for reason in ["ExternalProvisioning", "ProvisioningSucceeded"] {
        kubectl.wait_event("data-db-0", reason);
    }
    let place = |kubectl: &sampan_tests::Kubectl| {
        let pod = kubectl.get("pod", "db-0").expect("it is there");
        pod["spec"]["nodeName"].as_str().expect("placed").to_owned()
    };
    let home = place(kubectl);
    let claim = kubectl.get("persistentvolumeclaim", "data-db-0").expect("it is there");
    let volume = claim["spec"]["volumeName"].as_str().expect("bound").to_owned();
    let (of, other) = if nodes[0].name == home { (0, 1) } else { (1, 0) };
    assert_eq!((volumes(&nodes[of]), volumes(&nodes[other])), (vec![volume.clone()], Vec::new()));

    // The next pod of that name runs where its data is, though the other node has more space.
    let _ = kubectl.ok(&["delete", "pod", "db-0"]);
    kubectl.wait_pod("db-0", 60, "is Ready again", sampan_tests::kubectl::is_ready);
    assert_eq!((place(kubectl), log_until(kubectl, "db-0", "end")), (home.clone(), "kept\nend\n".to_owned()));

    // A claim in use is not deleted.
    let _ = kubectl.ok(&["delete", "pvc", "data-db-0", "--wait=false"]);
    let _ = kubectl.ok(&["delete", "pv", &volume, "--wait=false"]);
    std::thread::sleep(Duration::from_secs(1));
    for (kind, name) in [("persistentvolumeclaim", "data-db-0"), ("persistentvolume", &volume)] {
        let object = kubectl.get(kind, name).expect("it waits");
        assert!(!object["metadata"]["deletionTimestamp"].is_null(), "{object}");
    }
    let folder = nodes[of].root().join("var/lib/edge-runtime/volumes").join(&volume);
    // The deletion of this number of files takes several steps.
    (0..600).for_each(|i| std::fs::write(folder.join(i.to_string()), "x").expect("written"));

    // The deletion waits for a node that is offline.
    nodes[of].kill();
    let _ = kubectl.ok(&["delete", "statefulset", "db", "--wait=false"]);
    until(Duration::from_secs(20), "its pod is gone", || {
        let _ = kubectl.run(&["delete", "pod", "db-0", "--force", "--grace-period=0", "--wait=false"]);
        kubectl.get("pod", "db-0").map_or(Ok(()), |_| Err("it is there".to_owned()))
    });
    kubectl.wait_gone("persistentvolumeclaim", "data-db-0", 20);
    let why = kubectl.wait_event(&volume, "VolumeFailedDelete");
    assert!(why.contains("is not connected"), "{why}");
    assert!(folder.join("f").exists() && kubectl.get("persistentvolume", &volume).is_ok());
    nodes[of].start();
    kubectl.wait_gone("persistentvolume", &volume, 60);
    assert!(volumes(&nodes[of]).is_empty());
    let trash = nodes[of].root().join("var/lib/edge-runtime/volumes/.trash");
    until(Duration::from_secs(20), "its room is free", || {
        let left = std::fs::read_dir(&trash).into_iter().flatten().flatten().map(|one| one.file_name());
        let left: Vec<_> = left.filter(|name| name != ".lock").collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}
