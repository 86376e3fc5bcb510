//! Deletion: grace, finalizers, owners, namespaces.

use serde_json::{Value, json};

use crate::harness::{Answer, Api, MERGE, config, pod};

async fn running(api: &Api, name: &str) -> Value {
    let mut object = pod(name);
    object["spec"]["nodeName"] = json!("nowhere");
    api.post(&api.path("pods"), object).await.ok();
    api.patch(&api.path(&format!("pods/{name}/status")), MERGE, json!({"status": {"phase": "Running"}})).await.ok()
}

#[tokio::test]
async fn a_running_pod_gets_its_grace() {
    let api = Api::open().await;
    let path = api.path("pods/p");
    running(&api, "p").await;
    let dying = api.delete(&path, Value::Null).await.ok();
    assert_eq!(dying["kind"], "Pod");
    assert_eq!(dying["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(dying["metadata"]["generation"], 2);
    let again = api.delete(&path, Value::Null).await.ok();
    assert_eq!(
        again["metadata"]["resourceVersion"], dying["metadata"]["resourceVersion"],
        "a second deletion changes nothing"
    );
    let longer = api.delete(&path, json!({"gracePeriodSeconds": 60})).await.ok();
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 30);
    let shorter = api.delete(&path, json!({"gracePeriodSeconds": 10})).await.ok();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 10);
    api.delete(&path, json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}}))
        .await
        .fails_with(409, "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (other) does not match the UID in record (");
    let uid = &dying["metadata"]["uid"];
    api.delete(&path, json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

#[tokio::test]
async fn pods_without_a_process_go_at_once() {
    let api = Api::open().await;
    api.post(&api.path("pods"), pod("unbound")).await.ok();
    api.delete(&api.path("pods/unbound"), Value::Null).await.ok();
    assert_eq!(api.get(&api.path("pods/unbound")).await.code, 404);
    running(&api, "done").await;
    api.patch(&api.path("pods/done/status"), MERGE, json!({"status": {"phase": "Succeeded"}})).await.ok();
    api.delete(&api.path("pods/done"), Value::Null).await.ok();
    assert_eq!(api.get(&api.path("pods/done")).await.code, 404);
}

#[tokio::test]
async fn finalizers_hold() {
    let api = Api::open().await;
    let path = api.path("configmaps/c");
    let mut object = config("c", json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(&api.path("configmaps"), object).await.ok();
    let held = api.delete(&path, Value::Null).await.ok();
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    api.patch(&path, MERGE, json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}))
        .await
        .fails_with(
            422,
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted",
        );
    let body = api.post(&api.path("configmaps"), config("c", json!({}))).await;
    assert_eq!(
        (body.code, &body.body["message"]),
        (409, &json!("object is being deleted: configmaps \"c\" already exists"))
    );
    api.patch(&path, MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

#[tokio::test]
async fn collections_by_selector() {
    let api = Api::open().await;
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
        api.post(&api.path("configmaps"), config(name, json!({"l": label}))).await.ok();
    }
    let gone = api.delete(&api.path("configmaps?labelSelector=l%3Dx"), Value::Null).await.ok();
    assert_eq!(gone["items"].as_array().unwrap().len(), 2);
    let left = api.get(&api.path("configmaps?labelSelector=l")).await.ok();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

async fn owned(api: &Api, owner: &Value, name: &str, block: bool) {
    let mut object = config(name, json!({}));
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }]);
    api.post(&api.path("configmaps"), object).await.ok();
}

#[tokio::test]
async fn dependents_follow_their_owner() {
    let api = Api::open().await;
    let owner = api.post(&api.path("configmaps"), config("owner", json!({}))).await.ok();
    owned(&api, &owner, "child", false).await;
    api.delete(&api.path("configmaps/owner"), json!({"propagationPolicy": "Background"})).await.ok();
    assert_eq!(api.get(&api.path("configmaps/owner")).await.code, 404);
    api.until(&api.path("configmaps/child"), |a| a.code == 404).await;
}

#[tokio::test]
async fn in_the_foreground_the_owner_waits() {
    let api = Api::open().await;
    let owner = api.post(&api.path("configmaps"), config("owner", json!({}))).await.ok();
    owned(&api, &owner, "child", true).await;
    api.patch(&api.path("configmaps/child"), MERGE, json!({"metadata": {"finalizers": ["example.com/hold"]}}))
        .await
        .ok();
    let waiting = api.delete(&api.path("configmaps/owner"), json!({"propagationPolicy": "Foreground"})).await.ok();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    api.until(&api.path("configmaps/child"), |a| a.body["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(api.get(&api.path("configmaps/owner")).await.code, 200);
    api.patch(&api.path("configmaps/child"), MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
    api.until(&api.path("configmaps/owner"), |a| a.code == 404).await;
    assert_eq!(api.get(&api.path("configmaps/child")).await.code, 404);
}

#[tokio::test]
async fn orphans_stay() {
    let api = Api::open().await;
    let owner = api.post(&api.path("configmaps"), config("owner", json!({}))).await.ok();
    owned(&api, &owner, "child", false).await;
    api.delete(&api.path("configmaps/owner"), json!({"propagationPolicy": "Orphan"})).await.ok();
    api.until(&api.path("configmaps/owner"), |a| a.code == 404).await;
    let child = api.get(&api.path("configmaps/child")).await.ok();
    assert!(child["metadata"].get("ownerReferences").is_none());
}

#[tokio::test]
async fn an_owner_that_never_was() {
    let api = Api::open().await;
    let owner = json!({"metadata": {"name": "ghost", "uid": "no-such-uid"}});
    owned(&api, &owner, "child", false).await;
    api.until(&api.path("configmaps/child"), |a| a.code == 404).await;
    let mut object = config("kept", json!({}));
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "example.com/v1", "kind": "Unknown", "name": "x", "uid": "y"}]);
    api.post(&api.path("configmaps"), object).await.ok();
    // This one is judged after it.
    owned(&api, &owner, "later", false).await;
    api.until(&api.path("configmaps/later"), |a| a.code == 404).await;
    assert_eq!(api.get(&api.path("configmaps/kept")).await.code, 200, "a kind that is not served cannot be judged");
}

/// Owners are looked up by kind and name, and then compared by uid.
#[tokio::test]
async fn an_owner_of_another_name_or_kind_is_gone() {
    let api = Api::open().await;
    let owner = api.post(&api.path("configmaps"), config("owner", json!({}))).await.ok();
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    for (name, field, value) in [("kind", "kind", "Secret"), ("name", "name", "other"), ("right", "name", "owner")] {
        let mut object = config(name, json!({}));
        let mut reference = reference.clone();
        reference[field] = json!(value);
        object["metadata"]["ownerReferences"] = json!([reference]);
        api.post(&api.path("configmaps"), object).await.ok();
    }
    for gone in ["kind", "name"] {
        api.until(&api.path(&format!("configmaps/{gone}")), |a| a.code == 404).await;
    }
    assert_eq!(api.get(&api.path("configmaps/right")).await.code, 200);
}

#[tokio::test]
async fn a_namespace_takes_its_contents_along() {
    let api = Api::open().await;
    let path = format!("/api/v1/namespaces/{}", api.ns);
    api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    running(&api, "p").await;
    let going = api.delete(&path, Value::Null).await.ok();
    assert_eq!(going["status"]["phase"], "Terminating");
    let body = api.post(&api.path("configmaps"), config("d", json!({}))).await;
    assert_eq!(body.code, 403, "{}", body.body);
    assert_eq!(
        body.body["message"],
        format!(
            "configmaps \"d\" is forbidden: unable to create new content in namespace {} because it is being terminated",
            api.ns
        )
    );
    assert_eq!(body.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let dying = api.until(&api.path("pods/p"), |a| a.body["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(dying.body["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(api.get(&path).await.code, 200, "the pod holds the namespace");
    api.delete(&api.path("pods/p"), json!({"gracePeriodSeconds": 0})).await.ok();
    if !api.real {
        api.until(&path, |a| a.code == 404).await;
    }
    api.delete("/api/v1/namespaces/default", Value::Null)
        .await
        .fails(403, "namespaces \"default\" is forbidden: this namespace may not be deleted");
}

#[tokio::test]
async fn pods_go_before_what_they_may_still_use() {
    let api = Api::open().await;
    let path = format!("/api/v1/namespaces/{}", api.ns);
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(&api.path("pods"), held).await.ok();
    let mut going = config("going", json!({}));
    going["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(&api.path("configmaps"), going).await.ok();
    api.delete(&api.path("configmaps/going"), Value::Null).await.ok();
    api.post(&api.path("configmaps"), config("used", json!({}))).await.ok();
    api.delete(&path, Value::Null).await.ok();
    let failures = |a: &Answer| a.body["status"]["conditions"].to_string().contains("NamespaceDeletionContentFailure");
    let told = api.until(&path, failures).await.body["status"]["conditions"].to_string();
    assert!(api.real || told.contains("pods. has 1 resource instances"), "{told}");
    api.until(&api.path("pods/held"), |a| a.body["metadata"]["deletionTimestamp"].is_string()).await;
    let used = api.get(&api.path("configmaps/used")).await.ok();
    assert!(used["metadata"]["deletionTimestamp"].is_null());
    api.patch(&api.path("pods/held"), MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
    // An object that is being deleted already blocks no other.
    api.until(&api.path("configmaps/used"), |a| a.code == 404).await;
    let last =
        |a: &Answer| a.body["status"]["conditions"].to_string().contains("example.com/hold in 1 resource instances");
    api.until(&path, last).await;
    api.patch(&api.path("configmaps/going"), MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
    api.until(&path, |a| a.code == 404).await;
}

/// Runs SQL on a second connection to the state file, to simulate damage of the disk.
fn accident(api: &Api, sql: &str) {
    let state = rusqlite::Connection::open(api.folder().join("api.db")).unwrap();
    state.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    state.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_collection_that_failed_is_tried_again() {
    let api = Api::embedded(|_| {});
    let owner = api.post(&api.path("configmaps"), config("owner", json!({}))).await.ok();
    owned(&api, &owner, "dependent", false).await;
    let next = api.post(&api.path("configmaps"), config("next", json!({}))).await.ok();
    owned(&api, &next, "later", false).await;
    accident(
        &api,
        "CREATE TRIGGER fails BEFORE DELETE ON objects WHEN OLD.name = 'dependent' BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
    api.delete(&api.path("configmaps/owner"), Value::Null).await.ok();
    // This collection begins after the other one.
    api.delete(&api.path("configmaps/next"), Value::Null).await.ok();
    api.until(&api.path("configmaps/later"), |answer| answer.code == 404).await;
    assert_eq!(api.get(&api.path("configmaps/dependent")).await.code, 200);
    accident(&api, "DROP TRIGGER fails");
    api.until(&api.path("configmaps/dependent"), |answer| answer.code == 404).await;
}

#[tokio::test]
async fn a_cluster_scoped_object_of_a_namespaced_owner_stays() {
    let api = Api::open().await;
    let owner = api.post(&api.path("configmaps"), config("owner", json!({}))).await.ok();
    let name = format!("stays-{}", api.ns);
    let volume = json!({
        "metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
    });
    api.post("/api/v1/persistentvolumes", volume).await.ok();
    let warned = |events: &Value| {
        events["items"].as_array().is_some_and(|all| {
            all.iter().any(|e| e["reason"] == "OwnerRefInvalidNamespace" && e["involvedObject"]["name"] == *name)
        })
    };
    api.until("/api/v1/namespaces/default/events", |answer| warned(&answer.body)).await;
    let next = api.post(&api.path("configmaps"), config("next", json!({}))).await.ok();
    owned(&api, &next, "later", false).await;
    api.delete(&api.path("configmaps/owner"), Value::Null).await.ok();
    // This collection begins after the other one.
    api.delete(&api.path("configmaps/next"), Value::Null).await.ok();
    api.until(&api.path("configmaps/later"), |answer| answer.code == 404).await;
    assert_eq!(api.get(&format!("/api/v1/persistentvolumes/{name}")).await.code, 200);
    api.delete(&format!("/api/v1/persistentvolumes/{name}"), Value::Null).await.ok();
}

const MANY: usize = 450;

async fn make_many(api: &Api, path: &str, owner: Option<&Value>) {
    for number in 0..MANY {
        let mut map = config(&format!("c{number}"), json!({}));
        if let Some(owner) = owner {
            let (name, uid) = (&owner["metadata"]["name"], &owner["metadata"]["uid"]);
            map["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}]);
        }
        api.post(path, map).await.ok();
    }
}

/// The numbers of objects in repeated lists until none is left.
async fn looks(api: &Api, path: &str) -> Vec<usize> {
    let mut left = Vec::new();
    while left.last() != Some(&0) {
        // With a limit, because a long list without one is read in several steps itself.
        let list = api.get(&format!("{path}?limit=500")).await.ok();
        let names = list["items"].as_array().unwrap().iter().map(|c| c["metadata"]["name"].as_str().unwrap());
        left.push(names.filter(|name| name.starts_with('c')).count());
    }
    left
}

#[tokio::test]
async fn others_have_their_turn_while_many_are_deleted() {
    let api = Api::embedded(|_| {});
    let path = api.path("configmaps");
    make_many(&api, &path, None).await;
    // `join!` alternates which future is polled first, like separate tasks.
    let (all, left) = tokio::join!(api.delete(&path, Value::Null), looks(&api, &path));
    assert_eq!(all.ok()["status"], "Success", "too many to be shown");
    assert!(left.iter().any(|left| (1..MANY).contains(left)), "{left:?}");
}

#[tokio::test]
async fn others_have_their_turn_while_a_namespace_is_emptied_or_an_owner_goes() {
    let api = Api::embedded(|_| {});
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "full"}})).await.ok();
    let path = "/api/v1/namespaces/full/configmaps";
    make_many(&api, path, None).await;
    api.delete("/api/v1/namespaces/full", Value::Null).await.ok();
    let left = looks(&api, path).await;
    assert!(left.iter().any(|left| (1..MANY).contains(left)), "{left:?}");

    let path = api.path("configmaps");
    let owner = api.post(&path, config("owner", json!({}))).await.ok();
    make_many(&api, &path, Some(&owner)).await;
    api.delete(&api.path("configmaps/owner"), Value::Null).await.ok();
    let left = looks(&api, &path).await;
    assert!(left.iter().any(|left| (1..MANY).contains(left)), "{left:?}");
}

#[tokio::test]
async fn others_have_their_turn_while_an_owner_waits_or_lets_go() {
    let api = Api::embedded(|_| {});
    let path = api.path("configmaps");
    let owner = api.post(&path, config("owner", json!({}))).await.ok();
    make_many(&api, &path, Some(&owner)).await;
    api.delete(&api.path("configmaps/owner"), json!({"propagationPolicy": "Foreground"})).await;
    let left = looks(&api, &path).await;
    assert!(left.iter().any(|left| (1..MANY).contains(left)), "{left:?}");
    api.until(&api.path("configmaps/owner"), |answer| answer.code == 404).await;

    let owner = api.post(&path, config("owner", json!({}))).await.ok();
    make_many(&api, &path, Some(&owner)).await;
    api.delete(&api.path("configmaps/owner"), json!({"propagationPolicy": "Orphan"})).await;
    let mut owned = Vec::new();
    while owned.last() != Some(&0) {
        let list = api.get(&path).await.ok();
        let all = list["items"].as_array().unwrap().iter();
        owned.push(all.filter(|one| !one["metadata"]["ownerReferences"].is_null()).count());
    }
    assert!(owned.iter().any(|owned| (1..MANY).contains(owned)), "{owned:?}");
    api.until(&api.path("configmaps/owner"), |answer| answer.code == 404).await;
}

#[tokio::test]
async fn others_have_their_turn_while_a_definition_goes() {
    let api = Api::embedded(|_| {});
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.post(definitions, definition).await.ok();
    let path = format!("/apis/example.com/v1/namespaces/{}/things", api.ns);
    api.until(&path, |answer| answer.code == 200).await;
    for number in 0..MANY {
        let thing =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": format!("c{number}")}});
        api.post(&path, thing).await.ok();
    }
    api.delete(&format!("{definitions}/things.example.com"), Value::Null).await.ok();
    let mut left = Vec::new();
    loop {
        let list = api.get(&path).await;
        if list.code == 404 {
            break;
        }
        left.push(list.ok()["items"].as_array().unwrap().len());
    }
    assert!(left.iter().any(|left| (1..MANY).contains(left)), "{left:?}");
}

/// As in Kubernetes' collector: a dependent with another owner does not block the owner that waits for its dependents.
#[tokio::test]
async fn a_dependent_of_two_owners_does_not_block_the_one_that_waits() {
    let api = Api::open().await;
    let path = api.path("configmaps");
    let reference = |owner: &Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
    };
    let one = api.post(&path, config("one", json!({}))).await.ok();
    let two = api.post(&path, config("two", json!({}))).await.ok();
    let mut shared = config("shared", json!({}));
    shared["metadata"]["ownerReferences"] = json!([reference(&one), reference(&two)]);
    api.post(&path, shared).await.ok();
    api.delete(&api.path("configmaps/one"), json!({"propagationPolicy": "Foreground"})).await;
    api.until(&api.path("configmaps/one"), |answer| answer.code == 404).await;
    let shared = api.get(&api.path("configmaps/shared")).await.ok();
    assert_eq!(shared["metadata"]["ownerReferences"], json!([reference(&two)]));
}

/// Some of them at a time; one that is too large to be returned is omitted.
#[tokio::test]
async fn a_large_collection_is_deleted_whole_and_selected_ones_alone() {
    let api = Api::open().await;
    let path = api.path("configmaps");
    for number in 0..30 {
        let mut map = config(&format!("m{number:02}"), json!({"odd": (number % 2 == 1).to_string()}));
        map["data"] = json!({ "text": "x".repeat(80_000) });
        api.post(&path, map).await.ok();
    }
    let odd = api.delete(&format!("{path}?labelSelector=odd=true"), Value::Null).await.ok();
    assert_eq!(odd["kind"], if api.real { "ConfigMapList" } else { "Status" });
    let left = api.get(&path).await.ok()["items"].as_array().unwrap().len();
    assert_eq!(left, 15);
    let one = api.delete(&format!("{path}?fieldSelector=metadata.name=m04"), Value::Null).await.ok();
    assert_eq!((&one["kind"], &one["items"][0]["metadata"]["name"]), (&json!("ConfigMapList"), &json!("m04")));
    api.delete(&path, Value::Null).await.ok();
    assert_eq!(api.get(&path).await.ok()["items"], json!([]));
}
