//! Label selectors of pods for other pods. Pure.

use std::collections::BTreeSet;

use sampan_json::SetField;
use serde_json::{Value, json};

use apimachinery::json::{entries, items};
use apimachinery::selector::selects;

/// Same as [`selects`], but a null selector selects nothing.
pub(super) fn selects_some(selector: &Value, labels: &Value) -> bool {
    !selector.is_null() && selects(selector, labels)
}

/// Adds the pod's own values of these labels to a selector, each once. Keys that the pod does not have are left out.
pub(super) fn add_label_keys(selector: &mut Value, keys: &[Value], operator: &str, labels: &Value) {
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let more: Vec<Value> = { keys.into_iter() }
        .filter_map(|key| Some((key, labels.get(key)?)))
        .map(|(key, value)| json!({"key": key, "operator": operator, "values": [value]}))
        .collect();
    if !more.is_empty() && selector.is_object() {
        let all: Vec<Value> = items(selector, "matchExpressions").iter().cloned().chain(more).collect();
        selector.set("matchExpressions", all.into());
    }
}

/// It selects all pods.
pub(super) fn is_empty(selector: &Value) -> bool {
    entries(selector, "matchLabels").next().is_none() && items(selector, "matchExpressions").is_empty()
}
