//! Malformed requests: each is refused, and the server continues.

use serde_json::{Value, json};

use crate::harness::{Answer, Api, JSON, JSON_PATCH, MERGE, STRATEGIC, config, pod};

const REVIEWS: [&str; 6] = [
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
];

async fn post(api: &Api, path: &str, body: &str) -> Answer {
    api.send("POST", path, &[("content-type", JSON)], body.into()).await
}

#[tokio::test]
async fn reviews_are_objects() {
    let api = Api::open().await;
    for path in REVIEWS {
        for body in ["[]", "1", "\"\"", "", "{", "{\"metadata\": []}", "{\"spec\": []}", "{\"spec\": 1}"] {
            if body.contains("spec") && path.ends_with("selfsubjectreviews") {
                continue;
            }
            let code = post(&api, path, body).await.code;
            assert!((400..500).contains(&code), "{path} {body}: {code}");
        }
    }
    if !api.real {
        let long = json!({"spec": {"token": "x".repeat(70_000)}}).to_string();
        assert_eq!(post(&api, REVIEWS[4], &long).await.code, 413);
    }
    api.get("/version").await.ok();
}

#[tokio::test]
async fn bodies_too_deep_or_with_too_many_values() {
    let api = Api::open().await;
    let maps = api.path("configmaps");
    let deep = format!("{{\"metadata\":{}{}}}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let many = format!("{{\"metadata\":{{\"name\":\"a\",\"ownerReferences\":[{}{{}}]}}}}", "{},".repeat(900_000));
    for body in [deep, many] {
        for path in [&maps, &api.path("pods"), &"/api/v1/nodes".to_owned()] {
            let code = post(&api, path, &body).await.code;
            assert!((400..500).contains(&code), "{path}: {code}");
        }
    }
    if api.real {
        // A real API server reports all of them, in more bytes of headers than a client accepts.
        return;
    }
    // Any number of unknown fields costs only their reading, and not all of them are reported.
    let fields: serde_json::Map<_, _> = (0..100_000).map(|n| (format!("x{n}"), json!(1))).collect();
    let mut object = config("many", json!({}));
    object.as_object_mut().unwrap().extend(fields);
    let start = std::time::Instant::now();
    let answer = api.post(&maps, object).await;
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(answer.warnings.len() <= 100, "{}", answer.warnings.len());
}

#[tokio::test]
async fn options_and_subresources_are_typed() {
    let api = Api::open().await;
    api.post(&api.path("pods"), pod("p")).await.ok();
    for body in ["[]", "1", "\"\"", "{\"gracePeriodSeconds\": \"x\"}", "{\"preconditions\": []}"] {
        let answer = api.send("DELETE", &api.path("pods/p"), &[("content-type", JSON)], body.into()).await;
        assert_eq!(answer.code, 400, "{body}: {}", answer.body);
        for part in ["binding", "eviction"].iter().filter(|_| !body.starts_with('{')) {
            let code = post(&api, &api.path(&format!("pods/p/{part}")), body).await.code;
            assert!((400..500).contains(&code), "{part} {body}: {code}");
        }
    }
    let numbers = json!({"metadata": {"annotations": {"a": 1}}, "target": {"name": "n"}});
    assert_eq!(api.post(&api.path("pods/p/binding"), numbers).await.code, 400);
    assert!(api.get(&api.path("pods/p")).await.ok()["spec"]["nodeName"].is_null());
    for grace in ["9223372036854775807", "-9223372036854775808"] {
        let path = api.path(&format!("pods/p?gracePeriodSeconds={grace}"));
        assert!(api.delete(&path, Value::Null).await.code < 500, "{grace}");
    }
}

#[tokio::test]
async fn patches_end() {
    let api = Api::open().await;
    let path = api.path("configmaps/c");
    api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    let double: Vec<Value> = std::iter::once(json!({"op": "add", "path": "/data/a", "value": "x".repeat(1000)}))
        .chain((0..60).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/b{n}")})))
        .collect();
    let code = api.patch(&path, JSON_PATCH, json!(double)).await.code;
    assert!((400..500).contains(&code), "{code}");
    for kind in [MERGE, STRATEGIC, JSON_PATCH] {
        for body in
            [json!([]), json!(1), json!(""), Value::Null, json!([1]), json!({"metadata": []}), json!({"data": 1})]
        {
            let answer = api.patch(&path, kind, body.clone()).await;
            assert!(answer.code < 500, "{kind} {body}: {}", answer.body);
        }
    }
    assert_eq!(api.get(&path).await.ok()["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn odd_queries() {
    let api = Api::open().await;
    let pods = api.path("pods");
    for query in [
        "limit=-1",
        "limit=9223372036854775807",
        "limit=x",
        "continue=garbage",
        "resourceVersion=x",
        "resourceVersionMatch=x",
        "fieldSelector=%00",
        "labelSelector=%28%28%28",
    ] {
        let code = api.get(&format!("{pods}?{query}")).await.code;
        assert!(code == 200 || (400..500).contains(&code), "{query}: {code}");
    }
    for seconds in ["9223372036854775807", "9223372035854775807", "9999999999999", "-9223372036854775808"] {
        let path = format!("{pods}?watch=1&timeoutSeconds={seconds}");
        let mut watch = api.watch(&path).await;
        let name = format!("w{}", seconds.len());
        api.post(&pods, pod(&name)).await;
        // Kubernetes treats some of them as past, and ends the watch.
        assert!(watch.next().await.is_some() || api.real, "{seconds}");
        api.delete(&api.path(&format!("pods/{name}")), json!({"gracePeriodSeconds": 0})).await;
    }
}

#[tokio::test]
async fn a_dry_run_of_finalize_changes_nothing() {
    let api = Api::open().await;
    let path = format!("/api/v1/namespaces/{}", api.ns);
    let mut namespace = api.get(&path).await.ok();
    namespace["spec"] = json!({});
    api.put(&format!("{path}/finalize?dryRun=All"), namespace).await.ok();
    assert_eq!(api.get(&path).await.ok()["spec"]["finalizers"], json!(["kubernetes"]));
}

#[tokio::test]
async fn groups_of_the_community_need_approval() {
    let api = Api::open().await;
    let name = format!("w{}", api.ns.replace('-', ""));
    let definition = json!({
        "metadata": {"name": format!("{name}s.x.k8s.io")},
        "spec": {"group": "x.k8s.io", "scope": "Namespaced", "names": {"plural": format!("{name}s"), "kind": "W"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.post(path, definition).await.fails_with(422, "protected groups must have approval annotation");
}
