//! Environment variables from every source, and the effect of a missing source.

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
use serde_json::{Value, json};

use crate::status;

fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

#[test]
fn the_environment_is_what_the_manifest_says() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("env");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let _ = kubectl.ok(&["create", "configmap", "settings", "--from-literal=color=blue", "--from-literal=SIZE=xl"]);
    let _ = kubectl.ok(&["create", "secret", "generic", "keys", "--from-literal=token=s3cr3t"]);
    let variables = json!([
        {"name": "PLAIN", "value": "a b"},
        {"name": "NESTED", "value": "<$(PLAIN)> $$(PLAIN) $(ABSENT)"},
        {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "NO_KEY", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "none", "optional": true}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        field("POD", "metadata.name"), field("SPACE", "metadata.namespace"), field("POD_UID", "metadata.uid"),
        field("NODE", "spec.nodeName"), field("IP", "status.podIP"), field("HOST_IP", "status.hostIP"),
        field("APP", "metadata.labels['app']"),
    ]);
    let container = with(
        shell("c", "env; echo arg=$0"),
        &json!({
            "env": variables, "args": ["$(COLOR)"],
            "envFrom": [{"prefix": "C_", "configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}},
                {"configMapRef": {"name": "nothing", "optional": true}}],
            "resources": {"limits": {"memory": "48Mi"}},
        }),
    );
    let mut all = with_spec(pod("all", &node.name, json!([container])), &json!({"restartPolicy": "Never"}));
    all["metadata"]["labels"] = json!({"app": "web"});
    let late = with(
        shell("c", "echo late=$LATE"),
        &json!({"env": [{"name": "LATE", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}]}),
    );
    let late = with_spec(pod("late", &node.name, json!([late])), &json!({"restartPolicy": "Never"}));
    let many = with(shell("c", "exec sleep 1000"), &json!({"envFrom": [{"secretRef": {"name": "far"}}]}));
    // Variables that every pod gets: those of Services. And its account's token.
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "none"}}});
    let unasked = "env | grep -c ^WEB_SERVICE_HOST=; ls -d /var/run/secrets/kubernetes.io/serviceaccount; echo end";
    let once = |name: &str, spec: &Value| {
        with_spec(
            with_spec(pod(name, &node.name, json!([shell("c", unasked)])), &json!({"restartPolicy": "Never"})),
            spec,
        )
    };
    kubectl.apply_all(&[service]);
    kubectl.apply_all(&[
        all,
        late,
        pod("many", &node.name, json!([many])),
        once("given", &json!({})),
        once("bare", &json!({"enableServiceLinks": false, "automountServiceAccountToken": false})),
    ]);

    let pod = kubectl.wait_phase("all", "Succeeded");
    let log = kubectl.ok(&["logs", "all"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for line in [
        "PLAIN=a b".to_owned(),
        "NESTED=<a b> $(PLAIN) $(ABSENT)".to_owned(),
        "COLOR=blue".to_owned(),
        "TOKEN=s3cr3t".to_owned(),
        "MEMORY=48".to_owned(),
        "POD=all".to_owned(),
        format!("SPACE={}", kubectl.namespace),
        format!("POD_UID={}", text(&pod["metadata"]["uid"])),
        format!("NODE={}", node.name),
        format!("IP={}", text(&pod["status"]["podIP"])),
        format!("HOST_IP={}", text(&pod["status"]["hostIP"])),
        "APP=web".to_owned(),
        "C_color=blue".to_owned(),
        "C_SIZE=xl".to_owned(),
        "token=s3cr3t".to_owned(),
        "HOSTNAME=all".to_owned(),
        "arg=blue".to_owned(),
    ] {
        assert!(log.lines().any(|one| one == line), "{line} is missing in:\n{log}");
    }
    assert!(!log.contains("NO_KEY"), "{log}");

    // A missing source delays the container until it exists.
    let waiting = kubectl.wait_pod("late", 15, "waits for its configmap", |pod| {
        status(pod, "c")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    let message = text(&status(&waiting, "c")["state"]["waiting"]["message"]);
    assert_eq!(message, "configmap \"late\" not found");
    let _ = kubectl.ok(&["create", "configmap", "late", "--from-literal=k=v"]);
    kubectl.wait_phase("late", "Succeeded");
    assert_eq!(kubectl.ok(&["logs", "late"]), "late=v\n");
    let waiting = kubectl.wait_pod("many", 15, "waits for its secret", |pod| {
        status(pod, "c")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    assert_eq!(text(&status(&waiting, "c")["state"]["waiting"]["message"]), "secret \"far\" not found");
    let _ = kubectl.ok(&["create", "secret", "generic", "far", "--from-literal=k=v"]);
    kubectl.wait_ready("many");
    let given = kubectl.wait_log("given", "end");
    assert_eq!(given, "1\n/var/run/secrets/kubernetes.io/serviceaccount\nend\n");
    let bare = kubectl.wait_log("bare", "end");
    assert!(bare.starts_with("0\n") && bare.contains("No such file"), "{bare}");
}
