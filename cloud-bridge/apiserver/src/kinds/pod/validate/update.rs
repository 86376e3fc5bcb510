//! Allowed changes of an existing pod's spec.

use std::collections::HashSet;

use sampan_json::SetField;
use serde_json::{Value, json};

use super::{affinity, annotations, spec};
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{integer, items, text};

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
/// Fields of the spec that have rules of their own; all else must stay.
const OWN_RULES: &[&str] = &[
    "activeDeadlineSeconds",
    "containers",
    "initContainers",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
];

/// Validates an update of the main resource.
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec::spec_and_pod_rules(&mut errors, new);
    annotations::update(&mut errors, new, old);
    let (new, old) = (&new["spec"], &old["spec"]);
    for list in ["containers", "initContainers"] {
        if items(new, list).len() != items(old, list).len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), detail));
            return errors;
        }
    }
    if !deadline(&mut errors, new, old) {
        return errors;
    }
    let before = items(old, "tolerations");
    let after = items(new, "tolerations");
    let kept: HashSet<String> = after.iter().map(but_seconds).collect();
    if !before.iter().all(|old| kept.contains(&but_seconds(old))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
    } else {
        affinity::tolerations(&mut errors, "spec.tolerations", after);
    }
    let gates: HashSet<&str> = items(old, "schedulingGates").iter().map(|g| text(g, "name")).collect();
    for (i, gate) in items(new, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !gates.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(format!("spec.schedulingGates[{i}].name"), &detail));
        }
    }
    let changes = other_changes(new, old);
    if !changes.is_empty() {
        let detail = format!("pod updates may not change fields other than {CHANGEABLE}\n{}", changes.join("\n"));
        errors.push(FieldError::forbidden("spec", &detail));
    }
    errors
}

/// A deadline may be set, or be brought nearer. False when nothing else needs to be judged.
fn deadline(errors: &mut Errors, new: &Value, old: &Value) -> bool {
    const FIELD: &str = "activeDeadlineSeconds";
    let path = format!("spec.{FIELD}");
    match (integer(new, FIELD), integer(old, FIELD)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.push(FieldError::invalid(path, &new.into(), "must be between 0 and 2147483647, inclusive"));
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.push(FieldError::invalid(path, &new.into(), "must be less than or equal to previous value"));
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(path, &Value::Null, detail));
            true
        }
        _ => true,
    }
}

/// A toleration without its seconds, as something that can be looked up.
fn but_seconds(toleration: &Value) -> String {
    json!(["key", "operator", "value", "effect"].map(|field| text(toleration, field))).to_string()
}

/// One line for each field that must not change and did: `spec.hostNetwork: false -> true`.
fn other_changes(new: &Value, old: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    let both: std::collections::BTreeSet<&String> =
        [new, old].into_iter().filter_map(Value::as_object).flat_map(|map| map.keys()).collect();
    for field in both {
        if !OWN_RULES.contains(&field.as_str()) {
            differences(&mut changes, &format!("spec.{field}"), &new[field], &old[field]);
        }
    }
    for list in ["containers", "initContainers"] {
        for (i, (new, old)) in items(new, list).iter().zip(items(old, list)).enumerate() {
            let mut new = new.clone();
            new.set("image", old["image"].clone());
            differences(&mut changes, &format!("spec.{list}[{i}]"), &new, old);
        }
    }
    const GRACE: &str = "terminationGracePeriodSeconds";
    let mended = integer(old, GRACE).is_some_and(|g| g < 0) && integer(new, GRACE) == Some(1);
    if !mended {
        differences(&mut changes, &format!("spec.{GRACE}"), &new[GRACE], &old[GRACE]);
    }
    changes
}

fn differences(changes: &mut Vec<String>, path: &str, new: &Value, old: &Value) {
    match (new, old) {
        _ if new == old || is_empty(new) && is_empty(old) => {}
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                differences(changes, &format!("{path}.{key}"), &new[key], &old[key]);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (new, old)) in a.iter().zip(b).enumerate() {
                differences(changes, &format!("{path}[{i}]"), new, old);
            }
        }
        _ => changes.push(format!("  {path}: {old} -> {new}")),
    }
}

/// Absent and empty are the same to the API server.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        _ => false,
    }
}
