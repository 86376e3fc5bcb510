//! Kinds that run pods, as objects over HTTP: what is filled in, kept and refused, how they are scaled and shown. On a real
//! cluster their controllers act on them meanwhile; nothing here depends on it.

use edge_protocol::json::SetField;
use serde_json::{Value, json};

use crate::harness::{APPLY, Answer, Api, MERGE, STRATEGIC, TABLE};

fn replica_set(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}}},
    })
}

fn with(mut object: Value, path: &[&str], value: Value) -> Value {
    object.set_at(path, value);
    object
}

/// Each of these in the place of the field named before it is of the wrong type.
async fn refuses_wrong_types(api: &Api, all: &str, object: &Value, fields: &[(&str, Value)]) {
    for (path, wrong) in fields {
        let path: Vec<&str> = path.split('.').collect();
        let answer: Answer = api.post(all, with(object.clone(), &path, wrong.clone())).await;
        assert_eq!(answer.code, 400, "{path:?} {wrong}: {}", answer.body);
    }
    assert!(api.get(all).await.ok()["items"].as_array().is_some_and(Vec::is_empty));
}

#[tokio::test]
async fn a_replica_set_keeps_its_status_and_is_scaled() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "replicasets");
    let made = with(replica_set("r"), &["status"], json!({"replicas": 5}));
    let made = api.post(&all, made).await.ok();
    assert_eq!((&made["metadata"]["generation"], &made["status"]["replicas"]), (&json!(1), &json!(0)));
    let path = format!("{all}/r");
    let status = json!({"status": {"replicas": 2, "observedGeneration": 1}, "spec": {"replicas": 9}});
    let told = api.patch(&format!("{path}/status"), MERGE, status).await.ok();
    assert_eq!((&told["spec"]["replicas"], &told["status"]["replicas"]), (&json!(0), &json!(2)));
    let seen = api.get(&format!("{path}/scale")).await.ok();
    assert_eq!((&seen["status"]["selector"], &seen["status"]["replicas"]), (&json!("app=r"), &json!(2)));
    api.patch(&format!("{path}/scale"), MERGE, json!({"spec": {"replicas": 3}})).await.ok();
    let whole = api.get(&path).await.ok();
    assert_eq!((&whole["spec"]["replicas"], &whole["metadata"]["generation"]), (&json!(3), &json!(2)));
    let changed = json!({"status": {"replicas": 7}, "spec": {"minReadySeconds": 1}});
    let changed = api.patch(&path, STRATEGIC, changed).await.ok();
    assert_eq!((&changed["status"]["replicas"], &changed["metadata"]["generation"]), (&json!(2), &json!(3)));
    let wrong = json!({"status": {"readyReplicas": 3}});
    let why = "status.readyReplicas: Invalid value: 3: cannot be greater than status.replicas";
    api.patch(&format!("{path}/status"), MERGE, wrong).await.fails_with(422, why);
}

#[tokio::test]
async fn a_replica_set_that_cannot_work_is_refused() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "replicasets");
    let empty = with(replica_set("r"), &["spec", "selector"], json!({}));
    api.post(&all, empty).await.fails(
        422,
        "ReplicaSet.apps \"r\" is invalid: spec.selector: Invalid value: {}: empty selector is invalid for deployment",
    );
    let none = with(replica_set("r"), &["spec", "selector"], Value::Null);
    api.post(&all, none).await.fails_with(422, "spec.selector: Required value");
    let other = with(replica_set("r"), &["spec", "selector", "matchLabels"], json!({"app": "x"}));
    api.post(&all, other).await.fails_with(422, "`selector` does not match template `labels`");
    let fields = [
        ("spec", json!([])),
        ("spec.replicas", json!("1")),
        ("spec.minReadySeconds", json!({})),
        ("spec.selector", json!("app=r")),
        ("spec.selector.matchLabels", json!({"app": 1})),
        ("spec.template", json!([])),
        ("spec.template.metadata", json!("x")),
        ("spec.template.spec", json!(1)),
        ("spec.template.spec.containers", json!({})),
        ("status", json!(1)),
        ("status.replicas", json!("1")),
        ("status.conditions", json!({})),
    ];
    refuses_wrong_types(&api, &all, &replica_set("r"), &fields).await;
}

#[tokio::test]
async fn a_replica_set_is_shown_found_and_applied() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "replicasets");
    let path = format!("{all}/r?fieldManager=one");
    api.patch(&path, APPLY, replica_set("r")).await.ok();
    let mut second = replica_set("r");
    second.set_at(&["spec", "template", "spec", "containers"], json!([{"name": "d", "image": "busybox:2"}]));
    api.patch(&path.replace("=one", "=two"), APPLY, second).await.ok();
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("r"), json!(0), json!(0), json!(0)]);
    assert_eq!(cells[5..], [json!("c,d"), json!("busybox:1,busybox:2"), json!("app=r")]);
    // Kubernetes selects them by nothing else than their names, whatever its source says of replicas.
    assert_eq!(api.get(&format!("{all}?fieldSelector=status.replicas%3D0")).await.code, 400);
    assert_eq!(api.delete(&format!("{all}/r"), Value::Null).await.ok()["details"]["kind"], "replicasets");
}
