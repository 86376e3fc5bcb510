//! Pod Security Standards by labels of namespaces.

use serde_json::{Value, json};

use crate::harness::{Api, MERGE, merge, pod};

async fn label(api: &Api, labels: Value) -> Vec<String> {
    let path = format!("/api/v1/namespaces/{}", api.ns);
    let labels: serde_json::Map<String, Value> = labels
        .as_object()
        .unwrap()
        .iter()
        .map(|(k, v)| (format!("pod-security.kubernetes.io/{k}"), v.clone()))
        .collect();
    let answer = api.patch(&path, MERGE, json!({"metadata": {"labels": labels}})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.warnings
}

fn host_pod(name: &str) -> Value {
    let mut object = pod(name);
    merge(&mut object, json!({"spec": {"hostPID": true}}));
    object
}

#[tokio::test]
async fn an_enforced_level_refuses_pods() {
    let api = Api::open().await;
    api.post(&api.path("pods"), host_pod("before")).await.ok();
    let warnings = label(&api, json!({"enforce": "baseline"})).await;
    assert!(warnings.iter().any(|text| text.contains("existing pods in namespace")), "{warnings:?}");
    assert!(warnings.iter().any(|text| text.contains("before: host namespaces")), "{warnings:?}");
    let why = "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    api.post(&api.path("pods"), host_pod("x")).await.fails(403, why);
    api.post(&api.path("pods"), pod("y")).await.ok();
    // Existing pods may change in fields that the standards do not check.
    let annotate = json!({"metadata": {"annotations": {"a": "b"}}});
    api.patch(&api.path("pods/before"), MERGE, annotate).await.ok();
    let mut changed = api.get(&api.path("pods/before")).await.ok();
    changed["spec"]["containers"][0]["image"] = json!("other:1");
    api.put(&api.path("pods/before"), changed).await.fails_with(403, "violates PodSecurity");
    let mut changed = api.get(&api.path("pods/y")).await.ok();
    let debug = json!({"name": "d", "image": "x:1", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
        "securityContext": {"privileged": true}});
    changed["spec"]["ephemeralContainers"] = json!([debug]);
    let refused = api.put(&api.path("pods/y/ephemeralcontainers"), changed).await;
    refused.fails_with(403, "privileged (container \"d\" must not set securityContext.privileged=true)");
}

#[tokio::test]
async fn a_template_is_warned_of_and_its_pods_are_refused() {
    let api = Api::open().await;
    label(&api, json!({"enforce": "baseline", "enforce-version": "v1.30"})).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": host_pod("x")["spec"]});
    let set = json!({"metadata": {"name": "s"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let made = api.post(&api.group_path("apps/v1", "replicasets"), set).await;
    let text = "would violate PodSecurity \"baseline:v1.30\": host namespaces (hostPID=true)";
    assert!(made.code == 201 && made.warnings.iter().any(|one| one.contains("host namespaces")), "{made:?}");
    assert!(made.warnings.iter().any(|one| one.replace('\\', "").contains(text)), "{made:?}");
}

#[tokio::test]
async fn labels_that_say_nothing_are_refused() {
    let api = Api::open().await;
    let wrong = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "strict"}}});
    api.patch(&format!("/api/v1/namespaces/{}", api.ns), MERGE, wrong).await.fails_with(
        422,
        "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, \
         baseline, restricted",
    );
    label(&api, json!({"warn": "restricted", "audit": "restricted", "audit-version": "latest"})).await;
    let made = api.post(&api.path("pods"), pod("x")).await;
    assert!(made.code == 201 && made.warnings.iter().any(|one| one.contains("would violate PodSecurity")), "{made:?}");
}
