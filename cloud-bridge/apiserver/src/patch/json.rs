//! JSON patch (RFC 6902) within the API server's limits, and merge patch (RFC 7396). What an operation of a JSON patch
//! does is the library's. Pure.

use json_patch::{PatchOperation, patch_unsafe};
use sampan_json::SetField;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::codec::bounds::Size;
use crate::codec::parse::DEPTH_MAX;

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonPatchError {
    /// The patch itself is malformed: 400.
    #[error("{0}")]
    Malformed(String),
    /// It does not fit the object: 422.
    #[error("{0}")]
    Inapplicable(String),
}

/// The most operations in one JSON patch, as the API server has it.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum size of the copies of one JSON patch, as in the API server: the limit of a request.
const MAX_COPIED: usize = 3 * 1024 * 1024;
/// How many values the operations of one JSON patch may move about: some 10 ms.
const MAX_WORK: usize = 1_000_000;

/// Applies a merge patch and consumes it: a library's copy would be as large as the object.
pub(crate) fn merge_patch(target: &mut Value, patch: Value) {
    let fields = match patch {
        Value::Object(fields) => fields,
        other => {
            *target = other;
            return;
        }
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (name, value) in fields {
        if value.is_null() {
            map.remove(&name);
        } else {
            merge_patch(map.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// Applies a JSON patch, one operation after another, and frees each. After an error, the target is unusable.
pub(crate) fn json_patch(target: &mut Value, patch: Value) -> Result<(), JsonPatchError> {
    let malformed = |text: &str| JsonPatchError::Malformed(text.to_owned());
    let Value::Array(operations) = patch else {
        let why = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
        return Err(malformed(why));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(JsonPatchError::Malformed(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut limits = Limits { copied: MAX_COPIED, work: MAX_WORK };
    operations.into_iter().try_for_each(|operation| apply(target, operation, &mut limits))
}

/// Rest of the limits for the operations of one patch.
struct Limits {
    copied: usize,
    work: usize,
}

impl Limits {
    fn work(&mut self, steps: usize) -> Result<(), JsonPatchError> {
        let left = self.work.checked_sub(steps);
        self.work = left.ok_or_else(|| JsonPatchError::Malformed("the JSON patch moves too much".into()))?;
        Ok(())
    }

    /// A value that is moved or copied to `path`: counts it, and keeps the object from nesting without end.
    fn carry(&mut self, value: &Value, path: &str, copy: bool) -> Result<(), JsonPatchError> {
        let size = Size::of(value, DEPTH_MAX.saturating_sub(path.matches('/').count()))
            .ok_or_else(|| JsonPatchError::Malformed("the JSON patch nests too deep".into()))?;
        self.work(size.values)?;
        if copy {
            let left = self.copied.checked_sub(size.bytes);
            self.copied = left.ok_or_else(|| {
                JsonPatchError::Malformed(format!(
                    "the accumulated size of the values that the JSON patch copies exceeds the limit of {MAX_COPIED}"
                ))
            })?;
        }
        Ok(())
    }
}

fn apply(target: &mut Value, mut operation: Value, limits: &mut Limits) -> Result<(), JsonPatchError> {
    let verb = operation["op"].as_str().unwrap_or_default().to_owned();
    let verb = verb.as_str();
    // The API server checks the verb only when it executes the operation: 422.
    if !matches!(verb, "add" | "remove" | "replace" | "test" | "move" | "copy") && operation.is_object() {
        return Err(JsonPatchError::Inapplicable(format!("unexpected kind: {verb}")));
    }
    from_start(target, &mut operation, verb);
    let parsed = PatchOperation::deserialize(operation)
        .map_err(|error| JsonPatchError::Malformed(format!("error decoding patch: {error}")))?;
    let path = parsed.path().as_str();
    let inapplicable = |verb: &str, at: &str| {
        JsonPatchError::Inapplicable(format!(
            "{verb} operation does not apply: doc is missing path: {at:?}: missing value"
        ))
    };
    match &parsed {
        PatchOperation::Add(add) => {
            limits.carry(&add.value, path, false)?;
            limits.work(shifted(target, path))?;
        }
        PatchOperation::Remove(_) => limits.work(shifted(target, path))?,
        PatchOperation::Replace(replace) => limits.carry(&replace.value, path, false)?,
        PatchOperation::Test(test) => {
            // A missing value counts as null, as in the API server.
            let same = target.pointer(path).unwrap_or(&Value::Null) == &test.value;
            let failed = || JsonPatchError::Inapplicable("testing value failed: test failed".into());
            return same.then_some(()).ok_or_else(failed);
        }
        PatchOperation::Move(change) => {
            let from = change.from.as_str();
            limits.carry(target.pointer(from).ok_or_else(|| inapplicable("move", from))?, path, false)?;
            limits.work(shifted(target, from) + shifted(target, path))?;
        }
        PatchOperation::Copy(change) => {
            let from = change.from.as_str();
            limits.carry(target.pointer(from).ok_or_else(|| inapplicable("copy", from))?, path, true)?;
            limits.work(shifted(target, path))?;
        }
    }
    patch_unsafe(target, std::slice::from_ref(&parsed)).map_err(|_| inapplicable(verb, path))
}

/// Replaces indexes that count from the end of a list (`/-1`) by those from its start. RFC 6902 does not have them;
/// Kubernetes supports them for clients that use them. For an `add` or `copy`, the list at `path` counts as one item
/// longer. The `path` of a `move` stays unchanged: it counts after the removal.
fn from_start(target: &Value, operation: &mut Value, verb: &str) {
    for field in ["path", "from"] {
        if field == "path" && verb == "move" {
            continue;
        }
        let more = usize::from(field == "path" && matches!(verb, "add" | "copy"));
        if let Some(path) = operation[field].as_str().and_then(|path| counted(target, path, more)) {
            operation.set(field, path.into());
        }
    }
}

/// The path with places from the start; `None` when it has only such places.
fn counted(target: &Value, path: &str, more: usize) -> Option<String> {
    let (mut out, mut found) = (String::new(), false);
    let mut steps = path.strip_prefix('/')?.split('/').peekable();
    while let Some(step) = steps.next() {
        let more = if steps.peek().is_none() { more } else { 0 };
        let back = step.strip_prefix('-').and_then(|number| number.parse::<usize>().ok()).filter(|back| *back > 0);
        let length = || target.pointer(&out).and_then(Value::as_array).map(|items| items.len() + more);
        let place = back.and_then(|back| length()?.checked_sub(back));
        found |= place.is_some();
        out.push('/');
        out += &place.map_or_else(|| step.to_owned(), |place| place.to_string());
    }
    found.then_some(out)
}

/// Number of elements of a list that move when one is inserted or removed at a path.
fn shifted(target: &Value, path: &str) -> usize {
    let Some((list, place)) = path.rsplit_once('/') else { return 0 };
    match target.pointer(list) {
        Some(Value::Array(items)) => items.len().saturating_sub(place.parse::<usize>().unwrap_or(items.len())),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        json_patch(&mut value, patch).unwrap();
        assert_eq!(value, json!({"a": [0, 1, 2, 9], "m": {}, "n": 1}));
    }

    #[test]
    fn merge_patch_is_as_the_library_has_it() {
        let target = json!({"a": {"b": 1, "c": {"d": [1]}}, "e": "f", "g": null});
        for patch in [
            json!({"a": {"b": null, "c": {"d": [2, null], "x": null}}, "e": {"y": {"z": null, "w": 1}}}),
            json!({"a": null, "h": null, "i": {}, "g": {"k": 1}}),
            json!([1]),
            json!(null),
        ] {
            let (mut known, mut merged) = (target.clone(), target.clone());
            json_patch::merge(&mut known, &patch);
            merge_patch(&mut merged, patch.clone());
            assert_eq!(merged, known, "{patch}");
        }
    }

    #[test]
    fn places_may_be_counted_from_the_end() {
        let patched = |patch: Value| {
            let mut value = json!({"a": [1, 2, [3, 4]], "m": {"-1": 5}});
            json_patch(&mut value, patch).map(|()| value)
        };
        for (patch, expected) in [
            (json!([{"op": "replace", "path": "/a/-1", "value": 9}]), json!([1, 2, 9])),
            (json!([{"op": "remove", "path": "/a/-3"}]), json!([2, [3, 4]])),
            (json!([{"op": "add", "path": "/a/-1", "value": 9}]), json!([1, 2, [3, 4], 9])),
            (json!([{"op": "add", "path": "/a/-2", "value": 9}]), json!([1, 2, 9, [3, 4]])),
            (json!([{"op": "replace", "path": "/a/-1/-2", "value": 9}]), json!([1, 2, [9, 4]])),
            (json!([{"op": "copy", "from": "/a/-2", "path": "/a/0"}]), json!([2, 1, 2, [3, 4]])),
            (json!([{"op": "test", "path": "/a/-2", "value": 2}]), json!([1, 2, [3, 4]])),
        ] {
            assert_eq!(patched(patch.clone()).map(|value| value["a"].clone()), Ok(expected), "{patch}");
        }
        let field = patched(json!([{"op": "replace", "path": "/m/-1", "value": 6}])).unwrap();
        assert_eq!(field["m"], json!({"-1": 6}), "in a map it is a name");
        assert!(patched(json!([{"op": "remove", "path": "/a/-4"}])).is_err());
    }

    #[test]
    fn failures_name_the_path() {
        let mut value = json!({});
        let error = json_patch(&mut value, json!([{"op": "remove", "path": "/x"}])).unwrap_err();
        assert!(matches!(&error, JsonPatchError::Inapplicable(text) if text.contains("\"/x\"")), "{error}");
        assert!(json_patch(&mut value, json!({})).is_err());
        for malformed in [json!([1]), json!([{"op": "add", "path": "/a"}])] {
            let error = json_patch(&mut value, malformed.clone()).unwrap_err();
            assert!(matches!(error, JsonPatchError::Malformed(_)), "{malformed}: {error}");
        }
        let fly = json_patch(&mut value, json!([{"op": "fly", "path": "/a"}])).unwrap_err();
        assert!(matches!(fly, JsonPatchError::Inapplicable(_)), "{fly}");
        json_patch(&mut value, json!([{"op": "test", "path": "/x", "value": null}])).unwrap();
    }

    fn refused(value: &Value, patch: Value) -> String {
        match json_patch(&mut value.clone(), patch) {
            Err(JsonPatchError::Malformed(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn copies_do_not_double_without_end() {
        let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let value = json!({"a": ["x".repeat(1000)]});
        assert!(refused(&value, vec![double; 60].into()).contains("copies exceeds the limit"));
        let string = json!({"op": "copy", "from": "/s", "path": "/a/-"});
        let value = json!({"a": [], "s": "x".repeat(1_000_000)});
        assert!(json_patch(&mut value.clone(), vec![string.clone(); 3].into()).is_ok());
        assert!(refused(&value, vec![string; 4].into()).contains("copies exceeds the limit"));
    }

    #[test]
    fn moves_do_not_nest_without_end() {
        // Each pair of operations nests the value one level deeper.
        let down =
            [json!({"op": "add", "path": "/b", "value": {}}), json!({"op": "move", "from": "/a", "path": "/b/a"})];
        let up = [json!({"op": "move", "from": "/b", "path": "/a"})];
        let patch: Vec<Value> = std::iter::repeat_n(down.into_iter().chain(up), 3000).flatten().collect();
        assert!(refused(&json!({"a": {}}), patch.into()).contains("nests too deep"));
    }

    #[test]
    fn lists_are_not_moved_about_for_minutes() {
        let value = json!({"a": vec![0; 100_000]});
        let first = json!({"op": "add", "path": "/a/0", "value": 1});
        assert!(refused(&value, vec![first; 9000].into()).contains("moves too much"));
    }

    #[test]
    fn wide_objects_are_moved_some_times_only() {
        let wide: Map<_, _> = (0..30_000).map(|at| (format!("k{at}"), json!("v"))).collect();
        let value = json!({ "a": wide });
        let moves = |count: usize| -> Value {
            let there = json!({"op": "move", "from": "/a", "path": "/b"});
            let back = json!({"op": "move", "from": "/b", "path": "/a"});
            [there, back].into_iter().cycle().take(count).collect::<Vec<_>>().into()
        };
        json_patch(&mut value.clone(), moves(32)).unwrap();
        assert!(refused(&value, moves(40)).contains("moves too much"));
    }
}
