//! Structural schemas: pruning and defaults. Pure.

use serde_json::{Map, Value};

use crate::codec::parse::{COMPLAINTS_MAX, shown_path};

/// Drops what the schema does not name; `unknown` gets the paths.
pub(crate) fn prune(value: &mut Value, schema: &Value, path: &mut String, unknown: &mut Vec<String>) {
    let length = path.len();
    match value {
        Value::Object(map) => {
            let preserve = schema["x-kubernetes-preserve-unknown-fields"] == true;
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
                    prune(inner, schema, path, unknown);
                } else if additional.is_object() {
                    prune(inner, additional, path, unknown);
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
                prune(item, schema, path, unknown);
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
}
