//! Rights of a node's identity.

use serde_json::{Value, json};

use crate::harness::{Answer, Api, JSON, MERGE, pod};

struct Node<'a> {
    api: &'a Api,
    name: String,
}

impl Node<'_> {
    async fn send(&self, method: &str, path: &str, kind: &str, body: Value) -> Answer {
        let user = format!("system:node:{}", self.name);
        let headers =
            [("impersonate-user", user.as_str()), ("impersonate-group", "system:nodes"), ("content-type", kind)];
        let body = if body.is_null() { Vec::new() } else { body.to_string().into() };
        self.api.send(method, path, &headers, body).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, JSON, Value::Null).await
    }
}

fn bound(name: &str, node: &str) -> Value {
    let mut object = pod(name);
    object["spec"]["nodeName"] = json!(node);
    object["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "used"}}]);
    object
}

#[tokio::test]
async fn a_node_sees_only_what_its_pods_name() {
    let api = Api::open().await;
    let node = Node { api: &api, name: format!("node-{}", api.ns) };
    for name in ["used", "other"] {
        api.post(&api.path("secrets"), json!({"metadata": {"name": name}})).await.ok();
    }
    let none = format!("no relationship found between node '{}' and this object", node.name);
    node.get(&api.path("secrets/used")).await.fails_with(403, &none);
    api.post(&api.path("pods"), bound("p", &node.name)).await.ok();
    // The graph of a real authorizer is updated by its watch.
    for _ in 0..50 {
        if node.get(&api.path("secrets/used")).await.code == 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    node.get(&api.path("secrets/used")).await.ok();
    node.get(&api.path("secrets/other")).await.fails_with(403, &none);
    node.get(&api.path("secrets")).await.fails_with(403, "No Object name found");
    node.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", node.name)).await.ok();
    node.get("/api/v1/pods").await.fails_with(403, "can only list/watch pods with spec.nodeName field selector");
    node.send("POST", &api.path("configmaps"), JSON, json!({"metadata": {"name": "x"}}))
        .await
        .fails_with(403, "can only read resources of this type");
    api.delete(&api.path("pods/p"), json!({"gracePeriodSeconds": 0})).await.ok();
}

#[tokio::test]
async fn a_node_writes_only_itself() {
    let api = Api::open().await;
    let node = Node { api: &api, name: format!("node-{}", api.ns) };
    let path = format!("/api/v1/nodes/{}", node.name);
    let own = json!({"metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name}}});
    node.send("POST", "/api/v1/nodes", JSON, own).await.ok();
    node.send("POST", "/api/v1/nodes", JSON, json!({"metadata": {"name": "another"}}))
        .await
        .fails_with(403, &format!("node \"{}\" is not allowed to modify node \"another\"", node.name));
    node.send("PATCH", &path, MERGE, json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}))
        .await
        .fails_with(403, "is not allowed to modify taints");
    node.send("PATCH", &path, MERGE, json!({"metadata": {"labels": {"x.kubernetes.io/y": "1"}}}))
        .await
        .fails_with(403, "is not allowed to modify labels: x.kubernetes.io/y");
    let status = json!({"status": {"capacity": {"cpu": "1"}}});
    node.send("PATCH", &format!("{path}/status"), MERGE, status).await.ok();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    node.send("POST", leases, JSON, json!({"metadata": {"name": node.name}, "spec": {"holderIdentity": node.name}}))
        .await
        .ok();
    node.send("POST", leases, JSON, json!({"metadata": {"name": "another"}}))
        .await
        .fails_with(403, "can only access node lease with the same name as the requesting node");
    node.send("DELETE", &format!("{leases}/{}", node.name), JSON, Value::Null).await.ok();
    api.delete(&path, Value::Null).await.ok();
}

#[tokio::test]
async fn a_node_reports_only_its_pods() {
    let api = Api::open().await;
    let node = Node { api: &api, name: format!("node-{}", api.ns) };
    api.post(&api.path("secrets"), json!({"metadata": {"name": "used"}})).await.ok();
    api.post(&api.path("pods"), bound("mine", &node.name)).await.ok();
    api.post(&api.path("pods"), bound("theirs", "elsewhere")).await.ok();
    let status = json!({"status": {"phase": "Running"}});
    node.send("PATCH", &api.path("pods/mine/status"), MERGE, status.clone()).await.ok();
    node.send("PATCH", &api.path("pods/theirs/status"), MERGE, status)
        .await
        .fails_with(403, "can only update pod status for pods with spec.nodeName set to itself");
    node.send("DELETE", &api.path("pods/theirs"), JSON, json!({"gracePeriodSeconds": 0}))
        .await
        .fails_with(403, "can only delete pods with spec.nodeName set to itself");
    node.send("POST", &api.path("pods"), JSON, bound("new", &node.name))
        .await
        .fails_with(403, "can only create mirror pods");
    node.send("DELETE", &api.path("pods/mine"), JSON, json!({"gracePeriodSeconds": 0})).await.ok();
    api.delete(&api.path("pods/theirs"), json!({"gracePeriodSeconds": 0})).await.ok();
}

#[tokio::test]
async fn mirror_pods_belong_to_their_node() {
    let api = Api::open().await;
    let node = Node { api: &api, name: format!("node-{}", api.ns) };
    let made = node.send("POST", "/api/v1/nodes", JSON, json!({"metadata": {"name": node.name}})).await.ok();
    let mut mirror = pod("static");
    mirror["spec"]["nodeName"] = json!(node.name);
    mirror["spec"].as_object_mut().unwrap().remove("automountServiceAccountToken");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    node.send("POST", &api.path("pods"), JSON, mirror.clone())
        .await
        .fails_with(403, "an owner reference set to itself");
    mirror["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": made["metadata"]["uid"], "controller": true,
    }]);
    let pod = node.send("POST", &api.path("pods"), JSON, mirror).await.ok();
    assert!(pod["spec"].get("serviceAccountName").is_none());
    api.delete(&format!("/api/v1/nodes/{}", node.name), Value::Null).await.ok();
    if !api.real {
        api.until(&api.path("pods/static"), |a| a.code == 404 || a.body["metadata"]["deletionTimestamp"].is_string())
            .await;
    }
    api.delete(&api.path("pods/static"), json!({"gracePeriodSeconds": 0})).await;
}
