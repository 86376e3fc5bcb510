//! What follows from writes: it keeps up with many of them, nobody waits for it, and neither an error nor a crash between
//! two of its writes leaves anything undone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Api, config, pod};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Runs SQL on the state file, as no request would.
fn sql(api: &Api, text: &str) {
    let state = rusqlite::Connection::open(api.folder().join("api.db")).unwrap();
    state.busy_timeout(Duration::from_secs(5)).unwrap();
    state.execute_batch(text).unwrap();
}

/// Makes many of a ConfigMap `c0`: `c1`, `c2` and so on, with its owners.
fn multiply(api: &Api, namespace: &str, count: usize) {
    sql(
        api,
        &format!(
            "BEGIN;
             INSERT INTO objects (storage, ns, name, uid, rev, body)
                 WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count})
                 SELECT storage, ns, 'c' || n, uid || n, rev, CAST(json_set(body, '$.metadata.name', 'c' || n,
                     '$.metadata.uid', uid || n) AS BLOB)
                 FROM objects, number WHERE storage = 'configmaps' AND ns = '{namespace}' AND name = 'c0';
             INSERT INTO owners (owner, storage, ns, name)
                 WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count})
                 SELECT owner, storage, ns, 'c' || n FROM owners, number WHERE ns = '{namespace}' AND name = 'c0';
             COMMIT"
        ),
    );
}

/// An owner and as many dependents, and the API as after a restart.
async fn with_dependents(api: Api, count: usize) -> Api {
    let path = api.path("configmaps");
    let owner = api.post(&path, config("owner", json!({}))).await.ok();
    let mut dependent = config("c0", json!({}));
    dependent["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
    api.post(&path, dependent).await.ok();
    multiply(&api, &api.ns, count - 1);
    api.reopen().await
}

/// How many ConfigMaps of these names there are.
async fn count(api: &Api, path: &str) -> usize {
    let list = api.get(&format!("{path}?limit=100")).await;
    let rest = list.body["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    let names = list.body["items"].as_array().into_iter().flatten();
    let rest = usize::try_from(rest).unwrap();
    names.filter(|one| one["metadata"]["name"].as_str().is_some_and(|name| name.starts_with('c'))).count() + rest
}

/// Waits until none is left, and tells how long the slowest answer took.
async fn gone(api: &Api, path: &str) -> Duration {
    let (end, mut slowest) = (Instant::now() + Duration::from_secs(120), Duration::ZERO);
    loop {
        let asked = Instant::now();
        let left = count(api, path).await;
        slowest = slowest.max(asked.elapsed());
        if left == 0 {
            return slowest;
        }
        assert!(Instant::now() < end, "{left} are left of {path}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn ten_thousand_objects_at_the_start_keep_nobody_waiting() {
    let api = with_dependents(Api::embedded(|_| {}), 10_000).await;
    let mut slowest = Duration::ZERO;
    for number in 0..50 {
        let asked = Instant::now();
        api.post(&api.path("secrets"), json!({"metadata": {"name": format!("s{number}")}})).await.ok();
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

#[tokio::test]
async fn five_thousand_dependents_go_and_others_have_their_turn() {
    let api = with_dependents(Api::embedded(|_| {}), 5000).await;
    api.delete(&api.path("configmaps/owner"), json!({"propagationPolicy": "Foreground"})).await.ok();
    let slowest = gone(&api, &api.path("configmaps")).await;
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    api.until(&api.path("configmaps/owner"), |answer| answer.code == 404).await;
}

#[tokio::test]
async fn a_namespace_with_two_thousand_objects_goes() {
    let api = Api::embedded(|_| {});
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "full"}})).await.ok();
    let path = "/api/v1/namespaces/full/configmaps";
    api.post(path, config("c0", json!({}))).await.ok();
    multiply(&api, "full", 1999);
    api.delete("/api/v1/namespaces/full", Value::Null).await.ok();
    let slowest = gone(&api, path).await;
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    api.until("/api/v1/namespaces/full", |answer| answer.code == 404).await;
}

#[tokio::test]
async fn a_collection_of_owners_takes_all_dependents_along() {
    let api = Api::embedded(|_| {});
    for number in 0..50 {
        let secret = json!({"metadata": {"name": format!("s{number}"), "labels": {"own": "some"}}});
        let secret = api.post(&api.path("secrets"), secret).await.ok();
        for child in 0..4 {
            let mut map = config(&format!("c{number}-{child}"), json!({}));
            map["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Secret",
                "name": secret["metadata"]["name"], "uid": secret["metadata"]["uid"]}]);
            api.post(&api.path("configmaps"), map).await.ok();
        }
    }
    api.delete(&api.path("secrets?labelSelector=own"), Value::Null).await.ok();
    gone(&api, &api.path("configmaps")).await;
}

#[tokio::test]
async fn claims_are_bound_one_to_one() {
    const MANY: usize = 200;
    let api = Api::embedded(|_| {});
    for number in 0..MANY {
        let spec =
            json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
        let volume = json!({"metadata": {"name": format!("v{number}")}, "spec": spec});
        api.post("/api/v1/persistentvolumes", volume).await.ok();
    }
    for number in 0..MANY {
        let claim = json!({"metadata": {"name": format!("c{number}")}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
        api.post(&api.path("persistentvolumeclaims"), claim).await.ok();
    }
    let bound = |list: &Value| -> std::collections::BTreeSet<String> {
        let items = list["items"].as_array().into_iter().flatten();
        items.filter_map(|claim| claim["spec"]["volumeName"].as_str()).map(str::to_owned).collect()
    };
    let all = |list: &Value| bound(list).len() == MANY;
    api.until(&api.path("persistentvolumeclaims"), |answer| all(&answer.body)).await;
    let gone = "c7";
    let claim = api.get(&api.path(&format!("persistentvolumeclaims/{gone}"))).await.ok();
    api.delete(&api.path(&format!("persistentvolumeclaims/{gone}")), Value::Null).await.ok();
    let volume = format!("/api/v1/persistentvolumes/{}", claim["spec"]["volumeName"].as_str().unwrap());
    api.until(&volume, |answer| answer.body["status"]["phase"] == "Released").await;
}

/// The account is made after the answer, as in Kubernetes, but while it is on its way.
#[tokio::test]
async fn a_new_namespace_takes_pods_at_once() {
    let api = Api::embedded(|_| {});
    for number in 0..30 {
        let name = format!("new-{number}");
        api.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await.ok();
        api.post(&format!("/api/v1/namespaces/{name}/pods"), pod("p")).await.ok();
    }
}

#[tokio::test]
async fn a_write_does_not_fail_with_what_follows_it() {
    let api = Api::embedded(|_| {});
    sql(
        &api,
        "CREATE TRIGGER fails BEFORE INSERT ON objects WHEN NEW.storage = 'serviceaccounts'
             BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "late"}})).await.ok();
    api.post("/api/v1/namespaces/late/pods", pod("p"))
        .await
        .fails_with(403, "error looking up service account late/default: serviceaccount \"default\" not found");
    sql(&api, "DROP TRIGGER fails");
    api.until("/api/v1/namespaces/late/serviceaccounts/default", |answer| answer.code == 200).await;
}

#[tokio::test]
async fn the_next_start_ends_what_a_crash_cut_short() {
    for policy in ["Foreground", "Background", "Orphan"] {
        let api = with_dependents(Api::embedded(|_| {}), 500).await;
        api.delete(&api.path("configmaps/owner"), json!({"propagationPolicy": policy})).await.ok();
        let api = api.reopen().await;
        api.until(&api.path("configmaps/owner"), |answer| answer.code == 404).await;
        if policy == "Orphan" {
            let list = api.get(&api.path("configmaps")).await.ok();
            let owned =
                list["items"].as_array().unwrap().iter().filter(|c| !c["metadata"]["ownerReferences"].is_null());
            assert_eq!((owned.count(), count(&api, &api.path("configmaps")).await), (0, 500));
        } else {
            gone(&api, &api.path("configmaps")).await;
        }
    }
    let api = Api::embedded(|_| {});
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "full"}})).await.ok();
    api.post("/api/v1/namespaces/full/configmaps", config("c0", json!({}))).await.ok();
    multiply(&api, "full", 500);
    api.delete("/api/v1/namespaces/full", Value::Null).await.ok();
    let api = api.reopen().await;
    api.until("/api/v1/namespaces/full", |answer| answer.code == 404).await;
}

/// The owners go with their definition: nobody could judge by its kind whether one was there.
#[tokio::test]
async fn a_definition_takes_what_its_objects_own_along() {
    let api = Api::embedded(|_| {});
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    api.post(DEFINITIONS, definition).await.ok();
    let path = format!("/apis/example.com/v1/namespaces/{}/things", api.ns);
    api.until(&path, |answer| answer.code == 200).await;
    for number in 0..100 {
        let thing =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": format!("t{number}")}});
        let thing = api.post(&path, thing).await.ok();
        let mut map = config(&format!("c{number}"), json!({}));
        map["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Thing",
            "name": thing["metadata"]["name"], "uid": thing["metadata"]["uid"]}]);
        api.post(&api.path("configmaps"), map).await.ok();
    }
    api.delete(&format!("{DEFINITIONS}/things.example.com"), Value::Null).await.ok();
    api.until(&path, |answer| answer.code == 404).await;
    gone(&api, &api.path("configmaps")).await;
}
