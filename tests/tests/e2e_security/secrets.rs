//! Secrets that are never on the node's disk: the restrictions, and what still works.

use std::path::Path;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use crate::{node_with, status};

/// Files on the disk below `folder` that contain these bytes, without those of a tmpfs mounted there.
fn holding(folder: &Path, text: &str) -> String {
    let search = std::process::Command::new("find")
        .arg(folder)
        .args(["-xdev", "-type", "f", "-exec", "grep", "-laF", text, "{}", "+"])
        .output()
        .expect("find runs");
    String::from_utf8_lossy(&search.stdout).into_owned()
}

#[test]
fn g29_a_pod_waits_for_a_secret_that_is_in_memory_only() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("secrets");
    let mut node = node_with(&cluster, "security: {secrets-in-memory: true}");
    let kubectl = cluster.kubectl.clone();
    let _ = kubectl.ok(&["create", "secret", "generic", "s", "--from-literal=key=never-on-disk"]);
    let env = json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key", "optional": true}}}]);
    let script = "echo \"start $KEY $(cat /s/key)\"; exec sleep 1000";
    let container = with(shell("c", script), &json!({"env": env, "volumeMounts": [{"name": "s", "mountPath": "/s"}]}));
    let volumes = json!({"volumes": [{"name": "s", "secret": {"secretName": "s"}}]});
    let wanted = with_spec(pod("p", &node.name, json!([container])), &volumes);
    kubectl.apply_all(&[wanted]);
    kubectl.wait_ready("p");
    kubectl.wait_log("p", "start never-on-disk never-on-disk");
    let state = node.root().join("var/lib/edge-runtime");
    // The output of a container is not protected.
    let found = holding(&state, "bmV2ZXItb24tZGlzaw==");
    assert!(found.is_empty(), "on disk: {found}");

    // Without a bridge, after a restart of the daemon: the running container continues, but no other can start.
    let _ = node.restart_offline(&mut cluster);
    until(Duration::from_secs(30), "the reason is told at the node", || {
        let told = node.edge(&["inspect", "p"])?;
        if told.contains("kept in memory only") { Ok(()) } else { Err(told) }
    });
    assert!(node.container_pids().is_empty(), "nothing starts without its Secret");

    cluster.start_bridge();
    let again = kubectl
        .wait_pod("p", 60, "it runs again", |pod| status(pod)["restartCount"] == 1 && status(pod)["ready"] == true);
    assert_eq!(again["status"]["phase"], "Running");
    kubectl.wait_log("p", "start never-on-disk never-on-disk");
}
