//! Lists: selectors, pages, snapshots.

use serde_json::{Value, json};

use crate::harness::{Api, TABLE, config, pod};

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

async fn five() -> Api {
    let api = Api::open().await;
    for n in 0..5 {
        api.post(&api.path("configmaps"), config(&format!("m{n}"), json!({"n": n.to_string(), "t": "x"}))).await.ok();
    }
    api
}

#[tokio::test]
async fn label_selectors() {
    let api = five().await;
    for (selector, expected) in [
        ("n=1", vec!["m1"]),
        ("n+in+(1,2),t", vec!["m1", "m2"]),
        ("n+notin+(0,1,2),t", vec!["m3", "m4"]),
        ("n!=0,n!=4,t=x", vec!["m1", "m2", "m3"]),
        ("n%3E2", vec!["m3", "m4"]),
        ("t,!n", vec![]),
    ] {
        let list = api.get(&api.path(&format!("configmaps?labelSelector={selector}"))).await.ok();
        assert_eq!(names(&list), expected, "{selector}");
    }
    api.get(&api.path("configmaps?labelSelector=a%20b")).await.fails_with(400, "unable to parse requirement: ");
}

#[tokio::test]
async fn field_selectors() {
    let api = five().await;
    let list = api.get(&api.path("configmaps?fieldSelector=metadata.name%3Dm2")).await.ok();
    assert_eq!(names(&list), ["m2"]);
    api.post(&api.path("pods"), pod("p")).await.ok();
    for (selector, count) in [("status.phase%3DPending", 1), ("status.phase!%3DPending", 0), ("spec.nodeName%3D", 1)] {
        let list = api.get(&api.path(&format!("pods?fieldSelector={selector}"))).await.ok();
        assert_eq!(names(&list).len(), count, "{selector}");
    }
    api.get(&api.path("pods?fieldSelector=spec.foo%3D1")).await.fails(400, "field label not supported: spec.foo");
    api.get(&api.path("configmaps?fieldSelector=data%3D1"))
        .await
        .fails(400, "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"");
}

#[tokio::test]
async fn pages_show_one_moment() {
    let api = five().await;
    let base = api.path("configmaps?labelSelector=t");
    let first = api.get(&format!("{base}&limit=2")).await.ok();
    assert_eq!(names(&first), ["m0", "m1"]);
    api.delete(&api.path("configmaps/m3"), Value::Null).await.ok();
    api.post(&api.path("configmaps"), config("m9", json!({"t": "x"}))).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{base}&limit=10&continue={token}")).await.ok();
    assert_eq!(names(&second), ["m2", "m3", "m4"]);
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let exact = api.get(&format!("{base}&resourceVersion={version}&resourceVersionMatch=Exact")).await.ok();
    assert_eq!(names(&exact), ["m0", "m1", "m2", "m3", "m4"]);
    let fresh = api.get(&format!("{base}&resourceVersion={version}&resourceVersionMatch=NotOlderThan")).await.ok();
    assert_eq!(names(&fresh), ["m0", "m1", "m2", "m4", "m9"]);
}

#[tokio::test]
async fn the_rest_is_counted() {
    let api = Api::embedded(|_| {});
    for n in 0..5 {
        api.post(&api.path("configmaps"), config(&format!("m{n}"), json!({}))).await.ok();
    }
    let list = api.get(&api.path("configmaps?limit=2")).await.ok();
    assert_eq!(list["metadata"]["remainingItemCount"], 3);
    assert!(list["items"][0].get("kind").is_none(), "items of typed lists carry no kind");
}

#[tokio::test]
async fn wrong_options() {
    let api = Api::open().await;
    api.get(&api.path("pods?limit=x")).await.fails(400, "strconv.ParseInt: parsing \"x\": invalid syntax");
    api.get(&api.path("pods?resourceVersion=abc"))
        .await
        .fails(400, "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax");
    api.get(&api.path("pods?resourceVersionMatch=Exact")).await.fails(
        422,
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
    );
    api.get(&api.path("pods?continue=zzz")).await.fails_with(400, "continue key is not valid");
    let body = api.get(&api.path("pods?resourceVersion=99999999&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!((body.code, &body.body["reason"]), (504, &json!("Timeout")));
}

#[tokio::test]
async fn a_forgotten_snapshot_can_be_gone_on_with() {
    let api = Api::embedded(|config| config.history_rows = 8);
    for n in 0..5 {
        api.post(&api.path("configmaps"), config(&format!("m{n}"), json!({"t": "x"}))).await.ok();
    }
    let first = api.get(&api.path("configmaps?limit=2")).await.ok();
    for n in 0..1100 {
        api.patch(&api.path("configmaps/m4"), crate::harness::MERGE, json!({"data": {"n": n.to_string()}})).await.ok();
    }
    let token = first["metadata"]["continue"].as_str().unwrap();
    let gone = api.get(&api.path(&format!("configmaps?limit=2&continue={token}"))).await;
    assert_eq!((gone.code, &gone.body["reason"]), (410, &json!("Expired")));
    let token = gone.body["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&api.path(&format!("configmaps?limit=10&continue={token}"))).await.ok();
    assert_eq!(names(&rest), ["m2", "m3", "m4"]);
}

/// A list that is not cached is read while it is sent. One step of the thread reads only a part of a list, and few
/// large objects.
#[tokio::test]
async fn large_lists_are_no_one_step_in_protobuf_or_with_a_limit() {
    let api = Api::open().await;
    if api.real {
        return;
    }
    let path = api.path("configmaps");
    for n in 0..8 {
        let mut map = config(&format!("m{n}"), json!({}));
        map["data"] = json!({ "text": "x".repeat(100_000) });
        api.post(&path, map).await.ok();
    }
    let accept = [("accept", "application/vnd.kubernetes.protobuf")];
    let (code, kind, bytes) = api.raw("GET", &path, &accept, Vec::new()).await;
    assert_eq!((code, kind.as_str()), (200, "application/json"));
    assert_eq!(names(&serde_json::from_slice(&bytes).unwrap()).len(), 8);
    let first = api.get(&format!("{path}?limit=100")).await.ok();
    assert_eq!(names(&first), ["m0", "m1", "m2", "m3", "m4", "m5"]);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{path}?limit=100&continue={token}")).await.ok();
    assert_eq!((names(&rest).len(), &rest["metadata"]["continue"]), (2, &Value::Null));
}

#[tokio::test]
async fn large_lists_come_in_parts_in_every_form_and_show_one_moment() {
    let api = Api::open().await;
    let made: Vec<String> = (0..40).map(|n| format!("m{n:02}")).collect();
    for name in &made {
        let mut map = config(name, json!({"odd": (name.ends_with(['1', '3', '5', '7', '9'])).to_string()}));
        map["data"] = json!({ "text": "x".repeat(10_000) });
        api.post(&api.path("configmaps"), map).await.ok();
    }
    let path = api.path("configmaps");
    let whole = api.get(&path).await.ok();
    assert_eq!((names(&whole), &whole["kind"]), (made.clone(), &json!("ConfigMapList")));
    let limited = api.get(&format!("{path}?limit=100")).await.ok();
    assert_eq!((&limited["items"], &limited["metadata"]["continue"]), (&whole["items"], &Value::Null));
    let odd = api.get(&format!("{path}?labelSelector=odd=true")).await.ok();
    assert_eq!(names(&odd), made.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>());
    let none = api.get(&format!("{path}?labelSelector=odd=no")).await.ok();
    assert_eq!(none["items"], json!([]));

    let table = api.send("GET", &path, &[("accept", TABLE)], Vec::new()).await.ok();
    let rows = table["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[39]["cells"][0], &table["kind"]), (40, &json!("m39"), &json!("Table")));
    assert!(table["columnDefinitions"].is_array());
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = api.send("GET", &path, &[("accept", accept)], Vec::new()).await.ok();
    assert_eq!((names(&partial), &partial["items"][7]["data"]), (made.clone(), &Value::Null));

    let first = api.get(&format!("{path}?limit=3")).await.ok();
    api.delete(&api.path("configmaps/m20"), json!({})).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{path}?continue={token}")).await.ok();
    assert_eq!(names(&rest), made[3..], "without a limit, and as it was");
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}
