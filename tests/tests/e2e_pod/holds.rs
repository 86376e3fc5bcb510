//! Holds: an annotation holds the first start of a pod, a lock in the pod holds its stop.

use std::path::Path;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

fn annotated(mut pod: Value, key: &str, value: &str) -> Value {
    pod["metadata"]["annotations"] = json!({key: value});
    pod
}

/// Whether the pod has this condition with this status.
fn has(pod: &Value, condition: &str, status: &str) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == condition && one["status"] == status)
}

/// Follows KubeEdge's tests `E2E_ES_POD_HOLD_UPGRADE_1` and `E2E_ES_NODE_HOLD_UPGRADE_2`
/// (KubeEdge tests/e2e/apps/deployment.go), with the node's verb in the place of its metaserver.
#[test]
fn held_pods_start_when_they_are_released() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("held");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let held =
        |name: &str, key: &str| annotated(pod(name, &node.name, json!([shell("c", "exec sleep 1000")])), key, "true");
    let ours = "edge.kubeedge.io/hold-upgrade";
    kubectl.apply_all(&[
        held("one", ours),
        held("two", ours),
        held("three", ours),
        held("four", "sampan.dev/hold"),
        pod("free", &node.name, json!([shell("c", "exec sleep 1000")])),
    ]);
    kubectl.wait_ready("free");
    for name in ["one", "two", "three", "four"] {
        let pod = kubectl.wait_pod(name, 30, "is held", |pod| has(pod, "HeldUpgrade", "True"));
        assert_eq!(pod["status"]["phase"], "Pending");
        let reason = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        assert_eq!(reason, "HeldUpgrade", "what kubectl get pod shows");
    }
    kubectl.wait_event("one", "HeldUpgrade");
    let release = format!("edge-runtime release {}/one", kubectl.namespace);
    for shown in [node.edge_ok(&["status"]), node.edge_ok(&["describe", "one"])] {
        assert!(shown.contains(&release), "{shown}");
    }
    let refused = node.edge(&["release", "free"]).expect_err("it is not held");
    assert!(refused.contains("is not held"), "{refused}");

    // What is held survives the daemon.
    node.kill();
    node.start();
    node.wait_ready();
    node.edge_ok(&["release", "one"]);
    let started = kubectl.wait_ready("one");
    assert!(has(&started, "HeldUpgrade", "False"), "{started}");
    let _ = kubectl.ok(&["annotate", "pod", "four", "sampan.dev/hold-"]);
    kubectl.wait_ready("four");
    for name in ["two", "three"] {
        let pod = kubectl.get("pod", name).expect("the pod");
        assert!(has(&pod, "HeldUpgrade", "True"), "{pod}");
    }
    node.edge_ok(&["release", "--all"]);
    for name in ["two", "three"] {
        kubectl.wait_ready(name);
    }
    assert!(!node.edge_ok(&["status"]).contains("edge-runtime release"));
}

/// Locks the file with flock(1) of util-linux, which is the host's: `/host` is its `/usr`.
const LOCK: &str = "exec 9<$SAMPAN_STOP_LOCK; set -- /host/lib/$(uname -m)-linux-gnu; \
    $1/ld-linux-*.so.* --library-path $1 /host/bin/flock 9 && echo locked";

/// A container that runs [`LOCK`] and then `script`.
fn locking(script: &str) -> Value {
    let notes = json!({"name": "notes", "mountPath": "/notes"});
    let host = json!({"name": "usr", "mountPath": "/host", "readOnly": true});
    with(shell("c", &format!("{LOCK}; {script}")), &json!({"volumeMounts": [notes, host]}))
}

fn volumes(notes: &Path) -> Value {
    json!([host_path("notes", notes), host_path("usr", "/usr".as_ref())])
}

#[test]
fn lock_in_a_pod_holds_its_stop() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("locked");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    let locked = |name: &str, limit: &str| {
        let script = format!(
            "trap 'sleep 1; echo end >/notes/{name}.end; exit 0' TERM; \
             while [ ! -e /notes/{name}.go ]; do sleep 0.1; done; exec 9<&-; while :; do sleep 0.1; done"
        );
        let spec = json!({"terminationGracePeriodSeconds": 3, "volumes": volumes(&notes)});
        annotated(with_spec(pod(name, on, json!([locking(&script)])), &spec), "sampan.dev/stop-lock", limit)
    };
    kubectl.apply_all(&[locked("waits", "30m"), locked("expires", "4s"), locked("forced", "24h")]);
    for name in ["waits", "expires", "forced"] {
        kubectl.wait_log(name, "locked");
    }
    // A pod without the annotation has nothing of it.
    let plain = shell("c", "echo \"<$SAMPAN_STOP_LOCK>\" $(ls /run); exec sleep 1000");
    kubectl.apply_all(&[pod("plain", on, json!([plain]))]);
    assert_eq!(kubectl.wait_log("plain", "<>"), "<>\n");

    let begin = Instant::now();
    let _ = kubectl.ok(&["delete", "pod", "waits", "expires", "--wait=false"]);
    let pod = kubectl.wait_pod("waits", 10, "its stop is held", |pod| has(pod, "StopHeld", "True"));
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    kubectl.wait_event("waits", "StopHeld");
    let shown = node.edge_ok(&["describe", "waits"]);
    assert!(shown.contains("Reason:      StopHeld: ") && shown.contains("at the latest at"), "{shown}");
    kubectl.wait_gone("pod", "expires", 20);
    assert!(begin.elapsed() >= Duration::from_secs(5), "the limit and the second of the trap");
    assert!(notes.join("expires.end").exists(), "its grace period came after the limit");
    kubectl.wait_event("expires", "StopLockExpired");

    let _ = kubectl.ok(&["delete", "pod", "forced", "--grace-period=0", "--force", "--wait=false"]);
    until(Duration::from_secs(15), "a forced deletion does not wait", || {
        let shown = node.edge_ok(&["ps"]);
        if shown.contains("forced") { Err(shown) } else { Ok(()) }
    });

    // Longer than the grace period.
    std::thread::sleep(Duration::from_secs(5).saturating_sub(begin.elapsed()));
    assert!(has(&kubectl.get("pod", "waits").expect("it waits"), "StopHeld", "True"));
    assert!(!notes.join("waits.end").exists(), "it has no signal yet");
    std::fs::write(notes.join("waits.go"), "").expect("written");
    kubectl.wait_gone("pod", "waits", 15);
    assert!(notes.join("waits.end").exists(), "it had its grace period");
}

/// A roll-out of a StatefulSet deletes the pod before it makes the next one.
#[test]
fn roll_out_waits_for_the_stop_lock() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("rollout");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    let set = |version: &str| {
        let script = format!(
            "echo version {version}; while [ ! -e /notes/{version} ]; do sleep 0.1; done; exec 9<&-; exec sleep 1000"
        );
        let labels = json!({"app": "db"});
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {"serviceName": "db", "replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels, "annotations": {"sampan.dev/stop-lock": "10m"}},
                "spec": {"nodeName": node.name, "terminationGracePeriodSeconds": 1,
                    "volumes": volumes(&notes), "containers": [locking(&script)]}}}
        })
    };
    kubectl.apply_all(&[set("1")]);
    kubectl.wait_log("db-0", "version 1");
    let first = kubectl.wait_ready("db-0");
    kubectl.apply_all(&[set("2")]);
    let waits = kubectl.wait_pod("db-0", 30, "its stop is held", |pod| has(pod, "StopHeld", "True"));
    assert_eq!(waits["metadata"]["uid"], first["metadata"]["uid"]);
    std::fs::write(notes.join("1"), "").expect("written");
    kubectl.wait_log("db-0", "version 2");
}
