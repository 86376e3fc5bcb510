//! Shutdown and start of the machine.

use std::path::Path;
use std::process::Command;

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::process::{Process, binary, signal};
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};
use std::time::Duration;

use crate::{NO_DISK, condition, node_with, pod_condition};

/// A pod that writes to `folder` when it was asked to stop and when it did, a second later.
fn slow(name: &str, node: &str, folder: &Path) -> Value {
    stopping(name, node, folder, 1)
}

fn stopping(name: &str, node: &str, folder: &Path, seconds: u32) -> Value {
    let script = format!(
        "trap 'echo {name} asked >> /notes/all; sleep {seconds}; echo {name} gone >> /notes/all; exit 0' TERM; \
         touch /notes/{name}-up; while :; do sleep 0.1; done"
    );
    let mounts = json!({"volumeMounts": [{"name": "n", "mountPath": "/notes"}]});
    let more = json!({"volumes": [host_path("n", folder)], "terminationGracePeriodSeconds": 20});
    with_spec(pod(name, node, json!([with(shell("c", &script), &mounts)])), &more)
}

#[test]
fn pods_stop_in_order_and_go_on_at_the_next_start() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("shutdown");
    let mut node = node_with(&cluster, "edge", "");
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    let notes = cluster.folder().join("notes");
    std::fs::create_dir_all(&notes).expect("a folder");
    let class = json!({"priorityClassName": "system-node-critical"});
    let vital = with_spec(slow("vital", &on, &notes), &class);
    let vital = with(vital, &json!({"metadata": {"name": "vital", "namespace": kubectl.namespace}}));
    let manifests = node.root().join("etc/edge-runtime/manifests");
    std::fs::write(manifests.join("vital.yaml"), vital.to_string()).expect("written");
    kubectl.apply_all(&[slow("plain", &on, &notes)]);
    kubectl.wait_ready("plain");
    until(Duration::from_secs(20), "both listen", || {
        let up = |name: &str| notes.join(format!("{name}-up")).exists();
        if up("plain") && up("vital") { Ok(()) } else { Err("not yet".to_owned()) }
    });

    node.edge_ok(&["shutdown"]);
    assert!(node.container_pids().is_empty());
    let order = std::fs::read_to_string(notes.join("all")).expect("notes");
    assert_eq!(order, "plain asked\nplain gone\nvital asked\nvital gone\n");
    let object = kubectl.get("node", &on).expect("the node");
    let ready = condition(&object, "Ready");
    assert_eq!((&ready["reason"], &ready["message"]), (&json!("KubeletNotReady"), &json!("node is shutting down")));
    kubectl.wait_event(&on, "Shutdown");
    kubectl.wait_event(&on, "NodeNotReady");
    assert_eq!(kubectl.get("pod", "plain").expect("the pod")["status"]["phase"], "Running", "it goes on later");

    node.start();
    node.wait_ready();
    kubectl.wait_pod("plain", 30, "runs again", |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == 1 && sampan_tests::kubectl::is_ready(pod)
    });
}

/// For an administrator who cannot wait for the pods: the daemon ends at once, and pods continue to stop.
#[test]
fn a_second_signal_ends_a_shutdown_that_is_under_way() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hurry");
    let mut node = node_with(&cluster, "edge", "");
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    let notes = cluster.folder().join("notes");
    std::fs::create_dir_all(&notes).expect("a folder");
    kubectl.apply_all(&[stopping("slow", &on, &notes, 15)]);
    kubectl.wait_ready("slow");
    let noted = |what: &str| {
        let file = notes.join(what);
        until(Duration::from_secs(10), what, || if file.exists() { Ok(()) } else { Err("not yet".to_owned()) });
    };
    noted("slow-up");
    let before = node.container_pids();
    assert_eq!(before.len(), 1);

    let mut verb = Command::new(binary("edge-runtime"));
    verb.arg("shutdown").arg("--root").arg(node.root());
    let mut verb = Process::start(&mut verb, &cluster.folder().join("shutdown.log"));
    noted("all");
    let daemon = node.daemon.as_mut().expect("it runs");
    assert!(daemon.is_running() && verb.is_running(), "both wait for the pod: {}", daemon.log());
    signal(daemon.pid(), "TERM");
    until(Duration::from_secs(2), "the daemon ends", || if daemon.is_running() { Err(daemon.log()) } else { Ok(()) });
    assert_eq!(node.container_pids(), before);
    assert_eq!(std::fs::read_to_string(notes.join("all")).expect("notes"), "slow asked\n");
    until(Duration::from_secs(2), "the verb ends", || if verb.is_running() { Err(verb.log()) } else { Ok(()) });
}

#[test]
fn pods_fail_at_shutdown_where_that_is_wanted() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("failing");
    let config = format!("shutdown: {{pods: fail, grace-seconds: 3}}\neviction: {{hard: {{{NO_DISK}}}}}\n");
    let node = node_with(&cluster, "edge", &config);
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    kubectl.apply_all(&[pod("one", &on, json!([shell("c", "exec sleep 1000")]))]);
    kubectl.wait_ready("one");
    node.edge_ok(&["shutdown"]);
    // It was reported before the daemon ended.
    let failed = kubectl.wait_phase("one", "Failed");
    let message = "Pod was terminated in response to imminent node shutdown.";
    assert_eq!((&failed["status"]["reason"], &failed["status"]["message"]), (&json!("Terminated"), &json!(message)));
    assert_eq!(pod_condition(&failed, "DisruptionTarget")["reason"], "TerminationByKubelet");
}
