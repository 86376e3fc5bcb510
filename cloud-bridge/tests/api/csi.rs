//! The kinds of CSI: defaults, fields that stay, tables, and what a node may do with them.

use serde_json::{Value, json};

use crate::harness::{Api, MERGE, TABLE};

const GROUP: &str = "/apis/storage.k8s.io/v1";

async fn row(api: &Api, path: &str) -> Vec<Value> {
    let table = api.send("GET", path, &[("accept", TABLE)], Vec::new()).await.ok();
    table["rows"][0]["cells"].as_array().unwrap().clone()
}

#[tokio::test]
async fn driver_has_defaults_and_keeps_how_it_attaches() {
    let api = Api::open().await;
    let (drivers, name) = (format!("{GROUP}/csidrivers"), format!("{}.example.com", api.ns));
    let path = format!("{drivers}/{name}");
    let made = api.post(&drivers, json!({"metadata": {"name": name}, "spec": {"podInfoOnMount": true}})).await.ok();
    let spec = json!({"attachRequired": true, "podInfoOnMount": true, "storageCapacity": false, "seLinuxMount": false,
        "requiresRepublish": false, "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"]});
    assert_eq!(made["spec"], spec);
    let change = api.patch(&path, MERGE, json!({"spec": {"attachRequired": false}})).await;
    change.fails_with(422, "spec.attachedRequired: Invalid value: false: field is immutable");
    api.patch(&path, MERGE, json!({"spec": {"storageCapacity": true}})).await.ok();
    let cells = row(&api, &path).await;
    let shown = [json!(true), json!(true), json!(true), json!("<unset>"), json!(false), json!("Persistent")];
    assert_eq!(cells[1..7], shown);
    let wrong = json!({"metadata": {"name": format!("wrong-{name}")}, "spec": {"fsGroupPolicy": "Maybe"}});
    api.post(&drivers, wrong).await.fails_with(422, "spec.fsGroupPolicy: Unsupported value");
    let mut unversioned = api.get(&path).await.ok();
    unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    api.put(&path, unversioned).await.fails_with(422, "must be specified for an update");
    let gone = api.delete(&path, Value::Null).await.ok();
    assert_eq!(gone["kind"], "CSIDriver", "the deleted object is the answer");
}

#[tokio::test]
async fn status_of_an_attachment_is_written_by_its_driver() {
    let api = Api::open().await;
    let (all, name) = (format!("{GROUP}/volumeattachments"), format!("csi-{}", api.ns));
    let path = format!("{all}/{name}");
    let spec = json!({"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}});
    let given = json!({"metadata": {"name": name}, "spec": spec, "status": {"attached": true}});
    let made = api.post(&all, given).await.ok();
    assert_eq!(made["status"], json!({"attached": false}));
    let kept = api.patch(&path, MERGE, json!({"metadata": {"labels": {"a": "b"}}, "status": {"attached": true}})).await;
    assert_eq!(kept.ok()["status"], json!({"attached": false}));
    let change = api.patch(&path, MERGE, json!({"spec": {"nodeName": "other"}})).await;
    change.fails_with(422, "spec: Invalid value");
    let status = json!({"attached": true, "attachmentMetadata": {"device": "/dev/sdb"}});
    let written = json!({"metadata": {"labels": {"a": null}}, "spec": {"nodeName": "other"}, "status": status});
    let written = api.patch(&format!("{path}/status"), MERGE, written).await.ok();
    assert_eq!(
        (&written["spec"], &written["status"], &written["metadata"]["labels"]),
        (&spec, &status, &json!({"a": "b"}))
    );
    let cells = row(&api, &path).await;
    assert_eq!(cells[1..5], [json!("d.example.com"), json!("pv"), json!("n"), json!(true)]);
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    assert_eq!(api.send("GET", &path, &protobuf, Vec::new()).await.code, 200);
    api.delete(&path, Value::Null).await.ok();
}

#[tokio::test]
async fn node_writes_its_own_csi_node_and_reads_its_attachments() {
    let api = Api::open().await;
    let node = format!("node-{}", api.ns);
    let user = format!("system:node:{node}");
    let as_node = [("impersonate-user", user.as_str()), ("impersonate-group", "system:nodes")];
    let send = async |method: &str, path: &str, kind: &str, body: Value| {
        let headers: Vec<(&str, &str)> = as_node.into_iter().chain([("content-type", kind)]).collect();
        let body = if body.is_null() { Vec::new() } else { body.to_string().into() };
        api.send(method, path, &headers, body).await
    };
    let (nodes, own) = (format!("{GROUP}/csinodes"), format!("{GROUP}/csinodes/{node}"));
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": [{"name": "d.example.com", "nodeID": name}]}});
    let json_kind = "application/json";
    let other = "can only access CSINode with the same name as the requesting node";
    send("POST", &nodes, json_kind, named("other")).await.fails_with(403, other);
    send("POST", &nodes, json_kind, named(&node)).await.ok();
    let limit = json!({"spec": {"drivers": [{"name": "d.example.com", "nodeID": node, "allocatable": {"count": 3}}]}});
    send("PATCH", &own, MERGE, limit).await.ok();
    let moved = json!({"spec": {"drivers": [{"name": "d.example.com", "nodeID": "elsewhere"}]}});
    send("PATCH", &own, MERGE, moved).await.fails_with(422, "spec.drivers: Invalid value");
    assert_eq!(row(&api, &own).await[1], json!(1));
    send("GET", &nodes, json_kind, Value::Null).await.fails_with(403, "");
    send("GET", &format!("{GROUP}/csidrivers"), json_kind, Value::Null).await.ok();
    let all = format!("{GROUP}/volumeattachments");
    for (name, of) in [(format!("csi-{}-a", api.ns), node.as_str()), (format!("csi-{}-b", api.ns), "other")] {
        let spec = json!({"attacher": "d.example.com", "nodeName": of, "source": {"persistentVolumeName": "pv"}});
        api.post(&all, json!({"metadata": {"name": name}, "spec": spec})).await.ok();
        let path = format!("{all}/{name}");
        let seen = send("GET", &path, json_kind, Value::Null).await;
        assert_eq!(seen.code, if of == node { 200 } else { 403 }, "{}", seen.body);
        api.delete(&path, Value::Null).await.ok();
    }
    send("DELETE", &own, json_kind, Value::Null).await.ok();
}

#[tokio::test]
async fn capacity_of_a_class_changes_and_its_place_stays() {
    let api = Api::open().await;
    let all = api.group_path("storage.k8s.io/v1", "csistoragecapacities");
    let path = format!("{all}/a");
    let made = json!({"metadata": {"name": "a"}, "storageClassName": "fast", "capacity": "1024Mi",
        "nodeTopology": {"matchLabels": {"zone": "a"}}});
    assert_eq!(api.post(&all, made).await.ok()["capacity"], "1Gi");
    assert_eq!(api.patch(&path, MERGE, json!({"capacity": "5Gi"})).await.ok()["capacity"], "5Gi");
    let change = api.patch(&path, MERGE, json!({"storageClassName": "slow"})).await;
    change.fails_with(422, "storageClassName: Invalid value: \"slow\": field is immutable");
    assert_eq!(row(&api, &path).await, [json!("a"), json!("fast"), json!("5Gi")]);
}
