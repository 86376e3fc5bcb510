//! `cloud-bridge backup` and `cloud-bridge restore`, with a node that is connected.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::process::{binary, start_time};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

/// Pid and start time of every container: the same pair is the same process.
fn processes(node: &EdgeNode) -> BTreeMap<String, (u32, Option<u64>)> {
    node.container_pids().into_iter().map(|(id, pid)| (id, (pid, start_time(pid)))).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn done(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.command(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

fn refused(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.command(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output));
    text(&output)
}

#[test]
fn restored_bridge_keeps_nodes_and_deletions_and_ends_no_pod() {
    if !can_run() || std::env::var_os("TEST_KUBECONFIG").is_some() {
        return;
    }
    let mut cluster = Cluster::start("backup");
    let node = cluster.node("edge");
    let running = |name: &str| pod(name, &node.name, json!([shell("c", "exec sleep 1000")]));
    cluster
        .kubectl
        .apply_all(&[running("early"), json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost"}})]);
    cluster.kubectl.wait_ready("early");
    let file = cluster.folder().join("bridge.backup");
    let file = file.to_str().expect("a text");
    assert!(done(&cluster, &["backup", file]).contains("with 2 nodes"));

    cluster.kubectl.apply_all(&[running("late")]);
    cluster.kubectl.wait_ready("late");
    let _ = cluster.kubectl.ok(&["delete", "node", "lost"]);
    let before = processes(&node);
    assert_eq!(before.len(), 2, "{before:?}");
    assert!(refused(&cluster, &["restore", file, "--yes"]).contains("stop it first"));

    cluster.kill_bridge();
    let asked = refused(&cluster, &["restore", file]);
    assert!(asked.contains("do not come back") && asked.contains("nothing was changed"), "{asked}");
    let told = done(&cluster, &["restore", file, "--yes"]);
    assert!(told.contains("--restore") && told.contains("replaced-"), "{told}");
    let state = cluster.folder().join("bridge");
    let output = Command::new(binary("cloud-bridge")).arg("standalone").arg("--state").arg(&state).output();
    let output = output.expect("cloud-bridge starts");
    assert!(!output.status.success() && text(&output).contains("start with --restore"), "{}", text(&output));

    // The API has the earlier objects; the node keeps what is missing there until the bridge calls its lists complete.
    cluster.flags.push("--restore".to_owned());
    cluster.start_bridge();
    node.wait_connected(&cluster);
    cluster.kubectl.wait_ready("early");
    assert!(cluster.kubectl.get("pod", "late").is_err() && cluster.kubectl.get("node", "lost").is_err());
    assert_eq!(processes(&node), before);
    cluster.kill_bridge();
    cluster.flags.clear();
    cluster.start_bridge();
    node.wait_connected(&cluster);
    let left = until(Duration::from_secs(60), "the pod that is not in the API ends", || {
        let now = processes(&node);
        if now.len() == 1 { Ok(now) } else { Err(node.log()) }
    });
    assert!(left.iter().all(|(id, process)| before.get(id) == Some(process)), "{left:?} {before:?}");

    // The machine is lost: all that is left is the file.
    cluster.kill_bridge();
    std::fs::remove_dir_all(&state).expect("removed");
    let asked = refused(&cluster, &["restore", file]);
    assert!(asked.contains("2 nodes come back: ") && asked.contains("lost"), "{asked}");
    let _ = done(&cluster, &["restore", file, "--yes"]);
    cluster.flags.push("--restore".to_owned());
    cluster.start_bridge();
    node.wait_connected(&cluster);
    cluster.kubectl.wait_ready("early");
    assert_eq!(processes(&node), left, "it knows the authority, and restarts nothing");
}
