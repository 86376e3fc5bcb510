//! Server-side apply.

use serde_json::{Value, json};

use crate::harness::{APPLY, Answer, Api, MERGE};

async fn apply(api: &Api, manager: &str, data: Value) -> Answer {
    let path = api.path(&format!("configmaps/c?fieldManager={manager}"));
    api.patch(&path, APPLY, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}))
        .await
}

#[tokio::test]
async fn owners_of_fields() {
    let api = Api::open().await;
    assert_eq!(apply(&api, "one", json!({"a": "1", "b": "1"})).await.code, 201);
    let first = api.get(&api.path("configmaps/c")).await.ok();
    let entry = &first["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("one"), &json!("Apply")));
    assert_eq!(entry["fieldsV1"]["f:data"]["f:a"], json!({}));
    let same = apply(&api, "one", json!({"a": "1", "b": "1"})).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    apply(&api, "two", json!({"a": "2"}))
        .await
        .fails(409, "Apply failed with 1 conflict: conflict with \"one\": .data.a");
    let body = apply(&api, "two", json!({"a": "2", "b": "3"}))
        .await
        .fails(409, "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b");
    assert_eq!(body["details"]["causes"][0]["reason"], "FieldManagerConflict");
    apply(&api, "two&force=true", json!({"a": "2"})).await.ok();
    let after = apply(&api, "one", json!({"c": "1"})).await.ok();
    assert_eq!(after["data"], json!({"a": "2", "c": "1"}), "what nobody wants any more goes");
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "other"}});
    api.patch(&api.path("configmaps/c?fieldManager=one"), APPLY, other)
        .await
        .fails_with(422, "metadata.uid: Invalid value: \"other\": field is immutable");
    apply(&api, "", json!({})).await.fails(
        422,
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    );
}

#[tokio::test]
async fn lists_merge_by_key() {
    let api = Api::open().await;
    let pod = |containers: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulerName": "nobody", "automountServiceAccountToken": false, "containers": containers}});
    let path = api.path("pods/p?fieldManager=one");
    api.patch(&path, APPLY, pod(json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]))).await.ok();
    let after =
        api.patch(&path, APPLY, pod(json!([{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]))).await.ok();
    let images: Vec<_> = after["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["name"].clone(), c["image"].clone()))
        .collect();
    assert!(images.contains(&(json!("b"), json!("j"))) && images.contains(&(json!("a"), json!("i"))), "{images:?}");
    let status = api.path("pods/p/status?fieldManager=kubelet");
    let report = |kind: &str| json!({"apiVersion": "v1", "kind": "Pod", "status": {"conditions": [{"type": kind, "status": "True"}]}});
    api.patch(&status, APPLY, report("Ready")).await.ok();
    let after = api.patch(&status, APPLY, report("Initialized")).await.ok();
    let kinds: Vec<_> = after["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
    assert_eq!(kinds, [json!("Initialized")]);
    api.patch(&api.path("pods/p"), MERGE, json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    let kept = api.get(&api.path("pods/p")).await.ok();
    assert!(kept["metadata"]["managedFields"].as_array().unwrap().iter().any(|m| m["manager"] == "one"));
}

#[tokio::test]
async fn manifests_are_yaml() {
    let api = Api::open().await;
    let send = async |query: &str, text: &str| {
        let path = api.path(&format!("configmaps/m?fieldManager=one{query}"));
        api.send("PATCH", &path, &[("content-type", APPLY)], text.into()).await
    };
    let manifest = "apiVersion: v1\nkind: ConfigMap # as people write it\nmetadata:\n  name: m\ndata:\n  port: \"80\"\n  text: |\n    one\n    two\n";
    let made = send("&fieldValidation=Strict", manifest).await;
    assert_eq!((made.code, &made.body["data"]), (201, &json!({"port": "80", "text": "one\ntwo\n"})));
    let twice = format!("{manifest}  port: \"81\"\n");
    let why = "error converting YAML to JSON: yaml: unmarshal errors:\n  line 10: key \"port\" already set in map";
    send("&fieldValidation=Strict", &twice).await.fails(400, &format!("error strict decoding YAML: {why}"));
    let warned = send("&dryRun=All", &twice).await;
    assert_eq!((warned.code, warned.warnings.len()), (200, 1), "{:?}", warned.warnings);
    assert!(warned.warnings[0].contains("line 10: key"), "{:?}", warned.warnings);
    let ignored = send("&fieldValidation=Ignore", &twice).await;
    assert_eq!((ignored.warnings.len(), &ignored.body["data"]["port"]), (0, &json!("81")));
    let broken = "error decoding YAML: error converting YAML to JSON: yaml: line ";
    send("", "apiVersion: v1\nkind: [").await.fails_with(400, broken);
    send("", "apiVersion: v1\nkind: Secret\nmetadata: {name: m}")
        .await
        .fails_with(400, "invalid object type: /v1, Kind=Secret");
}

#[tokio::test]
async fn fields_that_a_kind_does_not_have_are_refused_whatever_is_asked() {
    let api = Api::open().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "bogus": 1},
        "spec": {"containers": [{"name": "c", "image": "i", "imagee": "x"}]}});
    // Kubernetes tells of them in no order.
    let mut told = [
        "failed to create typed patch object (/p; /v1, Kind=Pod): errors:",
        "  .metadata.bogus: field not declared in schema",
        "  .spec.containers[name=\"c\"].imagee: field not declared in schema",
    ];
    told.sort_unstable();
    for validation in ["Strict", "Warn", "Ignore"] {
        let path = api.path(&format!("pods/p?fieldManager=one&fieldValidation={validation}"));
        let refused = api.patch(&path, APPLY, pod.clone()).await;
        let mut lines: Vec<&str> = refused.body["message"].as_str().unwrap_or_default().lines().collect();
        lines.sort_unstable();
        assert_eq!((refused.code, lines.as_slice()), (500, told.as_slice()), "{}", refused.body);
    }
}
