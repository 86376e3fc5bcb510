//! Patches, as far as the controllers use them.

use serde_json::{Value, json};

pub(crate) fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

/// A strategic merge patch of metadata, as far as the controllers use it.
pub(super) fn strategic(target: &mut Value, patch: &Value) {
    match &patch["ownerReferences"][0] {
        Value::Null => {}
        one if one["$patch"] == "delete" => target["ownerReferences"] = json!([]),
        one => target["ownerReferences"] = json!([one]),
    }
    let mut finalizers = target["finalizers"].as_array().cloned().unwrap_or_default();
    let going = patch["$deleteFromPrimitiveList/finalizers"].as_array();
    finalizers.retain(|one| !going.is_some_and(|going| going.contains(one)));
    finalizers.extend(patch["finalizers"].as_array().into_iter().flatten().cloned());
    target["finalizers"] = finalizers.into();
}

/// Applies a patch to a status: conditions are merged by their types.
pub(super) fn status(target: &mut Value, patch: &Value) {
    let mut conditions = target["conditions"].as_array().cloned().unwrap_or_default();
    for one in patch["conditions"].as_array().into_iter().flatten() {
        conditions.retain(|before| before["type"] != one["type"]);
        conditions.push(one.clone());
    }
    merge(target, patch);
    target["conditions"] = conditions.into();
}

pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name.as_str()], value);
        }
    }
}
