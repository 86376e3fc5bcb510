//! Values of server-side apply: merges an applied object into the live one, and removes what its manager gave up
//! (structured-merge-diff typed/merge.go, merge/update.go). Pure.

use std::collections::HashMap;

use serde_json::Value;

use super::field_set::FieldSet;
use super::shape::Shape;

/// Merges an applied value into a live one.
pub(crate) fn merge(live: &mut Value, applied: Value, shape: Shape<'_>) {
    match (live, applied) {
        (Value::Object(live), Value::Object(applied)) if !shape.is_atomic() => {
            for (name, value) in applied {
                match live.get_mut(&name) {
                    Some(inner) => merge(inner, value, shape.field(&name)),
                    None => drop(live.insert(name, value)),
                }
            }
        }
        (Value::Array(items), Value::Array(applied)) => match shape.list_keys() {
            Some(keys) => *items = merge_lists(std::mem::take(items), applied, &keys, shape),
            None => *items = applied,
        },
        (live, applied) => *live = applied,
    }
}

/// Merges lists by key. The applied order wins; items that are only in the live list keep their place among the others.
/// An applied item replaces several live ones with its key, without merging.
fn merge_lists(live: Vec<Value>, mut applied: Vec<Value>, keys: &[&str], shape: Shape<'_>) -> Vec<Value> {
    let steps: Vec<String> = applied.iter().map(|item| shape.element(item, keys)).collect();
    let live_steps: Vec<String> = live.iter().map(|item| shape.element(item, keys)).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for step in &live_steps {
        *counts.entry(step).or_default() += 1;
    }
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (place, step) in steps.iter().enumerate() {
        places.entry(step).or_insert(place);
    }
    // How many applied items precede each of the live ones that stay as they are.
    let mut others: Vec<(usize, Value)> = Vec::new();
    let mut done = 0;
    for (mut item, step) in live.into_iter().zip(&live_steps) {
        match places.get(step.as_str()) {
            Some(place) => {
                if counts.get(step.as_str()) == Some(&1)
                    && let Some(wanted) = applied.get_mut(*place)
                {
                    merge(&mut item, std::mem::take(wanted), shape.item());
                    *wanted = item;
                }
                done = done.max(place + 1);
            }
            None => others.push((done, item)),
        }
    }
    let mut others = others.into_iter().peekable();
    let mut out = Vec::with_capacity(applied.len() + others.len());
    for (place, item) in applied.into_iter().enumerate() {
        while let Some((_, other)) = others.next_if(|(before, _)| *before <= place) {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others.map(|(_, other)| other));
    out
}

/// Removes the fields that a manager owned before and that now have no owner: `managed` is the union of all managers'
/// sets, including the new set of this one. A structure is removed with its content, defaults included, if none of its
/// fields has an owner.
pub(crate) fn prune(value: &mut Value, last: &FieldSet, managed: &FieldSet, shape: Shape<'_>) {
    let none = FieldSet::default();
    match value {
        Value::Object(map) if !shape.is_atomic() => map.retain(|name, inner| {
            let step = format!("f:{name}");
            let Some(owned) = last.child(&step) else { return true };
            match managed.child(&step) {
                None if owned.member || !shape.is_map_key(name) => return false,
                kept => prune(inner, owned, kept.unwrap_or(&none), shape.field(name)),
            }
            true
        }),
        Value::Array(items) => {
            let Some(keys) = shape.list_keys() else { return };
            items.retain_mut(|item| {
                let step = shape.element(item, &keys);
                let Some(owned) = last.child(&step) else { return true };
                match managed.child(&step) {
                    None if owned.member => return false,
                    kept => prune(item, owned, kept.unwrap_or(&none), shape.item()),
                }
                true
            });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::patch::budget::Budget;
    use crate::patch::merge_keys::{META, Type, by, object, set};

    static SPEC: Type = Type { fields: &[by("containers", &["name"]), set("words")] };
    static KIND: Type = Type { fields: &[META, object("spec", &SPEC)] };

    fn shape() -> Shape<'static> {
        Shape::built(&KIND)
    }

    fn names(value: &Value) -> Vec<&str> {
        value["spec"]["containers"].as_array().unwrap().iter().filter_map(|c| c["name"].as_str()).collect()
    }

    #[test]
    fn lists_merge_by_key() {
        let mut live = json!({"spec": {"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b"}]}});
        merge(&mut live, json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}}), shape());
        let merged = json!([{"name": "a", "image": "2", "tty": true}, {"name": "b"}, {"name": "c"}]);
        assert_eq!(live["spec"]["containers"], merged);
        let mut other = json!({"spec": {"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]}});
        merge(&mut other, json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}), shape());
        assert_eq!(names(&other), ["b", "a", "x"], "the applied order wins");
    }

    #[test]
    fn applied_item_replaces_several_of_its_key() {
        let live = json!({"spec": {"containers": [
            {"name": "a", "image": "1"}, {"name": "b"}, {"name": "a", "tty": true}]}});
        let mut other = live.clone();
        merge(&mut other, json!({"spec": {"containers": [{"name": "a", "image": "2"}]}}), shape());
        assert_eq!(other["spec"]["containers"], json!([{"name": "a", "image": "2"}, {"name": "b"}]));
        let mut other = live.clone();
        merge(&mut other, json!({"spec": {"containers": [{"name": "b"}]}}), shape());
        assert_eq!(other, live, "they stay while nobody applies their key");
    }

    #[test]
    fn atomic_maps_are_replaced() {
        let mut live = json!({"spec": {"selector": {"app": "web", "version": "v1"}, "map": {"a": 1, "b": 1}}});
        merge(&mut live, json!({"spec": {"selector": {"app": "web"}, "map": {"a": 2}}}), shape());
        assert_eq!(live, json!({"spec": {"selector": {"app": "web"}, "map": {"a": 2, "b": 1}}}));
    }

    #[test]
    fn unowned_fields_go_with_their_structure() {
        let set = |value: Value| FieldSet::of(&value, shape(), &mut Budget::default()).unwrap();
        let container = |rest: Value| {
            let mut one = json!({"name": "c", "image": "i"});
            json_patch::merge(&mut one, &rest);
            json!({"spec": {"containers": [one]}})
        };
        let last = set(container(json!({"probe": {"port": 1}, "tty": true})));
        let now = set(container(json!({})));
        let mut live = container(json!({"probe": {"port": 1, "defaulted": 10}, "tty": true, "other": 1}));
        let theirs = set(container(json!({"tty": true})));
        prune(&mut live, &last, &now.union(&theirs), shape());
        assert_eq!(live, container(json!({"tty": true, "other": 1})));
        let mut live = json!({"spec": {"containers": [{"name": "c"}, {"name": "d"}], "words": ["a", "b"]}});
        let last = set(live.clone());
        prune(&mut live, &last, &set(json!({"spec": {"containers": [{"name": "d"}], "words": ["b"]}})), shape());
        assert_eq!(live, json!({"spec": {"containers": [{"name": "d"}], "words": ["b"]}}));
    }
}
