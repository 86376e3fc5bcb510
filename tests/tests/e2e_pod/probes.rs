//! Readiness and liveness probes: exec, http, tcp.

use sampan_tests::kubectl::is_ready;
use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
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
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
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
}
