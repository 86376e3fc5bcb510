//! Which schemas a definition may have: structural ones, whose patterns compile and whose defaults are valid
//! (K8s apiextensions-apiserver pkg/apiserver/schema/validation.go, complete.go, defaulting/validation.go). Pure.

use serde_json::{Value, json};

use super::validate::{Held, Judge};
use super::{list_types, lists, schema as structure};
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{entries, items, present, text};

/// Position of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The words of a schema that combine others.
const LISTS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Errors of the schema of one version. `judge` is for all versions of the definition.
pub(super) fn check<'s>(schema: &'s Value, path: &str, judge: &mut Judge<'s>) -> Errors {
    let mut errors = Errors::new();
    main(schema, Level::Root, path, judge, &mut errors);
    defaults(schema, path, judge, &mut errors);
    errors
}

fn is(schema: &Value, word: &str) -> bool {
    schema[word] == true
}

/// A schema that defines the structure of values.
fn main<'s>(schema: &'s Value, level: Level, path: &str, judge: &mut Judge<'s>, errors: &mut Errors) {
    let kind = text(schema, "type");
    let wrong = |field: &str, value: &Value, why: &str| FieldError::invalid(format!("{path}.{field}"), value, why);
    if kind == "array" && !schema["items"].is_object() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if schema["items"].is_object() {
        main(&schema["items"], Level::Item, &format!("{path}.items"), judge, errors);
    }
    for (name, inner) in entries(schema, "properties") {
        main(inner, Level::Field, &format!("{path}.properties[{name}]"), judge, errors);
    }
    if let Some(inner) = present(schema, "additionalProperties") {
        let at = format!("{path}.additionalProperties");
        // A true says nothing of values, so that it may stand beside properties (apiextensions validation.go
        // `ValidateCustomResourceDefinitionOpenAPISchema`).
        if *inner != true && entries(schema, "properties").next().is_some() {
            errors.push(FieldError::forbidden(&at, "additionalProperties and properties are mutual exclusive"));
        } else if level == Level::Root {
            errors.push(FieldError::forbidden(&at, "must not be used at the root"));
        }
        if is(schema, EMBEDDED) {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(&at, why));
        }
        if inner.is_object() {
            main(inner, Level::Field, &at, judge, errors);
        }
    }
    if is(schema, INT_OR_STRING) {
        for word in [PRESERVE, EMBEDDED].into_iter().filter(|word| is(schema, word)) {
            errors.push(wrong(word, &schema[word], "must be false if x-kubernetes-int-or-string is true"));
        }
    }
    if schema[PRESERVE] == false {
        errors.push(wrong(PRESERVE, &schema[PRESERVE], "must be true or undefined"));
    }
    list_types::check(schema, path, errors);
    combined(schema, (schema, path), path, judge, errors);
    if is(schema, EMBEDDED) && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(format!("{path}.type"), why),
            _ => wrong("type", &schema["type"], why),
        });
    } else if kind.is_empty() && !is(schema, INT_OR_STRING) && !is(schema, PRESERVE) {
        // The caller reports the root's own.
        let why = match level {
            Level::Root => "",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        if !why.is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), why));
        }
    }
    if is(schema, EMBEDDED) && !is(schema, PRESERVE) && entries(schema, "properties").next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), why));
    }
    if level == Level::Root || is(schema, EMBEDDED) {
        object_fields(&schema["properties"], level, path, errors);
    }
}

/// Fields that every object has.
fn object_fields(properties: &Value, level: Level, path: &str, errors: &mut Errors) {
    for (name, kind) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        if let Some(given) = present(properties, name)
            && given["type"] != kind
        {
            let at = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(at, &text(given, "type").into(), &format!("must be {kind}")));
        }
    }
    let metadata = &properties["metadata"];
    let of_names = |name: &String| matches!(name.as_str(), "name" | "generateName");
    let more = entries(metadata, "properties").any(|(name, _)| !of_names(name))
        || ["additionalProperties", "items", PRESERVE, "nullable"].iter().any(|word| present(metadata, word).is_some());
    if level == Level::Root && more {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), why));
    }
}

/// The parts of a schema that only validate: its pattern, and combined schemas. `main` is the schema that defines the
/// structure, with its path.
fn combined<'s>(schema: &'s Value, main: (&Value, &str), path: &str, judge: &mut Judge<'s>, errors: &mut Errors) {
    let either = |value: &Value| *value == json!([{"type": "integer"}, {"type": "string"}]);
    for list in LISTS {
        for (i, inner) in items(schema, list).iter().enumerate() {
            // How an integer or a string may be described.
            if list == "anyOf" && either(&schema["anyOf"]) {
                continue;
            }
            nested(inner, main, &format!("{path}.{list}[{i}]"), judge, errors);
        }
    }
    if schema["not"].is_object() {
        let at = format!("{path}.not");
        nested(&schema["not"], main, &at, judge, errors);
    }
    if let Some(pattern) = present(schema, "pattern").and_then(Value::as_str) {
        errors.extend(judge.patterns.check(pattern, &format!("{path}.pattern")));
    }
}

/// A schema within `anyOf` and the like: it must not define the structure of values, and only validates what `main`,
/// the schema around it, defines.
fn nested<'s>(
    schema: &'s Value,
    (main, main_path): (&Value, &str),
    path: &str,
    judge: &mut Judge<'s>,
    errors: &mut Errors,
) {
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (PRESERVE, "must be false to be structural"),
        (EMBEDDED, "must be false to be structural"),
        (INT_OR_STRING, "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
    ];
    combined(schema, (main, main_path), path, judge, errors);
    for (word, why) in FORBIDDEN {
        let given = present(schema, word).filter(|given| **given != false && **given != "" && **given != json!([]));
        if given.is_some() || (word == "additionalProperties" && schema[word] == false) {
            errors.push(FieldError::forbidden(format!("{path}.{word}"), why));
        }
    }
    if !items(schema, "x-kubernetes-validations").is_empty() {
        let at = format!("{path}.x-kubernetes-validations");
        errors.push(FieldError::forbidden(at, "must be empty to be structural"));
    }
    if present(&schema["properties"], "metadata").is_some() {
        let at = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(at, "must not be specified in a nested context"));
    }
    let mut below = |inner: &'s Value, of_main: &Value, step: &str, errors: &mut Errors| {
        let (at, main_path) = (format!("{path}.{step}"), format!("{main_path}.{step}"));
        if of_main.is_object() {
            nested(inner, (of_main, &main_path), &at, judge, errors);
        } else {
            errors.push(FieldError::required(main_path, &format!("because it is defined in {at}")));
        }
    };
    if schema["items"].is_object() {
        below(&schema["items"], &main["items"], "items", errors);
    }
    for (name, inner) in entries(schema, "properties") {
        let of_main = main["properties"].get(name).unwrap_or(&main["additionalProperties"]);
        below(inner, of_main, &format!("properties[{name}]"), errors);
    }
}

/// Defaults must be valid as in an object, without fields that would be pruned.
fn defaults<'s>(schema: &'s Value, path: &str, judge: &mut Judge<'s>, errors: &mut Errors) {
    if let Some(default) = present(schema, "default") {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        structure::prune(&mut pruned, schema, &mut String::new(), &mut Vec::new());
        if pruned != *default {
            errors.push(FieldError::invalid(&at, default, "must not have unknown fields"));
        }
        structure::default(&mut pruned, schema);
        errors.extend(judge.errors(Held { value: &pruned, old: None, schema, path: &at }));
        errors.extend(lists::duplicates(&pruned, schema, &at));
    }
    for (name, inner) in entries(schema, "properties") {
        defaults(inner, &format!("{path}.properties[{name}]"), judge, errors);
    }
    for word in ["items", "additionalProperties"] {
        if schema[word].is_object() {
            defaults(&schema[word], &format!("{path}.{word}"), judge, errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::custom::validate::Place;

    /// Errors of a field `a` with this schema.
    fn told(of_a: Value) -> Vec<String> {
        told_root(json!({"type": "object", "properties": {"a": of_a}}))
    }

    fn told_root(schema: Value) -> Vec<String> {
        let errors = check(&schema, "s", &mut Judge::at(Place::Thread));
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn a_pattern_must_compile() {
        let told = told(json!({"type": "string", "pattern": "+"}));
        let start = "s.properties[a].pattern: Invalid value: \"+\": must be a valid regular expression, but isn't: ";
        assert!(told.len() == 1 && told[0].starts_with(start), "{told:?}");
        assert_eq!(self::told(json!({"type": "array", "items": {"type": "string", "pattern": "("}})).len(), 1);
        assert_eq!(self::told(json!({"type": "string", "anyOf": [{"pattern": "["}, {"pattern": "^a$"}]})).len(), 1);
    }

    #[test]
    fn patterns_of_a_definition_are_bounded_together() {
        let all = |same: bool| -> serde_json::Map<String, Value> {
            let named = |n: u32| if same { 0 } else { n };
            let one = |n: u32| json!({"type": "string", "pattern": format!("^x{n}([a-z]{{1,60}}-){{1,60}}$")});
            (0..200).map(|n| (format!("p{n}"), one(named(n)))).collect()
        };
        let told = |same: bool| told_root(json!({"type": "object", "properties": all(same)}));
        assert!(told(false).iter().any(|error| error.contains("together are too large")));
        assert_eq!(told(true), [""; 0], "a pattern is compiled once");
    }

    #[test]
    fn work_for_the_defaults_of_a_definition_is_bounded_together() {
        let one = json!({"type": "string", "pattern": "^([a-z]{1,60}-?){1,60}$", "default": "a".repeat(100)});
        let all: serde_json::Map<String, Value> = (0..200).map(|n| (format!("p{n}"), one.clone())).collect();
        let told = told_root(json!({"type": "object", "properties": all}));
        assert!(told.last().is_some_and(|error| error.contains("too large to be held against")), "{told:?}");
        assert_eq!(self::told(one), [""; 0]);
    }

    #[test]
    fn usual_schemas_are_structural() {
        for schema in [
            json!({"type": "string", "anyOf": [{"minLength": 1}, {"enum": ["x"]}]}),
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^a"}),
            json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "additionalProperties": false}),
            json!({"type": "object", "additionalProperties": true, "properties": {"b": {"type": "string"}}}),
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "properties": {"b": {"type": "integer"}}, "oneOf": [{"required": ["b"]},
                {"properties": {"b": {"minimum": 1}}}], "not": {"required": ["c"]}}),
            json!({"type": "object", "properties": {"b": {"type": "string"}},
                "anyOf": [{"allOf": [{"properties": {"b": {"minLength": 1}}}]}]}),
            json!({"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3, "minimum": 1}}}),
            json!({"type": "array", "items": {"type": "string"}, "nullable": true, "default": ["x"]}),
        ] {
            assert_eq!(told(schema.clone()), [""; 0], "{schema}");
        }
        let metadata = json!({"type": "object", "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}});
        assert_eq!(told_root(metadata), [""; 0]);
    }

    #[test]
    fn what_is_not_structural_is_told() {
        for (schema, expected) in [
            (
                json!({"description": "x"}),
                "s.properties[a].type: Required value: must not be empty for specified object fields",
            ),
            (json!({"type": "array"}), "s.properties[a].items: Required value: must be specified"),
            (
                json!({"type": "array", "items": {}}),
                "s.properties[a].items.type: Required value: must not be empty for specified array items",
            ),
            (
                json!({"type": "string", "oneOf": [{"type": "string"}]}),
                "s.properties[a].oneOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "object", "allOf": [{"properties": {"b": {"minLength": 1}}}]}),
                "s.properties[a].properties[b]: Required value: because it is defined in \
                 s.properties[a].allOf[0].properties[b]",
            ),
            (
                json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
                "s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": false}),
                "s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true}),
                "s.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true \
                 without x-kubernetes-preserve-unknown-fields",
            ),
        ] {
            assert_eq!(told(schema), [expected]);
        }
        for additional in [json!(true), json!(false), json!({"type": "string"})] {
            let told = told_root(json!({"type": "object", "additionalProperties": additional}));
            assert_eq!(told, ["s.additionalProperties: Forbidden: must not be used at the root"], "{additional}");
        }
        let labels = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
            "labels": {"type": "object"}}}}});
        assert!(told_root(labels)[0].contains("metadata is implicitly specified"));
    }

    #[test]
    fn defaults_are_held_against_their_schema() {
        assert_eq!(
            told(json!({"type": "integer", "default": "x"})),
            [
                "s.properties[a].default: Invalid value: \"string\": s.properties[a].default in body must be of type integer: \
              \"string\""
            ]
        );
        let unknown = json!({"type": "object", "default": {"b": 1}, "properties": {"c": {"type": "string"}}});
        assert_eq!(told(unknown), ["s.properties[a].default: Invalid value: {\"b\":1}: must not have unknown fields"]);
        let inner = json!({"type": "array", "items": {"type": "object", "properties": {
            "b": {"type": "string", "enum": ["x"], "default": "y"}}}});
        assert_eq!(told(inner).len(), 1);
    }
}
