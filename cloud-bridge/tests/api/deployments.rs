//! Deployments as objects: defaults, refusals, and tables. On a real cluster their controller acts on them meanwhile;
//! nothing here depends on that.

use sampan_json::SetField;
use serde_json::{Value, json};

use crate::harness::{APPLY, Api, JSON_PATCH, MERGE, STRATEGIC, TABLE, merge};

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}}},
    })
}

#[tokio::test]
async fn what_raises_a_generation() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "deployments");
    let made = api.post(&all, deployment("d")).await.ok();
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
    let path = format!("{all}/d");
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
    let patched = api.patch(&path, STRATEGIC, image).await.ok();
    let containers = patched["spec"]["template"]["spec"]["containers"].as_array().map(Vec::as_slice);
    assert!(matches!(containers, Some([one]) if one["image"] == "busybox:2"), "{patched}");
    assert_eq!(patched["metadata"]["generation"], 2);
    // Its ReplicaSets copy annotations, not labels.
    let annotated = api.patch(&path, MERGE, json!({"metadata": {"annotations": {"a": "1"}}})).await.ok();
    assert_eq!(annotated["metadata"]["generation"], 3);
    let labelled = api.patch(&path, MERGE, json!({"metadata": {"labels": {"a": "1"}}})).await.ok();
    assert_eq!(labelled["metadata"]["generation"], 3);
    let status =
        json!({"status": {"conditions": [{"type": "x.example/A", "status": "True"}]}, "spec": {"replicas": 9}});
    let told = api.patch(&format!("{path}/status"), STRATEGIC, status).await.ok();
    assert_eq!((&told["spec"]["replicas"], &told["metadata"]["generation"]), (&json!(0), &json!(3)));
    let gone = api.delete(&path, Value::Null).await.ok();
    assert_eq!((&gone["kind"], &gone["details"]["group"]), (&json!("Status"), &json!("apps")));
}

#[tokio::test]
async fn a_deployment_is_scaled() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "deployments");
    let mut made = deployment("d");
    let tiers = json!({"spec": {"selector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}]},
        "template": {"metadata": {"labels": {"tier": "a"}}}}});
    merge(&mut made, tiers);
    api.post(&all, made).await.ok();
    let path = format!("{all}/d/scale");
    let seen = api.get(&path).await.ok();
    assert_eq!((&seen["kind"], &seen["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&seen["spec"], &seen["status"]["selector"]), (&json!({}), &json!("app=d,tier in (a,b)")));
    let scaled = api.patch(&path, MERGE, json!({"spec": {"replicas": 3}})).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 3);
    let whole = api.get(&format!("{all}/d")).await.ok();
    assert_eq!((&whole["spec"]["replicas"], &whole["metadata"]["generation"]), (&json!(3), &json!(2)));
    api.patch(&path, MERGE, json!({"spec": {"replicas": -1}}))
        .await
        .fails_with(422, "must be greater than or equal to 0");
    // Like every patch: typed clients send strategic ones, but not to custom kinds.
    let scaled_by = api.patch(&path, STRATEGIC, json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!(scaled_by["spec"]["replicas"], 4);
    let replaced = json!([{"op": "test", "path": "/spec/replicas", "value": 4}, {"op": "replace", "path": "/spec/replicas", "value": 2}]);
    assert_eq!(api.patch(&path, JSON_PATCH, replaced).await.ok()["spec"]["replicas"], 2);
    assert_eq!(api.patch(&path, STRATEGIC, json!([1])).await.code, 400);
    assert_eq!(api.patch(&path, "application/yaml", json!({})).await.code, 415);
    let mut stale = scaled;
    stale.set_at(&["metadata", "resourceVersion"], "1".into());
    assert_eq!(api.put(&path, stale).await.code, 409);
}

#[tokio::test]
async fn a_deployment_that_cannot_work_is_refused() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "deployments");
    let mut wrong = deployment("d");
    merge(&mut wrong, json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}));
    api.post(&all, wrong).await.fails(
        422,
        "Deployment.apps \"d\" is invalid: spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported \
         values: \"Always\"",
    );
    api.post(&all, deployment("d")).await.ok();
    let other = json!({"spec": {"selector": {"matchLabels": {"app": "e"}},
        "template": {"metadata": {"labels": {"app": "e"}}}}});
    api.patch(&format!("{all}/d"), MERGE, other).await.fails_with(422, "spec.selector: Invalid value: ");
    let named = api.post(&all, deployment("a.b")).await;
    let warned = named.warnings.iter().any(|warning| warning.contains("a DNS label is recommended"));
    // Only the client that names the object gets the warning about a dot.
    assert!(named.code == 201 && warned, "{named:?}");
}

#[tokio::test]
async fn an_applier_owns_one_container_of_the_template() {
    let api = Api::open().await;
    let path = format!("{}?fieldManager=one", api.group_path("apps/v1", "deployments/d"));
    api.patch(&path, APPLY, deployment("d")).await.ok();
    let mut second = deployment("d");
    merge(&mut second, json!({"spec": {"template": {"spec": {"containers": [{"name": "e", "image": "busybox:1"}]}}}}));
    let both = api.patch(&path.replace("=one", "=two"), APPLY, second).await.ok();
    let names: Vec<&Value> = both["spec"]["template"]["spec"]["containers"]
        .as_array()
        .map(|list| list.iter().map(|container| &container["name"]).collect())
        .unwrap_or_default();
    assert_eq!(names, ["c", "e"]);
}

#[tokio::test]
async fn a_table_has_the_columns_of_kubectl() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "deployments");
    api.post(&all, deployment("d")).await.ok();
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    let names: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(names, ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("d"), json!("0/0"), json!(0), json!(0)]);
    assert_eq!(cells[5..], [json!("c"), json!("busybox:1"), json!("app=d")]);
}

/// `kubectl create deployment` sends this form without discovery.
#[tokio::test]
async fn a_body_in_protobuf_is_one_too() {
    fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
        let content = content.as_ref();
        let length = u8::try_from(content.len()).expect("a short field");
        assert!(length < 0x80, "one byte tells the length");
        [&[number << 3 | 2, length], content].concat()
    }
    let api = Api::open().await;
    let labels = field(1, [field(1, "app"), field(2, "d")].concat());
    let container = [field(1, "c"), field(2, "busybox:1")].concat();
    let label = field(11, [field(1, "app"), field(2, "d")].concat());
    let template = [field(1, label), field(2, field(2, container))].concat();
    // spec: replicas 0, selector, template.
    let spec = [vec![1 << 3, 0], field(2, labels), field(3, template)].concat();
    let object = [field(1, field(1, "d")), field(2, spec)].concat();
    let meta = [field(1, "apps/v1"), field(2, "Deployment")].concat();
    let body = [b"k8s\0".to_vec(), field(1, meta), field(2, object)].concat();
    let headers = [("content-type", "application/vnd.kubernetes.protobuf"), ("accept", "application/json")];
    let made = api.send("POST", &api.group_path("apps/v1", "deployments"), &headers, body).await.ok();
    assert_eq!(made["spec"]["replicas"], 0);
    assert_eq!(made["spec"]["selector"]["matchLabels"], json!({"app": "d"}));
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["image"], "busybox:1");
}
