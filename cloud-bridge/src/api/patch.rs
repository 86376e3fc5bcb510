//! JSON patch (RFC 6902) and JSON merge patch (RFC 7386). Pure.

use serde_json::Value;

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonPatchError {
    /// The patch itself is malformed: 400.
    #[error("{0}")]
    Malformed(String),
    /// It does not fit the object: 422.
    #[error("{0}")]
    Inapplicable(String),
}

/// The most operations in one JSON patch, as the API server has it.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a merge patch: objects merge, null removes, everything else replaces.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Applies a JSON patch.
pub(super) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), JsonPatchError> {
    let malformed = |text: &str| JsonPatchError::Malformed(text.to_owned());
    let operations = patch.as_array().ok_or_else(|| {
        malformed("error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp")
    })?;
    if operations.len() > MAX_OPERATIONS {
        return Err(JsonPatchError::Malformed(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    for operation in operations {
        apply(target, operation)?;
    }
    Ok(())
}

fn apply(target: &mut Value, operation: &Value) -> Result<(), JsonPatchError> {
    let text = |key: &str| operation[key].as_str();
    let op = text("op").unwrap_or_default();
    let path = text("path").ok_or_else(|| JsonPatchError::Malformed("missing path field".into()))?;
    let inapplicable = |verb: &str, at: &str| {
        JsonPatchError::Inapplicable(format!(
            "{verb} operation does not apply: doc is missing path: {at:?}: missing value"
        ))
    };
    let value = || {
        operation.get("value").cloned().ok_or_else(|| JsonPatchError::Malformed(format!("{op} operation has no value")))
    };
    match op {
        "add" => add(target, path, value()?).ok_or_else(|| inapplicable("add", path)),
        "remove" => remove(target, path).map(drop).ok_or_else(|| inapplicable("remove", path)),
        "replace" => match target.pointer_mut(path) {
            Some(place) => {
                *place = value()?;
                Ok(())
            }
            None => Err(inapplicable("replace", path)),
        },
        "test" => {
            let expected = operation.get("value").cloned().unwrap_or_default();
            let found = target.pointer(path).cloned().unwrap_or_default();
            if found == expected {
                Ok(())
            } else {
                Err(JsonPatchError::Inapplicable(format!("testing value {path} failed: test failed")))
            }
        }
        "move" | "copy" => {
            let from = text("from").ok_or_else(|| JsonPatchError::Malformed("missing from field".into()))?;
            let moved = if op == "move" { remove(target, from) } else { target.pointer(from).cloned() };
            let moved = moved.ok_or_else(|| inapplicable(op, from))?;
            add(target, path, moved).ok_or_else(|| inapplicable(op, path))
        }
        other => Err(JsonPatchError::Inapplicable(format!("unexpected kind: {other}"))),
    }
}

/// The parent of a path and the unescaped last token.
fn parent<'a>(target: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (head, last) = path.rsplit_once('/')?;
    Some((target.pointer_mut(head)?, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    match parent(target, path)? {
        (Value::Object(map), key) => {
            map.insert(key, value);
        }
        (Value::Array(items), key) => {
            let at = if key == "-" { items.len() } else { key.parse().ok()? };
            if at > items.len() {
                return None;
            }
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(target: &mut Value, path: &str) -> Option<Value> {
    match parent(target, path)? {
        (Value::Object(map), key) => map.remove(&key),
        (Value::Array(items), key) => {
            let at: usize = key.parse().ok()?;
            (at < items.len()).then(|| items.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_removes_nulls_and_replaces_lists() {
        let mut value = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge(&mut value, &json!({"a": {"b": null, "c": [3], "e": {"f": null, "g": 1}}}));
        assert_eq!(value, json!({"a": {"c": [3], "e": {"g": 1}}, "d": 1}));
    }

    #[test]
    fn json_patch_operations() {
        let mut value = json!({"a": [1, 2], "m": {"x/y": 1}});
        let patch = json!([
            {"op": "test", "path": "/a/0", "value": 1},
            {"op": "add", "path": "/a/-", "value": 3},
            {"op": "add", "path": "/a/0", "value": 0},
            {"op": "remove", "path": "/m/x~1y"},
            {"op": "copy", "from": "/a/1", "path": "/m/c"},
            {"op": "move", "from": "/m/c", "path": "/n"},
            {"op": "replace", "path": "/a/3", "value": 9},
        ]);
        json_patch(&mut value, &patch).unwrap();
        assert_eq!(value, json!({"a": [0, 1, 2, 9], "m": {}, "n": 1}));
    }

    #[test]
    fn failures_name_the_path() {
        let mut value = json!({});
        let error = json_patch(&mut value, &json!([{"op": "remove", "path": "/x"}])).unwrap_err();
        assert!(matches!(&error, JsonPatchError::Inapplicable(text) if text.contains("\"/x\"")), "{error}");
        assert!(json_patch(&mut value, &json!({})).is_err());
    }
}
