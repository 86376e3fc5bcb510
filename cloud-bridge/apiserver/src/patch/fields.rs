//! Field sets: which fields of an object a manager owns, as `FieldsV1` writes them, and the operations of
//! server-side apply on them. Pure.

use edge_protocol::json::SetField;
use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

/// One step of a path: `f:name`, `k:{"name":"x"}`, `v:"x"`, or `.` for the item itself.
pub(crate) type Path = Vec<String>;

/// The leaves of a field set.
pub(crate) type Fields = BTreeSet<Path>;

/// How a list merges: `None` as a whole, no keys as a set, else by these keys.
pub(crate) type Keys<'a> = &'a dyn Fn(&[&str]) -> Option<Vec<String>>;

/// What an applied object sets. `names` is the path of field names so far.
pub(crate) fn collect(value: &Value, keys: Keys<'_>) -> Fields {
    let mut fields = Fields::new();
    walk(value, keys, &mut Vec::new(), &mut Vec::new(), &mut fields);
    for own in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        fields.remove(&vec!["f:metadata".to_owned(), format!("f:{own}")]);
    }
    fields
}

fn walk<'v>(value: &'v Value, keys: Keys<'_>, names: &mut Vec<&'v str>, path: &mut Path, out: &mut Fields) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                names.push(key);
                path.push(format!("f:{key}"));
                walk(inner, keys, names, path, out);
                path.pop();
                names.pop();
            }
        }
        Value::Array(items) => match keys(names) {
            None => {
                out.insert(path.clone());
            }
            Some(list) => {
                for item in items {
                    path.push(element(item, &list));
                    if !list.is_empty() {
                        path.push(".".to_owned());
                        out.insert(path.clone());
                        path.pop();
                    }
                    walk(item, keys, names, path, out);
                    path.pop();
                }
            }
        },
        _ => {
            out.insert(path.clone());
        }
    }
}

/// The step that names an item of a list.
pub(crate) fn element(item: &Value, keys: &[String]) -> String {
    if keys.is_empty() {
        return format!("v:{item}");
    }
    let named: Map<String, Value> = keys
        .iter()
        .map(|key| {
            let value = item.get(key).cloned();
            // The one key that the API defaults.
            let value = value.unwrap_or_else(|| if key == "protocol" { "TCP".into() } else { Value::Null });
            (key.clone(), value)
        })
        .collect();
    format!("k:{}", Value::Object(named))
}

/// The set as `FieldsV1`.
pub(crate) fn to_json(fields: &Fields) -> Value {
    let mut root = json!({});
    for path in fields {
        let steps: Vec<&str> = path.iter().map(String::as_str).collect();
        if root.at_mut(&steps).is_none() {
            root.set_at(&steps, json!({}));
        }
    }
    root
}

/// The set of a `FieldsV1`.
pub(crate) fn from_json(value: &Value) -> Fields {
    fn walk(value: &Value, path: &mut Path, out: &mut Fields) {
        match value.as_object() {
            Some(map) if !map.is_empty() => {
                for (step, inner) in map {
                    path.push(step.clone());
                    walk(inner, path, out);
                    path.pop();
                }
            }
            _ => {
                out.insert(path.clone());
            }
        }
    }
    let mut fields = Fields::new();
    walk(value, &mut Vec::new(), &mut fields);
    fields.remove(&Path::new());
    fields
}

/// Lays an applied value over a live one.
pub(crate) fn merge<'v>(live: &mut Value, applied: &'v Value, keys: Keys<'_>, names: &mut Vec<&'v str>) {
    match (live, applied) {
        (Value::Object(live), Value::Object(applied)) => {
            for (key, value) in applied {
                names.push(key);
                merge(live.entry(key.clone()).or_insert(Value::Null), value, keys, names);
                names.pop();
            }
        }
        (live @ Value::Array(_), Value::Array(applied)) => {
            let Some(list) = keys(names) else {
                *live = Value::Array(applied.clone());
                return;
            };
            let Value::Array(items) = live else { return };
            *items = merge_lists(std::mem::take(items), applied, &list, keys, names);
        }
        (live, applied) => *live = applied.clone(),
    }
}

/// Merges lists by key. The applied order wins; what only the live list has keeps its place among the others.
fn merge_lists<'v>(
    live: Vec<Value>,
    applied: &'v [Value],
    list: &[String],
    keys: Keys<'_>,
    names: &mut Vec<&'v str>,
) -> Vec<Value> {
    let steps: Vec<String> = applied.iter().map(|item| element(item, list)).collect();
    let live: Vec<(String, Value)> = live.into_iter().map(|item| (element(&item, list), item)).collect();
    let mut there: HashMap<&str, &Value> = HashMap::new();
    for (step, item) in &live {
        there.entry(step).or_insert(item);
    }
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (place, step) in steps.iter().enumerate() {
        places.entry(step).or_insert(place);
    }
    let mut out = Vec::with_capacity(live.len() + applied.len());
    let mut done = 0;
    let mut emit = |upto: usize, done: &mut usize, out: &mut Vec<Value>| {
        while *done < upto {
            let mut item = there.get(steps[*done].as_str()).map_or(Value::Null, |item| (*item).clone());
            merge(&mut item, &applied[*done], keys, names);
            out.push(item);
            *done += 1;
        }
    };
    for (step, item) in &live {
        match places.get(step.as_str()) {
            Some(at) => emit(at + 1, &mut done, &mut out),
            None => out.push(item.clone()),
        }
    }
    emit(applied.len(), &mut done, &mut out);
    out
}

/// A path as conflicts name it: `.spec.containers[name="c"].image`.
pub(crate) fn shown(path: &[String]) -> String {
    let mut out = String::new();
    for step in path {
        match step.split_once(':') {
            Some(("f", name)) => {
                out.push('.');
                out.push_str(name);
            }
            Some(("k", text)) => {
                let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                out.push_str(&format!("[{}]", keys.join(",")));
            }
            Some((_, text)) => out.push_str(&format!("[={text}]")),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::places::{self, Places};

    fn keys(names: &[&str]) -> Option<Vec<String>> {
        match names.last() {
            Some(&"containers") => Some(vec!["name".into()]),
            Some(&"finalizers") => Some(Vec::new()),
            _ => None,
        }
    }

    #[test]
    fn sets_round_trip() {
        let value = json!({"metadata": {"name": "x", "labels": {"a": "b"}, "finalizers": ["f/g"]}, "spec": {"containers": [{"name": "c", "image": "i", "args": ["1"]}]}});
        let fields = collect(&value, &keys);
        let json = to_json(&fields);
        assert_eq!(
            json,
            json!({
                "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"f/g\"": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}}},
            })
        );
        assert_eq!(from_json(&json), fields);
        let places = Places::new(&value);
        assert!(fields.iter().all(|path| places.at(path).is_some()));
    }

    #[test]
    fn merging_and_removing_by_key() {
        let mut live = json!({"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b"}]});
        merge(&mut live, &json!({"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}), &keys, &mut Vec::new());
        assert_eq!(
            live,
            json!({"containers": [{"name": "a", "image": "2", "tty": true}, {"name": "b"}, {"name": "c"}]})
        );
        let mut other = json!({"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]});
        merge(&mut other, &json!({"containers": [{"name": "b"}, {"name": "a"}]}), &keys, &mut Vec::new());
        let order: Vec<_> = other["containers"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
        assert_eq!(order, ["b", "a", "x"], "the applied order wins");
        let item = |name: &str, rest: &str| -> Path {
            vec!["f:containers".into(), format!("k:{{\"name\":{name:?}}}"), rest.into()]
        };
        places::remove(&mut live, &[item("b", "."), item("a", "f:tty")]);
        assert_eq!(live, json!({"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}));
    }

    #[test]
    fn conflicts_are_readable() {
        let path = ["f:spec".into(), "f:containers".into(), "k:{\"name\":\"c\"}".into(), "f:image".into()];
        assert_eq!(shown(&path), ".spec.containers[name=\"c\"].image");
    }
}
