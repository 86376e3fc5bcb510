//! All kinds of PATCH, and the status subresource.

use futures::future::join_all;
use serde_json::json;

use crate::harness::{Api, JSON_PATCH, MERGE, STRATEGIC, config, pod};

#[tokio::test]
async fn merge_and_json_patches() {
    let api = Api::open().await;
    let path = api.path("configmaps/c");
    api.post(&api.path("configmaps"), config("c", json!({"a": "1"}))).await.ok();
    let merged = api.patch(&path, MERGE, json!({"metadata": {"labels": {"a": null, "b": "2"}}})).await.ok();
    assert_eq!(merged["metadata"]["labels"], json!({"b": "2"}));
    let patched = api.patch(&path, JSON_PATCH, json!([{"op": "add", "path": "/data/n", "value": "1"}])).await.ok();
    assert_eq!(patched["data"], json!({"k": "v", "n": "1"}));
    api.patch(&path, JSON_PATCH, json!([{"op": "remove", "path": "/data/zz"}]))
        .await
        .fails(422, "the server rejected our request due to an error in our request");
    api.patch(&path, JSON_PATCH, json!({"a": 1}))
        .await
        .fails(400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
    api.patch(&path, MERGE, json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "w"}}))
        .await
        .fails_with(409, "the object has been modified");
    let same = api.patch(&path, MERGE, json!({"data": {"k": "v"}})).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"]);
    for kind in [MERGE, STRATEGIC] {
        api.patch(&path, kind, json!({"metadata": {"uid": "other"}}))
            .await
            .fails_with(422, "metadata.uid: Invalid value: \"other\": field is immutable");
    }
    assert_eq!(api.patch(&path, "text/plain", json!({})).await.code, 415);
    assert_eq!(api.patch(&api.path("configmaps/none"), MERGE, json!({})).await.code, 404);
}

/// Each patch applies to the result of the one before, though they are computed on other threads.
#[tokio::test]
async fn patches_of_a_large_object_at_one_time_all_count() {
    let api = Api::open().await;
    let path = api.path("configmaps/large");
    let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(100_000)}});
    api.post(&api.path("configmaps"), large).await.ok();
    let patches = (0..12).map(|n| api.patch(&path, MERGE, json!({"data": {(format!("n{n}")): "1"}})));
    for answer in join_all(patches).await {
        answer.ok();
    }
    assert_eq!(api.get(&path).await.ok()["data"].as_object().unwrap().len(), 13);
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_key() {
    let api = Api::open().await;
    let node = api.post("/api/v1/nodes", json!({"metadata": {"generateName": "strategic-"}})).await.ok();
    let path = format!("/api/v1/nodes/{}", node["metadata"]["name"].as_str().unwrap());
    for kind in ["Ready", "DiskPressure", "Ready"] {
        let condition = json!({"type": kind, "status": "True", "reason": "R", "message": "m"});
        api.patch(&format!("{path}/status"), STRATEGIC, json!({"status": {"conditions": [condition]}})).await.ok();
    }
    let node = api.get(&path).await.ok();
    let kinds: Vec<_> = node["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    api.delete(&path, json!(null)).await.ok();
}

#[tokio::test]
async fn status_and_spec_do_not_mix() {
    let api = Api::open().await;
    let path = api.path("pods/p");
    api.post(&api.path("pods"), pod("p")).await.ok();
    let after =
        api.patch(&path, MERGE, json!({"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!((&after["status"]["phase"], &after["metadata"]["labels"]["a"]), (&json!("Pending"), &json!("b")));
    let after = api
        .patch(&format!("{path}/status"), MERGE, json!({"status": {"phase": "Running"}, "spec": {"priority": 7}}))
        .await
        .ok();
    assert_eq!((&after["status"]["phase"], &after["spec"]["priority"]), (&json!("Running"), &json!(0)));
    assert_eq!(after["metadata"]["generation"], 1);
    let after =
        api.patch(&path, STRATEGIC, json!({"spec": {"containers": [{"name": "c", "image": "other"}]}})).await.ok();
    assert_eq!(
        (&after["spec"]["containers"][0]["image"], &after["metadata"]["generation"]),
        (&json!("other"), &json!(2))
    );
    api.patch(&path, MERGE, json!({"spec": {"hostNetwork": true}}))
        .await
        .fails_with(422, "pod updates may not change fields other than");
    api.patch(&format!("{path}?fieldValidation=Strict"), MERGE, json!({"spec": {"foo": 1}}))
        .await
        .fails_with(422, "strict decoding error: unknown field \"spec.foo\"");
}
