//! Images as volumes (K8s test/e2e/common/node/image_volume.go, test/e2e_node/image_volume.go).

use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::node::BUSYBOX;
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

use crate::log_until;

fn reason(pod: &Value) -> &str {
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or_default()
}

#[test]
fn an_image_is_a_volume() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("images");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let with_image = |name: &str, reference: &str, policy: &str, script: &str, mounts: Value| {
        let container = with(shell("c", script), &json!({ "volumeMounts": mounts }));
        let volumes = json!([{"name": "v", "image": {"reference": reference, "pullPolicy": policy}}]);
        with_spec(
            pod(name, &node.name, json!([container])),
            &json!({"volumes": volumes, "securityContext": {"fsGroup": 123}}),
        )
    };
    let script = "ls /v/bin/busybox; touch /v/f 2>/dev/null || echo read-only; ls /sub/busybox; touch /sub/f \
        2>/dev/null || echo read-only; [ -e /v/etc/hosts ] || echo bare; echo end; exec sleep 1000";
    let both = json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/sub", "subPath": "bin"}]);
    let plain = json!([{"name": "v", "mountPath": "/v"}]);
    let absent = json!([{"name": "v", "mountPath": "/v", "subPath": "not/there"}]);
    let nowhere = "127.0.0.1:9/no/such:1";
    let wait = "exec sleep 1000";
    kubectl.apply_all(&[
        with_image("image", BUSYBOX, "IfNotPresent", script, both),
        with_image("lacks", nowhere, "IfNotPresent", wait, plain.clone()),
        with_image("never", nowhere, "Never", wait, plain),
        with_image("subpath", BUSYBOX, "Never", wait, absent),
        with_image("unused", nowhere, "IfNotPresent", wait, json!([])),
    ]);
    let wanted = "/v/bin/busybox\nread-only\n/sub/busybox\nread-only\n";
    kubectl.wait_ready("image");
    assert!(log_until(kubectl, "image", "end").starts_with(wanted));
    kubectl.wait_ready("unused");
    kubectl.wait_pod("lacks", 30, "has no volume", |pod| reason(pod) == "ImagePullBackOff");
    kubectl.wait_pod("never", 30, "may not pull", |pod| reason(pod) == "ErrImageNeverPull");
    let pod = kubectl.wait_pod("subpath", 30, "finds no path", |pod| reason(pod) == "CreateContainerError");
    assert!(pod["status"].to_string().contains("ImageVolumeMountFailed"), "{}", pod["status"]);

    // The daemon dies, and then a container: the mounts stay.
    node.kill();
    node.start();
    node.wait_ready();
    node.wait_connected(&cluster);
    for pid in node.container_pids().values() {
        let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
    kubectl.wait_pod("image", 30, "runs again", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
    assert!(log_until(kubectl, "image", "end").starts_with(wanted));
    let _ = kubectl.ok(&["delete", "pod", "--all", "--wait=false"]);
    for name in ["image", "lacks", "never", "subpath", "unused"] {
        kubectl.wait_gone("pod", name, 30);
    }
    until(Duration::from_secs(10), "no mount of an image is left", || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = node.root().display().to_string();
        match mounts.lines().find(|line| line.contains(&root) && line.contains("/images/")) {
            Some(line) => Err(line.to_owned()),
            None => Ok(()),
        }
    });
}
