//! Controllers that react to writes: they keep up with many writes, delay no client, and complete their work after an
//! error or a crash between two of their writes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Api, MERGE, config, pod};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Runs SQL on the state file, for a change that no request can make.
fn sql(api: &Api, text: &str) {
    let state = rusqlite::Connection::open(api.folder().join("api.db")).unwrap();
    state.busy_timeout(Duration::from_secs(5)).unwrap();
    state.execute_batch(text).unwrap();
}

/// Creates many copies of a ConfigMap `c0`: `c1`, `c2` and so on, with its owners.
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

/// Creates an owner with this number of dependents, and returns the API after a restart.
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

/// Number of ConfigMaps with these names.
async fn count(api: &Api, path: &str) -> usize {
    let list = api.get(&format!("{path}?limit=100")).await;
    let rest = list.body["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    let names = list.body["items"].as_array().into_iter().flatten();
    let rest = usize::try_from(rest).unwrap();
    names.filter(|one| one["metadata"]["name"].as_str().is_some_and(|name| name.starts_with('c'))).count() + rest
}

/// Waits until none is left, and returns the time of the slowest answer.
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
    // A controller removes the finalizer when no pod uses the object; this API does not have it.
    let free = json!({"metadata": {"finalizers": null}});
    api.patch(&api.path(&format!("persistentvolumeclaims/{gone}")), MERGE, free).await.ok();
    let volume = format!("/api/v1/persistentvolumes/{}", claim["spec"]["volumeName"].as_str().unwrap());
    api.until(&volume, |answer| answer.body["status"]["phase"] == "Released").await;
}

/// Created for a claim that was deleted before they were bound: no other claim gets the volume, and its provisioner
/// deletes it.
#[tokio::test]
async fn a_volume_for_a_claim_that_is_no_more_is_released() {
    let api = Api::embedded(|_| {});
    let reference = json!({"namespace": "default", "name": "gone", "uid": "u1"});
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, "claimRef": reference});
    api.post("/api/v1/persistentvolumes", json!({"metadata": {"name": "left"}, "spec": spec})).await.ok();
    api.until("/api/v1/persistentvolumes/left", |answer| answer.body["status"]["phase"] == "Released").await;
}

/// The account is created after the answer, as in Kubernetes, but while the client receives the answer.
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

/// The ServiceAccount admission of Kubernetes refuses a pod until its account exists, and so does this one.
#[tokio::test]
async fn a_pod_waits_for_the_account_of_its_namespace() {
    let api = Api::embedded(|_| {});
    sql(
        &api,
        "CREATE TRIGGER fails BEFORE INSERT ON objects WHEN NEW.storage = 'serviceaccounts'
             BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "late"}})).await.ok();
    let account = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        sql(&api, "DROP TRIGGER fails");
        // The controller may have created it at this moment.
        api.post("/api/v1/namespaces/late/serviceaccounts", json!({"metadata": {"name": "default"}})).await
    };
    let (made, _) = futures::join!(api.post("/api/v1/namespaces/late/pods", pod("p")), account);
    made.ok();
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

/// A definition of `things.example.com`.
fn things(scope: &str) -> Value {
    json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": scope, "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

fn thing(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}})
}

/// The owners are deleted with their definition: their kind no longer shows whether one existed.
#[tokio::test]
async fn a_definition_takes_what_its_objects_own_along() {
    let api = Api::embedded(|_| {});
    api.post(DEFINITIONS, things("Namespaced")).await.ok();
    let path = format!("/apis/example.com/v1/namespaces/{}/things", api.ns);
    api.until(&path, |answer| answer.code == 200).await;
    for number in 0..100 {
        let thing = api.post(&path, thing(&format!("t{number}"))).await.ok();
        let mut map = config(&format!("c{number}"), json!({}));
        map["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Thing",
            "name": thing["metadata"]["name"], "uid": thing["metadata"]["uid"]}]);
        api.post(&api.path("configmaps"), map).await.ok();
    }
    api.delete(&format!("{DEFINITIONS}/things.example.com"), Value::Null).await.ok();
    api.until(&path, |answer| answer.code == 404).await;
    gone(&api, &api.path("configmaps")).await;
}

/// The objects and their dependents are cluster-scoped; when they are looked up their kind is no longer served.
#[tokio::test]
async fn a_definition_of_the_cluster_takes_what_its_objects_own_along() {
    const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
    let api = Api::embedded(|_| {});
    api.post(DEFINITIONS, things("Cluster")).await.ok();
    let path = "/apis/example.com/v1/things";
    api.until(path, |answer| answer.code == 200).await;
    for number in 0..20 {
        let thing = api.post(path, thing(&format!("t{number}"))).await.ok();
        let class = json!({"handler": "runc", "metadata": {"name": format!("c{number}"), "ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": "Thing", "name": thing["metadata"]["name"],
                "uid": thing["metadata"]["uid"]}]}});
        api.post(CLASSES, class).await.ok();
    }
    api.delete(&format!("{DEFINITIONS}/things.example.com"), Value::Null).await.ok();
    api.until(path, |answer| answer.code == 404).await;
    gone(&api, CLASSES).await;
}

#[tokio::test]
async fn deleted_definition_without_objects_serves_nothing() {
    let api = Api::embedded(|_| {});
    let mut definition = things("Namespaced");
    definition["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(DEFINITIONS, definition).await.ok();
    let (path, at) = (api.group_path("example.com/v1", "things"), format!("{DEFINITIONS}/things.example.com"));
    api.until(&path, |answer| answer.code == 200).await;
    let mut held = thing("t");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(&path, held).await.ok();
    api.delete(&at, Value::Null).await.ok();
    let one = format!("{path}/t");
    api.until(&one, |answer| answer.body["metadata"]["deletionTimestamp"].is_string()).await;
    let refusal = "things.example.com \"u\" is forbidden: \
                   create not allowed while custom resource definition is terminating";
    api.post(&path, thing("u")).await.fails(403, refusal);
    let free = json!({"metadata": {"finalizers": null}});
    api.patch(&one, MERGE, free.clone()).await.ok();
    api.until(&path, |answer| answer.code == 404).await;
    // This definition is looked at after the other one.
    let mut next = things("Namespaced");
    next["metadata"]["name"] = json!("others.example.com");
    next["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
    api.post(DEFINITIONS, next).await.ok();
    api.until(&api.group_path("example.com/v1", "others"), |answer| answer.code == 200).await;
    assert_eq!(api.get(&path).await.code, 404);
    let api = api.reopen().await;
    assert_eq!(api.get(&path).await.code, 404);
    assert_eq!(api.get(&at).await.ok()["metadata"]["finalizers"], json!(["example.com/hold"]));
    api.patch(&at, MERGE, free).await.ok();
    api.until(&at, |answer| answer.code == 404).await;
}

/// Otherwise the next tenant with this name would find them when their kind is served again.
#[tokio::test]
async fn a_namespace_does_not_go_before_what_is_not_served() {
    let api = Api::embedded(|_| {});
    let mut definition = things("Namespaced");
    api.post(DEFINITIONS, definition.clone()).await.ok();
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "tenant"}})).await.ok();
    let path = "/apis/example.com/v1/namespaces/tenant/things";
    api.until(path, |answer| answer.code == 200).await;
    api.post(path, thing("t")).await.ok();
    sql(
        &api,
        "INSERT INTO objects (storage, ns, name, uid, rev, body)
             SELECT 'unknown.example.com', ns, name, 'u', rev, body FROM objects WHERE storage = 'things.example.com'",
    );
    let at = format!("{DEFINITIONS}/things.example.com");
    let serve = |served: bool| {
        let mut versions = things("Namespaced")["spec"]["versions"].take();
        versions[0]["served"] = json!(served);
        json!({"spec": {"versions": versions}})
    };
    api.patch(&at, MERGE, serve(false)).await.ok();
    api.until(path, |answer| answer.code == 404).await;
    api.delete("/api/v1/namespaces/tenant", Value::Null).await.ok();
    // This namespace is looked at after the other one.
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "next"}})).await.ok();
    api.delete("/api/v1/namespaces/next", Value::Null).await.ok();
    api.until("/api/v1/namespaces/next", |answer| answer.code == 404).await;
    assert_eq!(api.get("/api/v1/namespaces/tenant").await.ok()["status"]["phase"], "Terminating");
    // The known part of the other one is enough to delete it.
    definition["metadata"]["name"] = json!("unknown.example.com");
    definition["spec"]["names"] = json!({"plural": "unknown", "kind": "Unknown"});
    api.post(DEFINITIONS, definition).await.ok();
    api.until("/api/v1/namespaces/tenant", |answer| answer.code == 404).await;
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "tenant"}})).await.ok();
    api.patch(&at, MERGE, serve(true)).await.ok();
    let list = api.until(path, |answer| answer.code == 200).await;
    assert_eq!(list.body["items"], json!([]));
}
