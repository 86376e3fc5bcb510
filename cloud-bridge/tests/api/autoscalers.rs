//! HorizontalPodAutoscalers, which are one object in two versions.

use serde_json::{Value, json};

use crate::harness::{APPLY, Api, MERGE, STRATEGIC, TABLE};
use crate::workloads::{refuses_wrong_types, with};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

fn autoscaler(version: &str) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    json!({
        "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3},
    })
}

fn all(api: &Api, version: &str) -> String {
    api.group_path(&format!("autoscaling/{version}"), "horizontalpodautoscalers")
}

#[tokio::test]
async fn one_object_is_served_in_two_versions() {
    let api = Api::open().await;
    let (old, new) = (format!("{}/a", all(&api, "v1")), format!("{}/a", all(&api, "v2")));
    let mut seen = api.watch(&format!("{}?watch=1", all(&api, "v1"))).await;
    let made = with(autoscaler("v1"), &["spec", "targetCPUUtilizationPercentage"], json!(70));
    let made = api.post(&all(&api, "v1"), made).await.ok();
    assert_eq!((&made["apiVersion"], &made["spec"]["minReplicas"]), (&json!("autoscaling/v1"), &json!(1)));
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 70);
    assert_eq!(made["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
    let now = api.get(&new).await.ok();
    assert_eq!(now["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    assert_eq!((&now["apiVersion"], &now["metadata"]["uid"]), (&json!("autoscaling/v2"), &made["metadata"]["uid"]));
    assert_eq!(seen.next().await.unwrap()["object"]["spec"]["targetCPUUtilizationPercentage"], 70);

    let memory = json!({"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "AverageValue", "averageValue": 1_000_000}}});
    let metrics = json!([memory, now["spec"]["metrics"][0]]);
    api.patch(&new, STRATEGIC, json!({"spec": {"metrics": metrics}})).await.ok();
    let told = seen.next().await.unwrap()["object"].clone();
    let others: Value = serde_json::from_str(told["metadata"]["annotations"][METRICS].as_str().unwrap()).unwrap();
    assert_eq!(others[0]["resource"], json!({"name": "memory", "targetAverageValue": "1M"}));
    // Fields that the older version does not show stay unchanged.
    api.patch(&old, MERGE, json!({"spec": {"maxReplicas": 9}})).await.ok();
    let put = with(api.get(&old).await.ok(), &["spec", "minReplicas"], json!(2));
    api.put(&old, put).await.ok();
    let after = api.get(&new).await.ok();
    assert_eq!((&after["spec"]["maxReplicas"], &after["spec"]["minReplicas"]), (&json!(9), &json!(2)));
    assert_eq!(after["spec"]["metrics"][0]["resource"]["target"]["averageValue"], "1M");
    assert_eq!(after["spec"]["metrics"].as_array().map(Vec::len), Some(2));
    assert_eq!(after["metadata"].get("annotations"), None);

    let list = api.get(&all(&api, "v1")).await.ok();
    assert_eq!((&list["apiVersion"], &list["items"][0]["spec"]["maxReplicas"]), (&json!("autoscaling/v1"), &json!(9)));
    api.delete(&old, json!({})).await.ok();
    assert_eq!(api.get(&new).await.code, 404);
}

#[tokio::test]
async fn the_status_is_written_apart_and_shown_in_a_row() {
    let api = Api::open().await;
    let path = format!("{}/a", all(&api, "v2"));
    api.post(&all(&api, "v2"), with(autoscaler("v2"), &["status"], json!({"desiredReplicas": 7}))).await.ok();
    assert_eq!(api.get(&path).await.ok()["status"], json!({"currentMetrics": null, "desiredReplicas": 0}));
    let current = json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 42}}}]);
    let status = json!({"status": {"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": current},
        "spec": {"maxReplicas": 8}});
    let told = api.patch(&format!("{path}/status"), MERGE, status).await.ok();
    assert_eq!((&told["spec"]["maxReplicas"], &told["status"]["desiredReplicas"]), (&json!(3), &json!(3)));
    let wrong = json!({"status": {"currentReplicas": -1}});
    let why = "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0";
    api.patch(&format!("{path}/status"), MERGE, wrong).await.fails_with(422, why);
    for version in ["v1", "v2"] {
        let table = api.send("GET", &all(&api, version), &[("accept", TABLE)], Vec::new()).await.ok();
        let names: Vec<&str> =
            table["columnDefinitions"].as_array().unwrap().iter().filter_map(|c| c["name"].as_str()).collect();
        assert_eq!(names, ["Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"]);
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(json!(cells[..6]), json!(["a", "Deployment/d", "cpu: 42%/80%", "1", 3, 2]));
    }
    let old = api.get(&format!("{}/a", all(&api, "v1"))).await.ok();
    assert_eq!(
        old["status"],
        json!({"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 42})
    );
}

#[tokio::test]
async fn what_cannot_work_is_refused() {
    let api = Api::open().await;
    for version in ["v1", "v2"] {
        let group = with(autoscaler(version), &["spec", "scaleTargetRef", "apiVersion"], json!("v1"));
        api.post(&all(&api, version), group).await.fails(
            422,
            "HorizontalPodAutoscaler.autoscaling \"a\" is invalid: spec.scaleTargetRef.apiVersion: Invalid value: \
             \"v1\": apiVersion must specify API group",
        );
        let fields = [
            ("spec", json!([])),
            ("spec.maxReplicas", json!("3")),
            ("spec.maxReplicas", json!(3_000_000_000_i64)),
            ("spec.scaleTargetRef", json!("d")),
            ("status", json!(1)),
            ("metadata.annotations", json!([])),
        ];
        refuses_wrong_types(&api, &all(&api, version), &autoscaler(version), &fields).await;
    }
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"averageValue": "x"}}}]);
    let fields = [
        ("spec.metrics", metrics),
        ("spec.metrics", json!({})),
        ("spec.behavior", json!([])),
        ("spec.behavior.scaleUp.tolerance", json!("x")),
        ("spec.behavior.scaleUp.policies", json!([1])),
        ("status.currentMetrics", json!([1])),
    ];
    refuses_wrong_types(&api, &all(&api, "v2"), &autoscaler("v2"), &fields).await;
}

#[tokio::test]
async fn appliers_of_either_version_own_their_fields() {
    let api = Api::open().await;
    let path = |version: &str, who: &str| format!("{}/a?fieldManager={who}", all(&api, version));
    let cpu = with(autoscaler("v1"), &["spec", "targetCPUUtilizationPercentage"], json!(70));
    api.patch(&path("v1", "one"), APPLY, cpu.clone()).await.ok();
    let other = with(autoscaler("v2"), &["spec", "maxReplicas"], json!(9));
    api.patch(&path("v2", "two"), APPLY, other).await.fails_with(409, ".spec.maxReplicas");
    let again = with(cpu, &["spec", "maxReplicas"], json!(4));
    let now = api.patch(&path("v1", "one"), APPLY, again).await.ok();
    assert_eq!((&now["spec"]["maxReplicas"], &now["spec"]["targetCPUUtilizationPercentage"]), (&json!(4), &json!(70)));
}

#[tokio::test]
async fn discovery_names_the_newer_version_first() {
    let api = Api::open().await;
    let group = api.get("/apis/autoscaling").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v2");
    assert_eq!(group["versions"].as_array().map(Vec::len), Some(2));
    for version in ["v1", "v2"] {
        let listed = api.get(&format!("/apis/autoscaling/{version}")).await.ok();
        let one = listed["resources"][0].clone();
        assert_eq!((&one["shortNames"], &one["categories"]), (&json!(["hpa"]), &json!(["all"])));
        assert_eq!(listed["resources"][1]["name"], "horizontalpodautoscalers/status");
        let document = api.get(&format!("/openapi/v3/apis/autoscaling/{version}")).await.ok();
        let schemas = &document["components"]["schemas"];
        let spec = &schemas[format!("io.k8s.api.autoscaling.{version}.HorizontalPodAutoscalerSpec")]["properties"];
        assert_eq!(spec["metrics"].is_null(), version == "v1", "{spec}");
    }
}
