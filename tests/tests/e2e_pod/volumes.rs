//! Volumes of every supported kind, and changes of their sources while the pod runs.

use std::time::Duration;

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

fn mounts(list: &[(&str, &str)]) -> Value {
    let list: Vec<Value> = list.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect();
    json!({"volumeMounts": list})
}

#[test]
fn files_come_from_their_sources_and_follow_them() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("volumes");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let outside = cluster.folder().join("outside");
    std::fs::create_dir(&outside).expect("a folder");
    std::fs::write(outside.join("in"), "from the host\n").expect("a file");
    let _ = kubectl.ok(&["create", "configmap", "web", "--from-literal=page=one", "--from-literal=other=x"]);
    let _ = kubectl.ok(&["create", "secret", "generic", "key", "--from-literal=pin=1234"]);
    let writer = with(
        shell("writer", "echo shared >/disk/f; cat /host/in; echo back >/host/out; exec sleep 1000"),
        &mounts(&[("disk", "/disk"), ("host", "/host")]),
    );
    let script = "until [ -s /disk/f ]; do sleep 0.1; done; cat /disk/f; grep ' /memory ' /proc/mounts; ls /config; \
        cat /config/page; echo; stat -Lc %a /secret/deep/pin; cat /secret/deep/pin; echo; cat /info/labels; echo; \
        while :; do cat /config/page >/host/page; cat /info/labels >/host/labels; sleep 0.2; done";
    let reader = with(
        shell("reader", script),
        &mounts(&[
            ("disk", "/disk"),
            ("memory", "/memory"),
            ("host", "/host"),
            ("config", "/config"),
            ("secret", "/secret"),
            ("info", "/info"),
        ]),
    );
    let volumes = json!([
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        host_path("host", &outside),
        {"name": "config", "configMap": {"name": "web"}},
        {"name": "secret", "secret": {"secretName": "key", "defaultMode": 0o400,
            "items": [{"key": "pin", "path": "deep/pin"}]}},
        {"name": "info", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]);
    let mut all = with_spec(pod("all", &node.name, json!([writer, reader])), &json!({"volumes": volumes}));
    all["metadata"]["labels"] = json!({"app": "web"});
    let never = with_spec(
        pod("lost", &node.name, json!([with(shell("c", "true"), &mounts(&[("config", "/c")]))])),
        &json!({"volumes": [{"name": "config", "configMap": {"name": "absent"}}]}),
    );
    kubectl.apply_all(&[all, never]);

    kubectl.wait_ready("all");
    assert_eq!(kubectl.ok(&["logs", "all", "-c", "writer"]), "from the host\n");
    assert_eq!(std::fs::read_to_string(outside.join("out")).expect("written by the pod"), "back\n");
    let log = until(Duration::from_secs(10), "the reader has read", || {
        let log = kubectl.run(&["logs", "all", "-c", "reader"])?;
        if log.contains("app=\"web\"") { Ok(log) } else { Err(log) }
    });
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "shared");
    assert!(lines[1].starts_with("tmpfs ") && lines[1].contains("size=8192k"), "{log}");
    assert_eq!(lines[2..], ["other", "page", "one", "400", "1234", "app=\"web\""], "{log}");

    kubectl.apply(r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"page": "two"}}"#);
    let _ = kubectl.ok(&["label", "pod", "all", "tier=front"]);
    until(Duration::from_secs(5), "changes are in the volumes", || {
        let read = |name: &str| std::fs::read_to_string(outside.join(name)).unwrap_or_default();
        let (page, labels) = (read("page"), read("labels"));
        if page == "two" && labels.contains("tier=\"front\"") { Ok(()) } else { Err(format!("{page:?} {labels:?}")) }
    });

    // A volume with a missing source delays the pod, creates an event, and the pod starts when the source exists.
    until(Duration::from_secs(10), "an event names the missing configmap", || {
        let events = kubectl.run(&["get", "events"])?;
        if events.contains("FailedMount") && events.contains("\"absent\" not found") { Ok(()) } else { Err(events) }
    });
    let _ = kubectl.ok(&["create", "configmap", "absent", "--from-literal=k=v"]);
    kubectl.wait_pod("lost", 20, "runs", |pod| pod["status"]["phase"] == "Running");
}
