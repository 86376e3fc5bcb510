//! Structural schemas: pruning and defaults. Pure.

use serde_json::Value;

use super::embedded;
use crate::codec::parse::{COMPLAINTS_MAX, shown_path};

/// Removes fields that the schema does not name; `unknown` gets their paths.
pub(crate) fn prune(value: &mut Value, schema: &Value, path: &mut String, unknown: &mut Vec<String>) {
    prune_in(value, schema, false, path, unknown);
}

/// Prunes one value. `kept`: it is an item of a list that keeps unknown fields, as its own items do then
/// (apiextensions-apiserver pkg/apiserver/schema/pruning/algorithm.go, `skipPrune`).
fn prune_in(value: &mut Value, schema: &Value, kept: bool, path: &mut String, unknown: &mut Vec<String>) {
    let length = path.len();
    let preserve = kept || schema["x-kubernetes-preserve-unknown-fields"] == true;
    match value {
        Value::Object(map) => {
            let embedded = embedded::is(schema);
            let properties = schema["properties"].as_object();
            let additional = &schema["additionalProperties"];
            let mut dropped = Vec::new();
            for (key, inner) in map.iter_mut() {
                if embedded && matches!(key.as_str(), "apiVersion" | "kind") {
                    continue;
                }
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                if embedded && key == "metadata" {
                    embedded::prune(inner, &shown_path(path), unknown);
                } else if let Some(schema) = properties.and_then(|p| p.get(key)) {
                    prune_in(inner, schema, false, path, unknown);
                } else if additional.is_object() || *additional == true {
                    // The value true names no fields, so unknown fields of objects below it are removed.
                    prune_in(inner, additional, false, path, unknown);
                } else if !preserve {
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

/// Fills in defaults. A forbidden null gets the default, too, or is removed without a default (apiextensions-apiserver
/// pkg/apiserver/schema/defaulting: algorithm.go, prunenulls.go).
pub(crate) fn default(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            let (properties, additional) = (&schema["properties"], &schema["additionalProperties"]);
            map.retain(|key, value| {
                let schema = properties.get(key).unwrap_or(additional);
                !is_forbidden_null(value, schema) || schema.get("default").is_some()
            });
            for (key, inner) in properties.as_object().into_iter().flatten() {
                if let Some(default) = inner.get("default")
                    && map.get(key).is_none_or(|value| is_forbidden_null(value, inner))
                {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                item(value, properties.get(key).unwrap_or(additional));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|value| item(value, &schema["items"])),
        _ => {}
    }
}

/// Sets the defaults of an existing member or item.
fn item(value: &mut Value, schema: &Value) {
    if !schema.is_object() {
        return;
    }
    if let Some(default) = schema.get("default")
        && is_forbidden_null(value, schema)
    {
        *value = default.clone();
    }
    default(value, schema);
}

/// Whether a value is a null that its schema forbids. Without a schema any value is allowed.
fn is_forbidden_null(value: &Value, schema: &Value) -> bool {
    value.is_null() && schema.is_object() && schema["nullable"] != true
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
    fn any_field_is_kept_beside_properties() {
        let schema = json!({"properties": {"map": {"type": "object", "properties": {"a": {"type": "string"}},
            "additionalProperties": true}}});
        let mut value = json!({"map": {"a": "1", "b": 2, "c": {"d": 3}, "e": [{"f": 4}, 5]}});
        let mut unknown = Vec::new();
        prune(&mut value, &schema, &mut String::new(), &mut unknown);
        assert_eq!(value, json!({"map": {"a": "1", "b": 2, "c": {}, "e": [{}, 5]}}));
        assert_eq!(unknown, ["map.c.d", "map.e[0].f"]);
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

    #[test]
    fn nulls_get_the_default_or_go_unless_they_are_allowed() {
        let texts = |more: Value| {
            let mut schema = json!({"type": "string"});
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            schema
        };
        let map = |more: Value| json!({"type": "object", "additionalProperties": texts(more)});
        let list = |more: Value| json!({"type": "array", "items": texts(more)});
        let schema = json!({"properties": {
            "plain": texts(json!({})), "given": texts(json!({"default": "d"})), "null": texts(json!({"nullable": true})),
            "map": map(json!({})), "filled": map(json!({"default": "d"})), "nulls": map(json!({"nullable": true})),
            "list": list(json!({"default": "d"})), "any": {"x-kubernetes-preserve-unknown-fields": true},
        }});
        let of = json!({"k": null, "l": "x"});
        let mut value = json!({"plain": null, "given": null, "null": null, "map": of, "filled": of, "nulls": of,
            "list": [null, "x"], "any": of, "other": null});
        default(&mut value, &schema);
        assert_eq!(
            value,
            json!({"given": "d", "null": null, "map": {"l": "x"}, "filled": {"k": "d", "l": "x"}, "nulls": of,
                "list": ["d", "x"], "any": of, "other": null})
        );
    }
}
