//! The state file: restarts and damage.

use apiserver::{Config, Server};
use serde_json::{Value, json};

use crate::harness::{Answer, Api, MERGE, config};

#[tokio::test]
async fn a_restart_keeps_objects_and_history() {
    let api = Api::embedded(|_| {});
    let made = api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    let changed = api.patch(&api.path("configmaps/c"), MERGE, json!({"data": {"n": "1"}})).await.ok();
    let second = api.reopen().await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = second.watch(&second.path(&format!("configmaps?watch=1&resourceVersion={version}"))).await;
    assert_eq!(watch.line().await, ("MODIFIED".to_owned(), "c".to_owned()));
    let next = second.patch(&second.path("configmaps/c"), MERGE, json!({"data": {"n": "2"}})).await.ok();
    let number = |v: &Value| v["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(number(&next) > number(&changed));
}

#[tokio::test]
async fn a_damaged_file_is_named_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.db");
    let rubbish = b"certainly no database, whatever its name says; and long enough to be looked at as one".to_vec();
    std::fs::write(&path, &rubbish).unwrap();
    let error = Server::open(Config::new(&path)).err().unwrap().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), rubbish);
}

#[tokio::test]
async fn a_second_server_on_one_file_is_refused() {
    let api = Api::embedded(|_| {});
    let error = Server::open(Config::new(api.folder().join("api.db"))).err().unwrap().to_string();
    assert!(error.contains("api.db") && error.contains("locked"), "{error}");
}

#[tokio::test]
async fn standing_namespaces() {
    let api = Api::embedded(|_| {});
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = api.get(&format!("/api/v1/namespaces/{name}")).await.ok();
        assert_eq!(namespace["status"]["phase"], "Active");
        assert_eq!(api.get(&format!("/api/v1/namespaces/{name}/serviceaccounts/default")).await.code, 200);
    }
}

#[tokio::test]
async fn what_a_power_cut_left_half_done_is_done_at_the_next_start() {
    let api = Api::embedded(|_| {});
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "half"}})).await.ok();
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    for name in ["bound", "gone"] {
        api.post("/api/v1/persistentvolumes", json!({"metadata": {"name": name}, "spec": spec})).await.ok();
        api.post(&api.path("persistentvolumeclaims"), claim(name)).await.ok();
        api.until(&api.path(&format!("persistentvolumeclaims/{name}")), |a| a.body["status"]["phase"] == "Bound").await;
    }
    // As after a power cut between an object and the write that follows it.
    let state = rusqlite::Connection::open(api.folder().join("api.db")).unwrap();
    state
        .execute_batch(
            "DELETE FROM objects WHERE storage = 'serviceaccounts' AND ns = 'half';
             DELETE FROM objects WHERE storage = 'persistentvolumeclaims' AND name = 'gone';
             UPDATE objects SET body = CAST(json_set(json_remove(body, '$.spec.volumeName'), '$.status', json('{\"phase\":\"Pending\"}')) AS BLOB)
                 WHERE storage = 'persistentvolumeclaims' AND name = 'bound'",
        )
        .unwrap();
    drop(state);
    let api = api.reopen().await;
    api.until("/api/v1/namespaces/half/serviceaccounts/default", |a| a.code == 200).await;
    let bound = |a: &Answer| a.body["status"]["phase"] == "Bound" && a.body["spec"]["volumeName"] == "bound";
    api.until(&api.path("persistentvolumeclaims/bound"), bound).await;
    api.until("/api/v1/persistentvolumes/gone", |a| a.body["status"]["phase"] == "Released").await;
}
