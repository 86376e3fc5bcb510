//! Files of optional sources, paths inside volumes, and access rights.

use std::time::Duration;

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use crate::{log_until, mounts};

#[test]
fn optional_files_come_and_go_and_paths_stay_inside() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("paths");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let outside = cluster.folder().join("outside");
    std::fs::create_dir(&outside).expect("a folder");
    let _ = kubectl.ok(&["create", "configmap", "goes", "--from-literal=a=1"]);
    let script = "while :; do { cat /goes/a 2>/dev/null || echo none; echo; cat /comes/b 2>/dev/null || echo none; } \
        >/host/new; mv /host/new /host/seen; sleep 0.2; done";
    let watcher = with(shell("c", script), &mounts(&[("goes", "/goes"), ("comes", "/comes"), ("host", "/host")]));
    let volumes = json!([{"name": "goes", "configMap": {"name": "goes", "optional": true}},
        {"name": "comes", "secret": {"secretName": "comes", "optional": true}}, host_path("host", &outside)]);
    let watcher = with_spec(pod("watcher", &node.name, json!([watcher])), &json!({ "volumes": volumes }));

    // K8s test/e2e/common/node/expansion.go and test/e2e/common/storage/empty_dir.go.
    let expanded = |name: &str, value: &str| {
        let container = json!({"env": [{"name": "POD_NAME", "value": value}],
            "volumeMounts": [{"name": "v", "mountPath": "/logs", "subPathExpr": "$(POD_NAME)"}]});
        let container = with(shell("c", "exec sleep 1000"), &container);
        with_spec(pod(name, &node.name, json!([container])), &json!({"volumes": [{"name": "v", "emptyDir": {}}]}))
    };
    let modes = "stat -c %a:%u:%g /sub; grep ' /sub ' /proc/mounts | cut -d' ' -f1; stat -c %a /disk; stat -c %a /mem; \
        df /mem | tail -1 | tr -s ' ' | cut -d' ' -f2; touch /mem/f && stat -c %g /mem/f; touch /ro/f 2>/dev/null || echo read-only; \
        echo end; exec sleep 1000";
    let container = with(
        shell("c", modes),
        &json!({"volumeMounts": [{"name": "mem", "mountPath": "/sub", "subPath": "test-sub"},
            {"name": "mem", "mountPath": "/mem"}, {"name": "disk", "mountPath": "/disk"},
            {"name": "disk", "mountPath": "/ro", "readOnly": true, "recursiveReadOnly": "IfPossible"}]}),
    );
    let volumes = json!([{"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}, {"name": "disk", "emptyDir": {}}]);
    let modes = with_spec(
        pod("modes", &node.name, json!([container])),
        &json!({"volumes": volumes, "securityContext": {"fsGroup": 123}}),
    );
    kubectl.apply_all(&[watcher, expanded("up", ".."), expanded("absolute", "/tmp"), expanded("fine", "fine"), modes]);

    for name in ["up", "absolute"] {
        kubectl.wait_pod(name, 20, "cannot be configured", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        });
    }
    kubectl.wait_ready("fine");
    let ready = kubectl.wait_ready("modes");
    let log = log_until(kubectl, "modes", "end");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..6], ["3777:0:123", "tmpfs", "2777", "3777", "4096", "123"], "{log}");
    assert_eq!(lines[6], "read-only");
    let shown = &ready["status"]["containerStatuses"][0]["volumeMounts"];
    let read_only = shown.as_array().into_iter().flatten().find(|mount| mount["mountPath"] == "/ro");
    assert!(read_only.is_some_and(|mount| mount["recursiveReadOnly"].is_string()), "{shown}");

    let sees = |what: &str| {
        until(Duration::from_secs(10), what, || {
            let seen = std::fs::read_to_string(outside.join("seen")).unwrap_or_default();
            if seen.trim() == what { Ok(()) } else { Err(seen) }
        });
    };
    sees("1\nnone");
    let _ = kubectl.ok(&["create", "secret", "generic", "comes", "--from-literal=b=2"]);
    sees("1\n2");
    let _ = kubectl.ok(&["delete", "configmap", "goes"]);
    sees("none\n\n2");
}
