//! Which words a schema may have about how its lists and maps merge (K8s apiextensions-apiserver
//! pkg/apis/apiextensions/validation/validation.go). Pure.

use std::collections::HashSet;

use serde_json::Value;

use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{items, present, text};

const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";

/// Adds the errors of the list keywords of one schema.
pub(super) fn check(schema: &Value, path: &str, errors: &mut Errors) {
    if schema["uniqueItems"] == true {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), why));
    }
    if present(schema, MAP_TYPE).is_some() {
        is_of(schema, "object", MAP_TYPE, path, errors);
        known(schema, MAP_TYPE, &["atomic", "granular"], path, errors);
    }
    let kind = text(schema, LIST_TYPE);
    if !items(schema, LIST_KEYS).is_empty() && kind != "map" {
        let (at, why) = (format!("{path}.{LIST_TYPE}"), "must be map if x-kubernetes-list-map-keys is non-empty");
        errors.push(match present(schema, LIST_TYPE) {
            None => FieldError::required(at, why),
            Some(other) => FieldError::invalid(at, other, why),
        });
    }
    if present(schema, LIST_TYPE).is_none() {
        return;
    }
    known(schema, LIST_TYPE, &["atomic", "set", "map"], path, errors);
    let of = &schema["items"];
    let is_list = is_of(schema, "array", LIST_TYPE, path, errors);
    if matches!(kind, "set" | "map") && of["nullable"] == true {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), &why));
    }
    match kind {
        "set" if is_list => set(of, path, errors),
        "map" => map(schema, of, path, errors),
        _ => {}
    }
}

/// Whether a schema has the type that a word needs.
fn is_of(schema: &Value, wanted: &str, word: &str, path: &str, errors: &mut Errors) -> bool {
    let (at, why) = (format!("{path}.type"), format!("must be {wanted} if {word} is specified"));
    match text(schema, "type") {
        found if found == wanted => return true,
        "" => errors.push(FieldError::required(at, &why)),
        _ => errors.push(FieldError::invalid(at, &schema["type"], &why)),
    }
    false
}

fn known(schema: &Value, word: &str, words: &[&str], path: &str, errors: &mut Errors) {
    if !words.contains(&text(schema, word)) {
        errors.push(FieldError::not_supported(format!("{path}.{word}"), &schema[word], words));
    }
}

/// Items of a set are one value each.
fn set(of: &Value, path: &str, errors: &mut Errors) {
    let word = match text(of, "type") {
        "array" if !matches!(text(of, LIST_TYPE), "" | "atomic") => LIST_TYPE,
        "object" if text(of, MAP_TYPE) != "atomic" => MAP_TYPE,
        _ => return,
    };
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    errors.push(FieldError::invalid(format!("{path}.items.{word}"), &of[word], why));
}

/// Items of a map are identified by required scalar fields.
fn map(schema: &Value, of: &Value, path: &str, errors: &mut Errors) {
    let keys = items(schema, LIST_KEYS);
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.{LIST_KEYS}"), why));
    }
    if text(of, "type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), &of["type"], why));
        return;
    }
    let mut seen = HashSet::new();
    for key in keys.iter().filter_map(Value::as_str) {
        let all = |why: &str| FieldError::invalid(format!("{path}.{LIST_KEYS}"), &schema[LIST_KEYS], why);
        if !seen.insert(key) {
            errors.push(all("must not contain duplicate entries"));
        }
        let at = format!("{path}.items.properties[{key}]");
        let Some(property) = present(&of["properties"], key) else {
            errors.push(all("entries must all be names of item properties"));
            continue;
        };
        if matches!(text(property, "type"), "array" | "object") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(format!("{at}.type"), &property["type"], why));
        }
        if present(property, "default").is_none() && !items(of, "required").iter().any(|one| one == key) {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{at}.default"), why));
        }
        if property["nullable"] == true {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{at}.nullable"), why));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(schema: Value) -> Vec<String> {
        let mut errors = Errors::new();
        check(&schema, "s", &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    fn list(kind: &str, of: Value) -> Value {
        json!({"type": "array", LIST_TYPE: kind, "items": of})
    }

    #[test]
    fn words_that_kubernetes_takes_are_taken() {
        let text = json!({"type": "string"});
        let mut keyed = list(
            "map",
            json!({"type": "object", "required": ["a"],
            "properties": {"a": text, "b": {"type": "string", "default": "x"}}}),
        );
        keyed[LIST_KEYS] = json!(["a", "b"]);
        for schema in [
            keyed,
            list("set", text),
            list("set", json!({"type": "object", MAP_TYPE: "atomic"})),
            list("set", json!({"type": "array", "items": {"type": "string"}})),
            list("atomic", json!({"type": "object"})),
            json!({"type": "object", MAP_TYPE: "granular"}),
            json!({"type": "array", "items": {"type": "object"}}),
        ] {
            assert_eq!(fields(schema.clone()), [""; 0], "{schema}");
        }
    }

    #[test]
    fn words_that_say_nothing_sure_are_refused() {
        let of =
            json!({"type": "object", "properties": {"a": {"type": "string"}, "o": {"type": "object", "default": {}}}});
        let keyed = |keys: Value| {
            let mut schema = list("map", of.clone());
            schema[LIST_KEYS] = keys;
            schema
        };
        for (schema, expected) in [
            (json!({"type": "array", "uniqueItems": true}), &["s.uniqueItems"][..]),
            (json!({"type": "string", MAP_TYPE: "atomic"}), &["s.type"]),
            (json!({"type": "object", MAP_TYPE: "whole"}), &["s.x-kubernetes-map-type"]),
            (json!({"type": "object", LIST_TYPE: "bag"}), &["s.x-kubernetes-list-type", "s.type"]),
            (json!({"type": "array", LIST_KEYS: ["a"]}), &["s.x-kubernetes-list-type"]),
            (list("set", json!({"type": "object"})), &["s.items.x-kubernetes-map-type"]),
            (list("set", json!({"type": "array", LIST_TYPE: "set"})), &["s.items.x-kubernetes-list-type"]),
            (list("set", json!({"type": "string", "nullable": true})), &["s.items.nullable"]),
            (list("map", json!({"type": "string"})), &["s.x-kubernetes-list-map-keys", "s.items.type"]),
            (keyed(json!(["a"])), &["s.items.properties[a].default"]),
            (keyed(json!(["o"])), &["s.items.properties[o].type"]),
            (keyed(json!(["x"])), &["s.x-kubernetes-list-map-keys"]),
            (
                keyed(json!(["o", "o"])),
                &["s.items.properties[o].type", "s.x-kubernetes-list-map-keys", "s.items.properties[o].type"],
            ),
        ] {
            assert_eq!(fields(schema.clone()), expected, "{schema}");
        }
    }
}
