//! Strategic merge patches as kubectl and controllers send them.

use serde_json::{Value, json};

use super::apply;
use crate::kinds::node::KEYS as NODE;
use crate::kinds::pod::KEYS as POD;

fn pod(containers: Value) -> Value {
    json!({"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {"containers": containers}})
}

fn patched(current: &Value, patch: Value) -> Value {
    apply(&POD, current.clone(), patch).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn containers_merge_by_name_and_arguments_are_replaced() {
    let current = pod(json!([{"name": "a", "image": "x", "args": ["1", "2"]}, {"name": "b", "image": "y"}]));
    let out =
        patched(&current, json!({"spec": {"containers": [{"name": "b", "image": "z"}, {"name": "c", "image": "w"}]}}));
    assert_eq!(
        out["spec"]["containers"],
        json!([{"name": "a", "image": "x", "args": ["1", "2"]}, {"name": "b", "image": "z"}, {"name": "c", "image": "w"}])
    );
    let out = patched(&current, json!({"spec": {"containers": [{"name": "a", "args": ["3"]}]}}));
    assert_eq!(out["spec"]["containers"][0], json!({"name": "a", "image": "x", "args": ["3"]}));
}

#[test]
fn null_deletes_and_the_delete_directive_removes_an_element() {
    let current = pod(json!([{"name": "a"}, {"name": "b"}]));
    let out = patched(
        &current,
        json!({
            "metadata": {"labels": {"a": null, "b": "2"}},
            "spec": {"containers": [{"name": "a", "$patch": "delete"}]},
        }),
    );
    assert_eq!(out["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(out["spec"]["containers"], json!([{"name": "b"}]));
}

#[test]
fn replace_directives() {
    let current = pod(json!([{"name": "a"}, {"name": "b"}]));
    let out = patched(&current, json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}));
    assert_eq!(out["spec"]["containers"], json!([{"name": "c"}]));
    let out = patched(&current, json!({"metadata": {"labels": {"$patch": "replace", "z": "9"}}}));
    assert_eq!(out["metadata"]["labels"], json!({"z": "9"}));
}

#[test]
fn the_element_order_directive_orders_what_it_names() {
    let current = pod(json!([{"name": "server"}, {"name": "a"}, {"name": "b"}]));
    let out = patched(
        &current,
        json!({"spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "a", "image": "x"}],
        }}),
    );
    assert_eq!(out["spec"]["containers"], json!([{"name": "server"}, {"name": "b"}, {"name": "a", "image": "x"}]));
}

#[test]
fn retained_keys_change_the_type_of_a_volume() {
    let current = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let out = patched(
        &current,
        json!({"spec": {
            "$setElementOrder/volumes": [{"name": "v"}],
            "volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/x"}}],
        }}),
    );
    assert_eq!(out["spec"]["volumes"], json!([{"name": "v", "hostPath": {"path": "/x"}}]));
}

#[test]
fn sets_of_values_grow_and_shrink() {
    let current = json!({"metadata": {"finalizers": ["a/1", "a/2"]}});
    let out = patched(
        &current,
        json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["a/1"],
            "$setElementOrder/finalizers": ["a/2", "a/3"],
            "finalizers": ["a/3"],
        }}),
    );
    assert_eq!(out["metadata"]["finalizers"], json!(["a/2", "a/3"]));
}

#[test]
fn element_that_a_patch_has_twice_merges_with_itself() {
    let twice = json!([{"name": "b", "image": "x"}, {"name": "a"}, {"name": "b", "tty": true}]);
    let out = patched(&pod(json!([{"name": "a", "image": "y"}])), json!({"spec": {"containers": twice}}));
    let merged = json!([{"name": "b", "image": "x", "tty": true}, {"name": "a", "image": "y"}]);
    assert_eq!(out["spec"]["containers"], merged);
    let out = patched(&json!({"metadata": {}}), json!({"metadata": {"finalizers": ["f/1", "f/2", "f/1"]}}));
    assert_eq!(out["metadata"]["finalizers"].as_array().map(Vec::len), Some(3), "a list that was not there is as sent");
    let had = json!({"metadata": {"finalizers": ["f/2"]}});
    let out = patched(&had, json!({"metadata": {"finalizers": ["f/1", "f/2", "f/1"]}}));
    assert_eq!(out["metadata"]["finalizers"], json!(["f/1", "f/2"]));
}

#[test]
fn conditions_merge_by_type() {
    let current = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]}});
    let out = patched(
        &current,
        json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": null}, {"type": "Initialized", "status": "True"}]}}),
    );
    assert_eq!(
        out["status"]["conditions"],
        json!([{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}])
    );
}

#[test]
fn a_patch_without_its_merge_key_is_refused() {
    let error = apply(&POD, pod(json!([])), json!({"spec": {"containers": [{"image": "x"}]}}));
    let text = error.map(|_| ()).map_err(|e| e.to_string()).expect_err("no merge key");
    assert!(text.contains("does not contain declared merge key: name"), "{text}");
}

#[test]
fn long_lists_merge_in_time_that_grows_with_them_alone() {
    let conditions = |n: usize| (0..n).map(|i| json!({"type": format!("t{i}"), "status": "True"})).collect::<Vec<_>>();
    let current = json!({"status": {"conditions": conditions(20_000)}});
    let mut order = conditions(20_000);
    order.reverse();
    let patch = json!({"status": {"conditions": order, "$setElementOrder/conditions": order}});
    let start = std::time::Instant::now();
    let merged = apply(&NODE, current, patch).unwrap();
    assert_eq!(merged["status"]["conditions"][0]["type"], "t19999");
    // Some 400 million comparisons would take minutes here.
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
}
