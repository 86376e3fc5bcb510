//! Readiness and liveness probes: exec, http, tcp; a restart of the daemon does not change their results.

use std::path::Path;
use std::time::Duration;

use sampan_tests::kubectl::is_ready;
use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

use crate::status;

fn probed(name: &str, node: &str, script: &str, probes: &Value) -> Value {
    pod(name, node, json!([with(shell("c", script), probes)]))
}

#[test]
fn probes_decide_on_ready_and_on_restarts() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("probes");
    let mut node = cluster.node("edge");
    let name = node.name.clone();
    let (kubectl, on) = (&cluster.kubectl, name.as_str());
    let switch = cluster.folder().join("switch");
    std::fs::create_dir(&switch).expect("a folder");
    let quick = |kind: &str, action: &Value| {
        let timing = json!({"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 2});
        json!({kind: with(timing, action)})
    };
    let exec = with(
        quick("readinessProbe", &json!({"exec": {"command": ["cat", "/switch/on"]}})),
        &json!({"volumeMounts": [{"name": "switch", "mountPath": "/switch"}]}),
    );
    let serve = "mkdir /www; echo ok >/www/ok; (sleep 3; rm /www/ok) & exec httpd -f -p 80 -h /www";
    kubectl.apply_all(&[
        with_spec(probed("exec", on, "exec sleep 1000", &exec), &json!({"volumes": [host_path("switch", &switch)]})),
        probed(
            "http",
            on,
            serve,
            &quick("livenessProbe", &json!({"initialDelaySeconds": 1, "httpGet": {"path": "/ok", "port": 80}})),
        ),
        probed(
            "tcp",
            on,
            "sleep 1; exec httpd -f -p 99 -h /tmp",
            &quick("readinessProbe", &json!({"tcpSocket": {"port": 99}})),
        ),
        kept(on, &switch),
        probed("alive", on, "exec sleep 1000", &quick("livenessProbe", &json!({"exec": {"command": ["true"]}}))),
    ]);

    kubectl.wait_pod("exec", 15, "Running", |pod| pod["status"]["phase"] == "Running");
    assert!(!is_ready(&kubectl.get("pod", "exec").expect("a pod")), "the probe cannot have succeeded");
    std::fs::write(switch.join("on"), "").expect("a file");
    kubectl.wait_ready("exec");
    std::fs::remove_file(switch.join("on")).expect("removed");
    let unready = kubectl.wait_pod("exec", 10, "not Ready", |pod| !is_ready(pod));
    assert_eq!(status(&unready, "c")["restartCount"], 0, "readiness restarts nothing");

    kubectl.wait_ready("tcp");

    let restarted = kubectl.wait_pod("http", 30, "is restarted", |pod| status(pod, "c")["restartCount"] == 1);
    let events = kubectl.ok(&["get", "events", "--field-selector", "involvedObject.name=http"]);
    assert!(events.contains("Unhealthy") && events.contains("Liveness probe failed"), "{events}\n{restarted}");
    assert_eq!(status(&kubectl.get("pod", "alive").expect("a pod"), "c")["restartCount"], 0);

    // The daemon is killed and restarted: a ready container stays ready, and a started one is not probed for its start
    // again.
    let asked = |what: &str| std::fs::read_to_string(switch.join(what)).unwrap_or_default().lines().count();
    let before = kubectl.wait_ready("kept");
    let startup = asked("startup");
    node.kill();
    let last = (asked("ready"), asked("live"));
    node.start();
    node.wait_connected(&cluster);
    until(Duration::from_secs(20), "probes go on", || {
        let now = (asked("ready"), asked("live"));
        if now.0 > last.0 + 1 && now.1 > last.1 + 1 { Ok(()) } else { Err(format!("{now:?} after {last:?}")) }
    });
    let after = kubectl.get("pod", "kept").expect("the pod");
    assert_eq!(after["status"]["conditions"], before["status"]["conditions"]);
    assert_eq!(status(&after, "c"), status(&before, "c"));
    assert_eq!(asked("startup"), startup);
    // The probes still work.
    std::fs::write(switch.join("unready"), "").expect("a file");
    kubectl.wait_pod("kept", 10, "not Ready", |pod| !is_ready(pod));
}

/// A pod whose probes write to a file that they ran; ready unless there is a file `unready`.
fn kept(node: &str, folder: &Path) -> Value {
    let probe = |script: &str| json!({"periodSeconds": 1, "exec": {"command": ["sh", "-c", script]}});
    let probes = json!({
        "startupProbe": probe("echo >>/switch/startup"),
        "livenessProbe": probe("echo >>/switch/live"),
        "readinessProbe": with(probe("echo >>/switch/ready; test ! -e /switch/unready"), &json!({"failureThreshold": 1})),
        "volumeMounts": [{"name": "switch", "mountPath": "/switch"}],
    });
    let pod = probed("kept", node, "exec sleep 1000", &probes);
    with_spec(pod, &json!({"volumes": [host_path("switch", folder)]}))
}
