//! Structural schemas: pruning and defaults. Pure.

use serde_json::{Map, Value};

use crate::codec::parse::{COMPLAINTS_MAX, shown_path};

/// Drops what the schema does not name; `unknown` gets the paths.
pub(crate) fn prune(value: &mut Value, schema: &Value, path: &mut String, unknown: &mut Vec<String>) {
    prune_in(value, schema, false, path, unknown);
}

/// Prunes one value. `kept` says that it is an item of a list which keeps unknown fields: so do its items then
/// (apiextensions-apiserver pkg/apiserver/schema/pruning/algorithm.go, `skipPrune`).
fn prune_in(value: &mut Value, schema: &Value, kept: bool, path: &mut String, unknown: &mut Vec<String>) {
    let length = path.len();
    let preserve = kept || schema["x-kubernetes-preserve-unknown-fields"] == true;
    match value {
        Value::Object(map) => {
            let embedded = schema["x-kubernetes-embedded-resource"] == true;
            let properties = schema["properties"].as_object();
            let additional = &schema["additionalProperties"];
            let mut dropped = Vec::new();
            for (key, inner) in map.iter_mut() {
                if embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                if let Some(schema) = properties.and_then(|p| p.get(key)) {
                    prune_in(inner, schema, false, path, unknown);
                } else if additional.is_object() {
                    prune_in(inner, additional, false, path, unknown);
                } else if !preserve && *additional != true {
                    if unknown.len() < COMPLAINTS_MAX {
                        unknown.push(shown_path(path));
                    }
                    dropped.push(key.clone());
                }
                path.truncate(length);
            }
            for key in dropped {
                map.remove(&key);
            }
        }
        Value::Array(items) => {
            let schema = &schema["items"];
            for (index, item) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                prune_in(item, schema, preserve, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Fills in defaults, and drops nulls where null is not allowed.
pub(crate) fn default(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            if let Some(properties) = schema["properties"].as_object() {
                drop_nulls(map, properties);
                for (key, inner) in properties {
                    if !map.contains_key(key)
                        && let Some(default) = inner.get("default")
                    {
                        map.insert(key.clone(), default.clone());
                    }
                    if let Some(value) = map.get_mut(key) {
                        default(value, inner);
                    }
                }
            }
            let additional = &schema["additionalProperties"];
            if additional.is_object() {
                map.values_mut().for_each(|value| default(value, additional));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| default(item, &schema["items"])),
        _ => {}
    }
}

fn drop_nulls(map: &mut Map<String, Value>, properties: &Map<String, Value>) {
    map.retain(|key, value| !(value.is_null() && properties.get(key).is_some_and(|s| s["nullable"] != true)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prunes_and_defaults() {
        let schema = json!({"properties": {
            "spec": {"properties": {
                "n": {"type": "integer", "default": 3},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "map": {"type": "object", "additionalProperties": {"properties": {"a": {"type": "string"}}}},
                "list": {"type": "array", "items": {"properties": {"x": {"type": "string", "default": "y"}}}},
            }},
        }});
        let mut value =
            json!({"spec": {"bad": 1, "n": null, "free": {"z": 1}, "map": {"k": {"a": "1", "b": 2}}, "list": [{}]}});
        let mut unknown = Vec::new();
        prune(&mut value, &schema, &mut String::new(), &mut unknown);
        assert_eq!(unknown, ["spec.bad", "spec.map.k.b"]);
        default(&mut value, &schema);
        assert_eq!(value, json!({"spec": {"n": 3, "free": {"z": 1}, "map": {"k": {"a": "1"}}, "list": [{"x": "y"}]}}));
    }

    #[test]
    fn lists_keep_unknown_fields_where_asked() {
        let schema = json!({"properties": {
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "rules": {"type": "array", "x-kubernetes-preserve-unknown-fields": true,
                "items": {"type": "object", "properties": {"known": {"type": "object"}}}},
            "strict": {"type": "array", "items": {"type": "object"}},
        }});
        let given = json!({"any": [{"key": "a", "values": [{"b": [[{"c": 1}]]}]}], "rules": [{"name": "r"}]});
        let (mut value, mut unknown) = (given.clone(), Vec::new());
        prune(&mut value, &schema, &mut String::new(), &mut unknown);
        assert_eq!((value, unknown), (given, Vec::<String>::new()));
        let (mut value, mut unknown) = (json!({"rules": [{"known": {"x": 1}}], "strict": [{"x": 1}]}), Vec::new());
        prune(&mut value, &schema, &mut String::new(), &mut unknown);
        assert_eq!(value, json!({"rules": [{"known": {}}], "strict": [{}]}), "what has a schema is pruned by it");
        assert_eq!(unknown, ["rules[0].known.x", "strict[0].x"]);
    }
}
