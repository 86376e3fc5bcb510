//! The subresources of pods.

use sampan_json::SetField;
use serde_json::{Value, json};

use crate::harness::{Api, MERGE, merge, pod};

#[tokio::test]
async fn binding() {
    let api = Api::open().await;
    api.post(&api.path("pods"), pod("p")).await.ok();
    let bind = |node: &str| json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    let done = api.post(&api.path("pods/p/binding"), bind("n1")).await;
    assert_eq!((done.code, &done.body["status"]), (201, &json!("Success")));
    let bound = api.get(&api.path("pods/p")).await.ok();
    assert_eq!(bound["spec"]["nodeName"], "n1");
    let condition = &bound["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("True")));
    api.post(&api.path("pods/p/binding"), bind("n2"))
        .await
        .fails(409, "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\"");
}

#[tokio::test]
async fn eviction_deletes_with_grace() {
    let api = Api::open().await;
    let mut object = pod("p");
    object["spec"]["nodeName"] = json!("n1");
    api.post(&api.path("pods"), object).await.ok();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 7}});
    assert_eq!(api.post(&api.path("pods/p/eviction"), eviction).await.code, 201);
    let dying = api.get(&api.path("pods/p")).await.ok();
    assert_eq!(dying["metadata"]["deletionGracePeriodSeconds"], 7);
    api.delete(&api.path("pods/p"), json!({"gracePeriodSeconds": 0})).await.ok();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    assert_eq!(api.post(&api.path("pods/p/eviction"), eviction).await.code, 404);
}

#[tokio::test]
async fn which_log() {
    let api = Api::open().await;
    let mut two = pod("two");
    two["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "d", "image": "i"}));
    two["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}]);
    api.post(&api.path("pods"), two).await.ok();
    let log = |query: &str| api.path(&format!("pods/two/log{query}"));
    api.get(&log("")).await.fails(400, "a container name must be specified for pod two, choose one of: [i c d]");
    api.get(&log("?container=zz")).await.fails(400, "container zz is not valid for pod two");
    let unscheduled = api.get(&log("?container=c")).await;
    assert_eq!((unscheduled.code, unscheduled.body), (204, Value::String(String::new())));
    api.get(&log("?container=c&tailLines=-1")).await.fails_with(
        422,
        "PodLogOptions \"two\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
    );
    assert_eq!(api.get(&api.path("pods/none/log")).await.code, 404);
}

#[tokio::test]
async fn a_pod_needs_its_service_account() {
    let api = Api::open().await;
    let mut object = pod("p");
    object["spec"]["serviceAccountName"] = json!("nobody");
    api.post(&api.path("pods"), object).await.fails(
        403,
        &format!(
            "pods \"p\" is forbidden: error looking up service account {}/nobody: serviceaccount \"nobody\" not found",
            api.ns
        ),
    );
    let mut object = pod("p");
    object["spec"]["priorityClassName"] = json!("none");
    api.post(&api.path("pods"), object)
        .await
        .fails(403, "pods \"p\" is forbidden: no PriorityClass with name none was found");
}

#[tokio::test]
async fn a_pod_is_asked_through_the_api() {
    let api = Api::open().await;
    let mut made = pod("p");
    merge(&mut made, json!({"spec": {"nodeName": "n"}}));
    api.post(&api.path("pods"), made).await.ok();
    let path = |name: &str| api.path(&format!("pods/{name}/proxy/x"));
    api.get(&path("p")).await.fails_with(400, "address not allowed");
    api.get(&path("q")).await.fails_with(404, "not found");
    let at = |ip: &str| json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
    api.patch(&api.path("pods/p/status"), MERGE, at("169.254.169.254")).await.ok();
    api.get(&path("p")).await.fails_with(400, "address not allowed");
    api.patch(&api.path("pods/p/status"), MERGE, at("10.1.1.1")).await.ok();
    for wrong in ["ftp:p:80", "::80"] {
        api.get(&path(wrong)).await.fails_with(400, &format!("invalid pod request \"{wrong}\""));
    }
    // Other results depend on the network of the API server.
    if api.real {
        return;
    }
    for wrong in ["p:0", "p:65536", "p:http"] {
        api.get(&path(wrong)).await.fails_with(400, &format!("invalid pod request \"{wrong}\""));
    }
    api.get(&path("https:p:443")).await.fails_with(503, "no node is connected");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        // The body is for the pod, with any content type; no pod receives it here.
        let called = [("content-type", "application/vnd.kubernetes.protobuf")];
        let answer = api.send(method, &path("http:p:8080"), &called, b"{".to_vec()).await;
        assert_eq!(answer.code, 503, "{method}: {}", answer.body);
    }
    let moved = api.send("GET", &api.path("pods/p/proxy?a=b"), &[], Vec::new()).await;
    assert_eq!(moved.code, 301);
}

#[tokio::test]
async fn tolerations_that_an_update_leaves_out_are_put_back() {
    let api = Api::open().await;
    let mut made = api.post(&api.path("pods"), pod("p")).await.ok();
    let own = json!([{"key": "own", "operator": "Exists", "effect": "NoSchedule"}]);
    made.set_at(&["spec", "tolerations"], own);
    let changed = api.put(&api.path("pods/p"), made).await.ok();
    let keys: Vec<&Value> = changed["spec"]["tolerations"].as_array().unwrap().iter().map(|t| &t["key"]).collect();
    assert_eq!(keys, ["own", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    assert_eq!(changed["metadata"]["generation"], 2);
}
