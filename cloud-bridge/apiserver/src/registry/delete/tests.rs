//! What `delete` promises, case by case.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::grace::{Graceful, before, collector_finalizers};
use super::options::Options;
use super::{SHOWN, Shown};
use crate::kinds;
use crate::resource::Resource;
use crate::storage::Stored;
use apimachinery::key::ObjectKey;
use apimachinery::meta;

fn pods() -> Arc<Resource> {
    kinds::resources().into_iter().find(|r| r.plural == "pods").unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn running() -> Value {
    json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}})
}

#[test]
fn grace_comes_from_the_pod_and_may_only_shrink() {
    let mut pod = running();
    let now = at("2026-01-01T00:00:00Z");
    assert_eq!(before(&pods(), &mut pod, &mut Options::default(), now), Graceful::Yes);
    assert_eq!(meta::text(&pod, "deletionTimestamp"), "2026-01-01T00:00:30Z");
    assert_eq!(meta::grace(&pod), Some(30));
    assert_eq!(pod["metadata"]["generation"], 2);
    let mut longer = Options { grace: Some(60), ..Options::default() };
    assert_eq!(before(&pods(), &mut pod, &mut longer, now), Graceful::Pending);
    let mut shorter = Options { grace: Some(5), ..Options::default() };
    assert_eq!(before(&pods(), &mut pod, &mut shorter, at("2026-01-01T00:00:10Z")), Graceful::Yes);
    assert_eq!(meta::text(&pod, "deletionTimestamp"), "2026-01-01T00:00:10Z");
    assert_eq!(meta::grace(&pod), Some(1), "a grace that has passed shrinks to one second");
    assert_eq!(pod["metadata"]["generation"], 2);
}

#[test]
fn unscheduled_and_finished_pods_go_at_once() {
    for change in [json!({"spec": {"nodeName": ""}}), json!({"status": {"phase": "Succeeded"}})] {
        let mut pod = running();
        json_patch::merge(&mut pod, &change);
        let mut options = Options::default();
        before(&pods(), &mut pod, &mut options, at("2026-01-01T00:00:00Z"));
        assert_eq!(options.grace, Some(0));
    }
}

#[test]
fn propagation_decides_finalizers() {
    let object = json!({"metadata": {"finalizers": ["a/b", "orphan"]}});
    let with = |policy: Option<&str>| {
        let options = Options { propagation: policy.map(str::to_owned), ..Options::default() };
        collector_finalizers(&pods(), &object, &options)
    };
    assert_eq!(with(None), ["a/b", "orphan"]);
    assert_eq!(with(Some("Background")), ["a/b"]);
    assert_eq!(with(Some("Foreground")), ["a/b", "foregroundDeletion"]);
}

#[test]
fn some_kinds_leave_their_dependents_unless_told_otherwise() {
    let kind = |plural: &str| kinds::resources().into_iter().find(|r| r.plural == plural).unwrap();
    let with = |plural: &str, finalizers: Value, policy: Option<&str>| {
        let options = Options { propagation: policy.map(str::to_owned), ..Options::default() };
        collector_finalizers(&kind(plural), &json!({"metadata": {"finalizers": finalizers}}), &options)
    };
    const LEFT: &[&str] = &["replicationcontrollers", "jobs"];
    for plural in LEFT {
        assert_eq!(with(plural, json!([]), None), ["orphan"], "{plural}");
        assert_eq!(with(plural, json!(["foregroundDeletion"]), None), ["foregroundDeletion"]);
        assert!(with(plural, json!([]), Some("Background")).is_empty());
    }
    for plural in ["replicasets", "daemonsets", "statefulsets", "deployments", "cronjobs"] {
        assert!(with(plural, json!([]), None).is_empty(), "{plural}");
    }
}

#[test]
fn large_collections_are_not_kept_for_the_answer() {
    let page = |bytes: usize| {
        let body = serde_json::to_vec(&json!("x".repeat(bytes))).unwrap();
        let stored = Arc::new(Stored::new(ObjectKey::cluster("c"), 1, body));
        assert!(stored.value().is_string());
        vec![stored]
    };
    let first = page(SHOWN / 2);
    let weak = Arc::downgrade(&first[0]);
    let shown = Shown::default().with(first).unwrap();
    assert_eq!((shown.items.len(), weak.strong_count()), (1, 0), "it is kept without its parsed body");
    assert!(shown.with(page(SHOWN / 2)).is_none(), "with the quotes it is too much");
}
