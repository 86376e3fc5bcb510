//! Disruption budgets, and evictions that depend on them.

use serde_json::{Value, json};

use crate::harness::{Answer, Api, MERGE, STRATEGIC, TABLE, merge, pod};

fn budget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec})
}

fn of(api: &Api, name: &str) -> String {
    api.group_path("policy/v1", &format!("poddisruptionbudgets/{name}"))
}

/// Writes a status like the controller.
async fn count(api: &Api, name: &str, allowed: i64, healthy: i64) {
    let generation = api.get(&of(api, name)).await.ok()["metadata"]["generation"].clone();
    let status = json!({"status": {"observedGeneration": generation, "disruptionsAllowed": allowed,
        "currentHealthy": healthy, "desiredHealthy": 1, "expectedPods": healthy}});
    api.patch(&format!("{}/status", of(api, name)), MERGE, status).await.ok();
}

async fn running(api: &Api, name: &str, ready: &str) {
    let mut object = pod(name);
    merge(&mut object, json!({"metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": "n1"}}));
    api.post(&api.path("pods"), object).await.ok();
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    api.patch(&api.path(&format!("pods/{name}/status")), STRATEGIC, status).await.ok();
}

async fn evict(api: &Api, name: &str, options: Value) -> Answer {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": api.ns},
        "deleteOptions": options});
    api.post(&api.path(&format!("pods/{name}/eviction")), eviction).await
}

/// State of the budget: the number of allowed disruptions, and the disrupted pods.
async fn left(api: &Api, name: &str) -> (i64, Vec<String>) {
    let status = api.get(&of(api, name)).await.ok()["status"].clone();
    let gone = status["disruptedPods"].as_object().map(|pods| pods.keys().cloned().collect()).unwrap_or_default();
    (status["disruptionsAllowed"].as_i64().unwrap(), gone)
}

/// Evictions read budgets while other requests wait.
#[tokio::test]
async fn eviction_looks_at_a_bounded_size_of_budgets() {
    let api = Api::open().await;
    if api.real {
        // A real API server reads all of them.
        return;
    }
    running(&api, "p", "True").await;
    let prefix = ["p".repeat(60), "q".repeat(60), "r".repeat(60), "example".to_owned()].join(".");
    let labels: serde_json::Map<String, Value> =
        (0..4000).map(|n| (format!("{prefix}/{n:04}"), "v".repeat(63).into())).collect();
    for name in ["a", "b", "c"] {
        let large = json!({"selector": {"matchLabels": labels}, "minAvailable": 1});
        api.post(&of(&api, ""), budget(name, large)).await.ok();
    }
    let refused = evict(&api, "p", json!({})).await;
    assert_eq!(refused.code, 429, "{}", refused.body);
    api.delete(&of(&api, "a"), Value::Null).await.ok();
    assert_eq!(evict(&api, "p", json!({})).await.code, 201);
}

#[tokio::test]
async fn an_eviction_takes_from_the_budget_until_nothing_is_left() {
    let api = Api::open().await;
    if api.real {
        // The controller of a real cluster writes it too.
        return;
    }
    let selector = json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1});
    let made = api.post(&of(&api, ""), budget("b", selector)).await.ok();
    assert_eq!((&made["metadata"]["generation"], &made["status"]["disruptionsAllowed"]), (&json!(1), &json!(0)));
    for name in ["p1", "p2"] {
        running(&api, name, "True").await;
    }
    let waits = evict(&api, "p1", json!({})).await;
    let cause = &waits.body["details"]["causes"][0];
    assert_eq!((waits.code, &cause["reason"]), (429, &json!("DisruptionBudget")), "{}", waits.body);
    assert_eq!(cause["message"], "The disruption budget b is still being processed by the server.");
    assert_eq!(waits.body["details"]["retryAfterSeconds"], 10);

    count(&api, "b", 1, 2).await;
    assert_eq!(evict(&api, "p1", json!({"dryRun": ["All"]})).await.code, 201);
    assert_eq!(left(&api, "b").await, (1, vec![]));
    evict(&api, "p1", json!({"preconditions": {"uid": "other"}})).await.fails_with(409, "the UID in the precondition");
    assert_eq!(left(&api, "b").await, (1, vec![]), "a refused eviction costs nothing");
    let version = api.get(&api.path("pods/p1")).await.ok()["metadata"]["resourceVersion"].clone();
    let right = json!({"preconditions": {"resourceVersion": version}});
    assert_eq!(evict(&api, "p1", right).await.code, 201);
    let dying = api.get(&api.path("pods/p1")).await.ok();
    assert!(dying["metadata"]["deletionTimestamp"].is_string(), "{dying}");
    let conditions = dying["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["type"] == "DisruptionTarget" && one["reason"] == "EvictionByEvictionAPI"));
    assert_eq!(left(&api, "b").await, (0, vec!["p1".to_owned()]));
    let condition = api.get(&of(&api, "b")).await.ok()["status"]["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["status"]), (&json!("DisruptionAllowed"), &json!("False")));

    let refused = evict(&api, "p2", json!({})).await;
    let refused = refused.fails(429, "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(refused["reason"], "TooManyRequests");
    assert_eq!(refused["details"]["retryAfterSeconds"], Value::Null);
    assert!(api.get(&api.path("pods/p2")).await.ok()["metadata"]["deletionTimestamp"].is_null());
    // The pod is being deleted already, so its eviction costs nothing.
    assert_eq!(evict(&api, "p1", json!({"gracePeriodSeconds": 1})).await.code, 201);
    assert_eq!(left(&api, "b").await.0, 0);
}

#[tokio::test]
async fn whom_no_budget_holds() {
    let api = Api::open().await;
    if api.real {
        return;
    }
    for (name, policy) in [("b", "AlwaysAllow"), ("c", "IfHealthyBudget")] {
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 0, "unhealthyPodEvictionPolicy": policy});
        api.post(&of(&api, ""), budget(name, spec)).await.ok();
    }
    running(&api, "p", "False").await;
    // Its HTTP code is a success; clients read the Status.
    let several = evict(&api, "p", json!({})).await.body;
    assert_eq!((&several["status"], &several["code"]), (&json!("Failure"), &json!(500)), "{several}");
    api.delete(&of(&api, "b"), Value::Null).await.ok();
    count(&api, "c", 0, 0).await;
    evict(&api, "p", json!({})).await.fails_with(429, "Cannot evict pod");
    api.patch(&of(&api, "c"), MERGE, json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})).await.ok();
    assert_eq!(evict(&api, "p", json!({})).await.code, 201);
    // A pod that never ran.
    let mut object = pod("new");
    merge(&mut object, json!({"metadata": {"labels": {"app": "web"}}}));
    api.post(&api.path("pods"), object).await.ok();
    assert_eq!(evict(&api, "new", json!({})).await.code, 201);
    assert_eq!(api.get(&api.path("pods/new")).await.code, 404);
}

#[tokio::test]
async fn a_budget_is_served_as_kubernetes_does() {
    let api = Api::open().await;
    let all = of(&api, "");
    let both = api.post(&all, budget("b", json!({"minAvailable": 1, "maxUnavailable": 1}))).await;
    both.fails_with(422, "minAvailable and maxUnavailable cannot be both set");
    let wrong =
        api.post(&all, budget("b", json!({"minAvailable": "half", "selector": {"matchLabels": {"a": "?"}}}))).await;
    let wrong = wrong.fails_with(422, "PodDisruptionBudget.policy \"b\" is invalid: [spec.minAvailable: Invalid value");
    assert_eq!(wrong["details"]["causes"].as_array().map(Vec::len), Some(2), "{wrong}");
    for spec in [json!([]), json!({"selector": []}), json!({"minAvailable": {}}), json!({"maxUnavailable": 1.5})] {
        assert_eq!(api.post(&all, budget("b", spec.clone())).await.code, 400, "{spec}");
    }
    let made =
        api.post(&all, budget("b", json!({"minAvailable": "50%", "selector": {"matchLabels": {"a": "1"}}}))).await.ok();
    let path = of(&api, "b");
    let merged = api.patch(&path, STRATEGIC, json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}})).await.ok();
    assert_eq!(merged["spec"]["selector"]["matchLabels"], json!({"b": "2"}));
    assert_eq!(merged["metadata"]["generation"], 2);
    let mut unversioned = made;
    merge(&mut unversioned, json!({"metadata": {"resourceVersion": null}}));
    api.put(&path, unversioned).await.fails_with(422, "metadata.resourceVersion: Invalid value");
    let status = json!({"status": {"disruptionsAllowed": -1}});
    let status = api.patch(&format!("{path}/status"), MERGE, status).await;
    status.fails_with(422, "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0");
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    let names: Vec<&Value> = table["columnDefinitions"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..4], [json!("b"), json!("50%"), json!("N/A"), json!(0)]);
}
