//! Watches: start, events and end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Api, MERGE, TABLE, config, pod};

fn line(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

async fn version(api: &Api) -> String {
    api.get(&api.path("configmaps")).await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn changes_arrive_in_order() {
    let api = Api::open().await;
    let from = version(&api).await;
    let mut watch = api.watch(&api.path(&format!("configmaps?watch=1&resourceVersion={from}"))).await;
    api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    api.patch(&api.path("configmaps/c"), MERGE, json!({"data": {"n": "1"}})).await.ok();
    let last = api.get(&api.path("configmaps/c")).await.ok();
    api.delete(&api.path("configmaps/c"), Value::Null).await.ok();
    assert_eq!(watch.line().await, line("ADDED", "c"));
    assert_eq!(watch.line().await, line("MODIFIED", "c"));
    let gone = watch.next().await.unwrap();
    assert_eq!((&gone["type"], &gone["object"]["data"]["n"]), (&json!("DELETED"), &json!("1")));
    assert_eq!(gone["object"]["kind"], "ConfigMap");
    assert_ne!(gone["object"]["metadata"]["resourceVersion"], last["metadata"]["resourceVersion"]);
    let mut again = api.watch(&api.path(&format!("configmaps?watch=1&resourceVersion={from}"))).await;
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(again.line().await, line(kind, "c"), "the same from history");
    }
}

#[tokio::test]
async fn leaving_the_selector_is_a_deletion() {
    let api = Api::open().await;
    let from = version(&api).await;
    let path = api.path(&format!("configmaps?watch=1&labelSelector=a%3D1&resourceVersion={from}"));
    let mut live = api.watch(&path).await;
    api.post(&api.path("configmaps"), config("c", json!({"a": "1"}))).await.ok();
    api.patch(&api.path("configmaps/c"), MERGE, json!({"metadata": {"labels": {"a": "2"}}})).await.ok();
    api.patch(&api.path("configmaps/c"), MERGE, json!({"data": {"k": "unseen"}})).await.ok();
    api.patch(&api.path("configmaps/c"), MERGE, json!({"metadata": {"labels": {"a": "1"}}})).await.ok();
    api.delete(&api.path("configmaps/c"), Value::Null).await.ok();
    let mut history = api.watch(&path).await;
    for watch in [&mut live, &mut history] {
        assert_eq!(watch.line().await, line("ADDED", "c"));
        let left = watch.next().await.unwrap();
        assert_eq!((&left["type"], &left["object"]["metadata"]["labels"]["a"]), (&json!("DELETED"), &json!("1")));
        assert_eq!(watch.line().await, line("ADDED", "c"));
        assert_eq!(watch.line().await, line("DELETED", "c"));
    }
}

#[tokio::test]
async fn a_bound_pod_enters_its_nodes_watch() {
    let api = Api::open().await;
    let from = version(&api).await;
    let path = format!("pods?watch=1&fieldSelector=spec.nodeName%3Dn&resourceVersion={from}");
    let mut watch = api.watch(&api.path(&path)).await;
    api.post(&api.path("pods"), pod("p")).await.ok();
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    api.post(&api.path("pods/p/binding"), binding).await.ok();
    assert_eq!(watch.line().await, line("ADDED", "p"));
    api.delete(&api.path("pods/p"), json!({"gracePeriodSeconds": 5})).await.ok();
    let dying = watch.next().await.unwrap();
    assert_eq!(
        (&dying["type"], &dying["object"]["metadata"]["deletionGracePeriodSeconds"]),
        (&json!("MODIFIED"), &json!(5))
    );
    api.delete(&api.path("pods/p"), json!({"gracePeriodSeconds": 0})).await.ok();
    assert_eq!(watch.line().await, line("MODIFIED", "p"));
    assert_eq!(watch.line().await, line("DELETED", "p"));
}

#[tokio::test]
async fn without_a_version_the_present_comes_first() {
    let api = Api::open().await;
    api.post(&api.path("configmaps"), config("c", json!({"a": "1"}))).await.ok();
    for start in ["", "&resourceVersion=0"] {
        let path = api.path(&format!("configmaps?watch=1&labelSelector=a&timeoutSeconds=1{start}"));
        let mut watch = api.watch(&path).await;
        assert_eq!(watch.line().await, line("ADDED", "c"));
        assert!(watch.next().await.is_none(), "timeoutSeconds ends the watch");
    }
}

#[tokio::test]
async fn tables_send_their_columns_once() {
    let api = Api::open().await;
    let from = version(&api).await;
    let mut watch = api.watch_as(&api.path(&format!("pods?watch=1&resourceVersion={from}")), TABLE).await;
    for name in ["a", "b"] {
        api.post(&api.path("pods"), pod(name)).await.ok();
    }
    let first = watch.next().await.unwrap();
    assert!(first["object"]["columnDefinitions"].is_array());
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    assert!(watch.next().await.unwrap()["object"]["columnDefinitions"].is_null());
}

#[tokio::test]
async fn streaming_lists_end_with_a_bookmark() {
    let api = Api::embedded(|_| {});
    api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    let path = api
        .path("configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let mut watch = api.watch(&path).await;
    assert_eq!(watch.line().await, line("ADDED", "c"));
    let mark = watch.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(mark["object"]["kind"], "ConfigMap");
    api.post(&api.path("configmaps"), config("d", json!({}))).await.ok();
    assert_eq!(watch.line().await, line("ADDED", "d"));
    api.get(&api.path("configmaps?watch=1&sendInitialEvents=true")).await.fails(
        422,
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
}

#[tokio::test]
async fn a_long_past_comes_whole_and_in_order_while_more_happens() {
    let api = Api::embedded(|_| {});
    let from = version(&api).await;
    let large = json!({"data": {"k": "x".repeat(20_000)}});
    let names: Vec<_> = (0..100).map(|n| format!("c-{n:03}")).collect();
    for name in &names {
        api.post(&api.path("configmaps"), config(name, json!({}))).await.ok();
        api.patch(&api.path(&format!("configmaps/{name}")), MERGE, large.clone()).await.ok();
    }
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut history = api.watch(&api.path(&format!("configmaps?watch=1&resourceVersion={from}"))).await;
    let mut present = api.watch(&api.path(&format!("configmaps?watch=1&{initial}"))).await;
    assert_eq!(history.line().await, line("ADDED", "c-000"));
    let first = present.next().await.unwrap();
    assert_eq!(first["object"]["data"], large["data"]);
    api.patch(&api.path("configmaps/c-099"), MERGE, json!({"data": {"k": "late"}})).await.ok();
    api.delete(&api.path("configmaps/c-098"), Value::Null).await.ok();
    api.post(&api.path("configmaps"), config("c-100", json!({}))).await.ok();
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            assert_eq!(history.line().await, line("ADDED", name));
            let object = present.next().await.unwrap();
            assert_eq!((&object["type"], &object["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
            assert_eq!(object["object"]["data"], large["data"], "as it was when the watch began");
        }
        let change = history.next().await.unwrap();
        assert_eq!((&change["type"], &change["object"]["data"]), (&json!("MODIFIED"), &large["data"]));
    }
    assert_eq!(present.next().await.unwrap()["type"], "BOOKMARK");
    for watch in [&mut history, &mut present] {
        assert_eq!(watch.line().await, line("MODIFIED", "c-099"));
        assert_eq!(watch.line().await, line("DELETED", "c-098"));
        assert_eq!(watch.line().await, line("ADDED", "c-100"));
    }
}

#[tokio::test]
async fn bookmarks_carry_the_newest_version() {
    let api = Api::embedded(|config| config.bookmark_interval = Duration::from_millis(50));
    let mut watch =
        api.watch(&api.path("configmaps?watch=1&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dnone")).await;
    let other = api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    let other: u64 = other["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    loop {
        let mark = watch.next().await.unwrap();
        assert_eq!(mark["type"], "BOOKMARK");
        let at: u64 = mark["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        if at >= other {
            break;
        }
    }
}

#[tokio::test]
async fn a_forgotten_version_is_gone() {
    let api = Api::embedded(|config| config.history_rows = 8);
    let from = version(&api).await;
    api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    for n in 0..1100 {
        api.patch(&api.path("configmaps/c"), MERGE, json!({"data": {"n": n.to_string()}})).await.ok();
    }
    let mut watch = api.watch(&api.path(&format!("configmaps?watch=1&resourceVersion={from}"))).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"], &event["object"]["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert!(event["object"]["message"].as_str().unwrap().starts_with("too old resource version: "));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn watchers_are_woken_at_once() {
    let api = Api::embedded(|_| {});
    let mut watch = api.watch(&api.path("pods?watch=1")).await;
    let begin = std::time::Instant::now();
    for n in 0..50 {
        let name = format!("p{n}");
        api.post(&api.path("pods"), pod(&name)).await.ok();
        assert_eq!(watch.line().await, line("ADDED", &name));
    }
    let each = begin.elapsed() / 50;
    assert!(each < Duration::from_millis(50), "{each:?} from create to event");
}
