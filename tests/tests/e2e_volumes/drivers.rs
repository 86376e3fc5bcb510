//! Volumes of CSI drivers and ephemeral volumes on a standalone site, as far as the API and its controllers go.

use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with_spec};
use sampan_tests::{Cluster, Kubectl, can_run, until};
use serde_json::{Value, json};

const DRIVER: &str = "disks.example.com";

fn attachment(kubectl: &Kubectl) -> Result<Value, String> {
    let text = kubectl.run(&["get", "volumeattachments", "-o", "json"])?;
    let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    list["items"].as_array().and_then(|items| items.first()).cloned().ok_or_else(|| "none".to_owned())
}

#[test]
fn volume_of_a_driver_is_attached_to_the_node_of_its_pod() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("drivers");
    if cluster.api_address().is_none() {
        return;
    }
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": ""});
    let mut claim =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec});
    claim["spec"]["resources"] = json!({"requests": {"storage": "1Gi"}});
    claim["spec"]["volumeName"] = "disk".into();
    let mut volume =
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": spec});
    volume["spec"]["capacity"] = json!({"storage": "1Gi"});
    volume["spec"]["csi"] = json!({"driver": DRIVER, "volumeHandle": "h"});
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"storageCapacity": true}});
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let user = with_spec(pod("user", &node.name, json!([shell("c", "sleep 1000")])), &json!({ "volumes": volumes }));
    kubectl.apply_all(&[driver, volume, claim, user]);

    let table = kubectl.ok(&["get", "csidrivers"]);
    let words: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(words[..7], [DRIVER, "true", "false", "true", "<unset>", "false", "Persistent"], "{table}");
    let made = until(Duration::from_secs(20), "an attachment is made", || attachment(kubectl));
    let name = made["metadata"]["name"].as_str().expect("a name");
    let table = kubectl.ok(&["get", "volumeattachments"]);
    let words: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(words[..5], [name, DRIVER, "disk", node.name.as_str(), "false"], "{table}");

    let status = r#"{"status": {"attached": true}}"#;
    let _ = kubectl.ok(&["patch", "volumeattachment", name, "--subresource=status", "--type=merge", "-p", status]);
    kubectl.wait_event("user", "SuccessfulAttachVolume");
    until(Duration::from_secs(20), "the Node lists the volume", || {
        let status = kubectl.get("node", &node.name)?["status"].take();
        let listed = status["volumesAttached"][0]["name"] == format!("kubernetes.io/csi/{DRIVER}^h");
        if listed { Ok(()) } else { Err(status["volumesAttached"].to_string()) }
    });
    let _ = kubectl.ok(&["delete", "pod", "user", "--wait=false"]);
    kubectl.wait_gone("volumeattachment", name, 60);
    let _ = kubectl.ok(&["delete", "csidriver", DRIVER]);
}

#[test]
fn claim_of_an_ephemeral_volume_comes_and_goes_with_its_pod() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("ephemeral");
    if cluster.api_address().is_none() {
        return;
    }
    let _node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let template = json!({"metadata": {"labels": {"app": "scratch"}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}}}});
    let user = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"}, "spec": {
        "terminationGracePeriodSeconds": 1, "containers": [shell("c", "sleep 1000")],
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}});
    kubectl.apply_all(&[user]);
    let claim = until(Duration::from_secs(30), "its claim is bound", || {
        let claim = kubectl.get("persistentvolumeclaim", "user-scratch")?;
        if claim["status"]["phase"] == "Bound" { Ok(claim) } else { Err(claim["status"].to_string()) }
    });
    assert_eq!(claim["metadata"]["labels"]["app"], "scratch");
    let owner = kubectl.wait_pod("user", 20, "is scheduled", |pod| pod["spec"]["nodeName"].is_string());
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
    let _ = kubectl.ok(&["delete", "pod", "user", "--wait=false"]);
    kubectl.wait_gone("persistentvolumeclaim", "user-scratch", 60);
}
