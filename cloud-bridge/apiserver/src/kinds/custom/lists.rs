//! Lists that are sets, or maps by some fields of their items: duplicates are errors (K8s apiextensions-apiserver
//! pkg/apiserver/schema/listtype/validation.go). Pure.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::walk::{since, walk};
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::text;

/// Returns duplicates. A change of an object that had duplicates before is not checked.
pub(super) fn validate(new: &Value, old: Option<&Value>, schema: &Value) -> Errors {
    since(new, old, |value| duplicates(value, schema, ""))
}

/// Returns duplicates in the lists of a value at `path`.
pub(super) fn duplicates(value: &Value, schema: &Value, path: &str) -> Errors {
    let mut errors = Errors::new();
    walk(value, schema, &mut path.to_owned(), &mut |value, schema, path| {
        let Some(items) = value.as_array() else { return };
        match text(schema, "x-kubernetes-list-type") {
            "map" => {
                let keys = map_keys(schema);
                twice(items, path, &mut errors, |item| Cow::Owned(named(item, &keys)));
            }
            kind if kind == "set" || schema["uniqueItems"] == true => {
                twice(items, path, &mut errors, |item| Cow::Borrowed(item));
            }
            _ => {}
        }
    });
    errors
}

/// The fields that identify the items of a list, if it is a map.
pub(super) fn map_keys(schema: &Value) -> Vec<&str> {
    if text(schema, "x-kubernetes-list-type") != "map" {
        return Vec::new();
    }
    schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The key of an item, without the fields that the item lacks.
pub(super) fn named(item: &Value, keys: &[&str]) -> Value {
    let of = |key: &&str| Some(((*key).to_owned(), item.get(*key)?.clone()));
    keys.iter().filter_map(of).collect::<Map<String, Value>>().into()
}

/// Reports the second item of each name, but no further ones.
fn twice(items: &[Value], path: &str, errors: &mut Errors, name: impl Fn(&Value) -> Cow<'_, Value>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let name = name(item);
        let times = seen.entry(name.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &name));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": {"type": "string"}},
            "maps": {"additionalProperties": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"], "items": {"type": "object"}}},
        }})
    }

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn second_of_each_name_is_told() {
        let value = json!({"set": ["a", "b", "a", "a"], "plain": ["a", "a"],
            "maps": {"m": [{"port": 1}, {"port": 1, "protocol": "TCP"}, {"port": 1, "x": 2}]}});
        let told = texts(&validate(&value, None, &schema()));
        assert_eq!(told, ["maps.m[2]: Duplicate value: {\"port\":1}", "set[2]: Duplicate value: \"a\""]);
    }

    #[test]
    fn what_stood_twice_before_may_stay() {
        let (twice, once) = (json!({"set": ["a", "a"]}), json!({"set": ["a"]}));
        let more = json!({"set": ["a", "a", "b", "b"]});
        assert_eq!(validate(&more, Some(&twice), &schema()), []);
        assert_eq!(validate(&more, Some(&once), &schema()).len(), 2);
    }
}
