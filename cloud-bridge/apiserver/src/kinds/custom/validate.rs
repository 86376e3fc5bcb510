//! Validation of a value by an OpenAPI v3 schema, in the words of the API server. Pure.

use std::collections::{HashMap, HashSet};

use serde_json::{Number, Value};

use super::lists;
use super::patterns::Patterns;
use apimachinery::field::{FieldError, FieldErrorKind};

/// How many errors are made in full. Those beyond are counted only, and a schema may have long words.
const TOLD: usize = 512;

/// An enumeration that is longer is looked up, not looked through.
const SHORT: usize = 16;

/// How often values of one object are held against schemas of `anyOf`, `oneOf` and `not`: these multiply.
const ALTERNATIVES_MAX: usize = 500_000;

/// What was made of a schema for the values before, since they may be many, and what may still be done for those to come.
#[derive(Default)]
struct Made<'s> {
    patterns: Patterns<'s>,
    /// How deep within alternatives the value is judged, and how often that was.
    within: usize,
    alternatives: usize,
    /// By the address of the list.
    words: HashMap<*const Value, HashSet<String>>,
}

impl Made<'_> {
    /// Whether nothing may be done any more.
    fn is_spent(&self) -> bool {
        self.patterns.spent || self.alternatives > ALTERNATIVES_MAX
    }
}

/// Adds what is wrong with `value` at `path`. What is as it was in `old` is not judged: it may be from before its schema
/// became what it is (apiextensions-apiserver pkg/apiserver/validation/ratcheting.go).
pub(crate) fn validate(value: &Value, old: Option<&Value>, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut made = Made::default();
    judge(value, old, schema, path, errors, &mut made);
    if made.is_spent() {
        let why = "the object is too large to be held against the patterns and alternatives of its schema";
        errors.push(FieldError::forbidden(path, why));
    }
}

fn judge<'s>(
    value: &Value,
    old: Option<&Value>,
    schema: &'s Value,
    path: &str,
    errors: &mut Vec<FieldError>,
    made: &mut Made<'s>,
) {
    if old == Some(value) || (value.is_null() && schema["nullable"] == true) {
        return;
    }
    made.alternatives += usize::from(made.within > 0);
    if made.is_spent() {
        return;
    }
    if !types(value, schema, path, errors) {
        return;
    }
    enumeration(value, schema, path, errors, made);
    match value {
        Value::String(text) => string(text, value, schema, path, errors, made),
        Value::Number(number) => numeric(number, value, schema, path, errors),
        Value::Array(items) => array(items, old, schema, path, errors, made),
        Value::Object(_) => object(value, old, schema, path, errors, made),
        _ => {}
    }
    combined(value, old, schema, path, errors, made);
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn types(value: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let found = type_of(value);
    if schema["x-kubernetes-int-or-string"] == true {
        if matches!(found, "integer" | "string") {
            return true;
        }
        errors.push(FieldError::type_invalid(
            path,
            found,
            &format!("{path} in body must be of type integer,string: {found:?}"),
        ));
        return false;
    }
    let Some(wanted) = schema["type"].as_str() else { return true };
    let whole = value.as_f64().is_some_and(|f| f.fract() == 0.0);
    let fits = wanted == found || (wanted == "number" && found == "integer") || (wanted == "integer" && whole);
    if !fits {
        errors.push(FieldError::type_invalid(
            path,
            found,
            &format!("{path} in body must be of type {wanted}: {found:?}"),
        ));
    }
    fits
}

fn enumeration<'s>(value: &Value, schema: &'s Value, path: &str, errors: &mut Vec<FieldError>, made: &mut Made<'s>) {
    let Some(allowed) = schema["enum"].as_array() else { return };
    let known = if allowed.len() > SHORT {
        let words = made.words.entry(allowed.as_ptr());
        words.or_insert_with(|| allowed.iter().map(Value::to_string).collect()).contains(&value.to_string())
    } else {
        allowed.contains(value)
    };
    if known {
        return;
    }
    let shown = if errors.len() < TOLD { allowed.as_slice() } else { &[] };
    let names: Vec<String> = shown.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    errors.push(FieldError::not_supported(path, value, &names));
}

fn wrong(path: &str, value: &Value, why: &str, errors: &mut Vec<FieldError>) {
    let why = if errors.len() < TOLD { why } else { "" };
    errors.push(FieldError::invalid(path, value, &format!("{path} in body {why}")));
}

fn string<'s>(
    text: &str,
    value: &Value,
    schema: &'s Value,
    path: &str,
    errors: &mut Vec<FieldError>,
    made: &mut Made<'s>,
) {
    let length = text.chars().count() as u64;
    if let Some(least) = schema["minLength"].as_u64().filter(|n| length < *n) {
        wrong(path, value, &format!("should be at least {least} chars long"), errors);
    }
    if let Some(most) = schema["maxLength"].as_u64().filter(|n| length > *n) {
        errors.push(FieldError::too_long(path, usize::try_from(most).unwrap_or(usize::MAX)));
        return;
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !made.patterns.matches(pattern, text)
    {
        wrong(path, value, &format!("should match '{pattern}'"), errors);
    }
}

fn numeric(number: &Number, value: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(n) = number.as_f64() else { return };
    if let Some(least) = schema["minimum"].as_f64() {
        let exclusive = schema["exclusiveMinimum"] == true;
        if n < least || (exclusive && n <= least) {
            let word = if exclusive { "greater than" } else { "greater than or equal to" };
            wrong(path, value, &format!("should be {word} {}", schema["minimum"]), errors);
        }
    }
    if let Some(most) = schema["maximum"].as_f64() {
        let exclusive = schema["exclusiveMaximum"] == true;
        if n > most || (exclusive && n >= most) {
            let word = if exclusive { "less than" } else { "less than or equal to" };
            wrong(path, value, &format!("should be {word} {}", schema["maximum"]), errors);
        }
    }
    if schema["multipleOf"].as_f64().is_some_and(|factor| factor != 0.0) && !is_multiple(number, &schema["multipleOf"])
    {
        wrong(path, value, &format!("should be a multiple of {}", schema["multipleOf"]), errors);
    }
}

/// Whether a number is a multiple of a factor, as far as fractions in binary can tell: 0.3 is one of 0.1 (K8s kube-openapi
/// pkg/validation/validate/values.go `MultipleOf`).
fn is_multiple(number: &Number, factor: &Value) -> bool {
    /// Of the quotient (go-openapi/swag `IsFloat64AJSONInteger`).
    const TOLERANCE: f64 = 1e-9;
    if let (Some(number), Some(factor)) = (number.as_i64(), factor.as_i64()) {
        return number.checked_rem(factor) == Some(0);
    }
    let (Some(number), Some(factor)) = (number.as_f64(), factor.as_f64()) else { return true };
    let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    (quotient - quotient.round()).abs() <= TOLERANCE * quotient.round().abs()
}

fn too_many(path: &str, found: usize, most: u64, what: &str) -> FieldError {
    FieldError {
        field: path.to_owned(),
        kind: FieldErrorKind::TooMany,
        message: format!("Too many: {found}: must have at most {most} {what}"),
    }
}

fn array<'s>(
    items: &[Value],
    old: Option<&Value>,
    schema: &'s Value,
    path: &str,
    errors: &mut Vec<FieldError>,
    made: &mut Made<'s>,
) {
    let count = items.len() as u64;
    if let Some(least) = schema["minItems"].as_u64().filter(|n| count < *n) {
        wrong(path, &count.into(), &format!("should have at least {least} items"), errors);
    }
    if let Some(most) = schema["maxItems"].as_u64().filter(|n| count > *n) {
        errors.push(too_many(path, items.len(), most, "items"));
    }
    // Items of other lists than maps have no names by which to find what they were.
    let keys = lists::map_keys(schema);
    let name = |item: &Value| lists::named(item, &keys).to_string();
    let before = old.and_then(Value::as_array).filter(|_| !keys.is_empty());
    let before: HashMap<String, &Value> = before.into_iter().flatten().map(|item| (name(item), item)).collect();
    for (index, item) in items.iter().enumerate() {
        if made.is_spent() {
            return;
        }
        let old = if before.is_empty() { None } else { before.get(&name(item)).copied() };
        judge(item, old, &schema["items"], &format!("{path}[{index}]"), errors, made);
    }
}

fn object<'s>(
    value: &Value,
    old: Option<&Value>,
    schema: &'s Value,
    path: &str,
    errors: &mut Vec<FieldError>,
    made: &mut Made<'s>,
) {
    let child = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    // Kind and version of the whole are not stored with it.
    let stored = |key: &&str| !path.is_empty() || !matches!(*key, "apiVersion" | "kind");
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).filter(stored) {
        if value.get(key).is_none() {
            errors.push(FieldError::required(child(key), ""));
        }
    }
    let Some(map) = value.as_object() else { return };
    if let Some(most) = schema["maxProperties"].as_u64().filter(|n| map.len() as u64 > *n) {
        errors.push(too_many(path, map.len(), most, "items"));
    }
    if let Some(least) = schema["minProperties"].as_u64().filter(|n| (map.len() as u64) < *n) {
        wrong(path, value, &format!("should have at least {least} properties"), errors);
    }
    for (key, inner) in map {
        if made.is_spent() {
            return;
        }
        let old = old.and_then(|old| old.get(key));
        if let Some(schema) = schema["properties"].get(key) {
            judge(inner, old, schema, &child(key), errors, made);
        } else if schema["additionalProperties"].is_object() {
            judge(inner, old, &schema["additionalProperties"], &child(key), errors, made);
        }
    }
}

fn combined<'s>(
    value: &Value,
    old: Option<&Value>,
    schema: &'s Value,
    path: &str,
    errors: &mut Vec<FieldError>,
    made: &mut Made<'s>,
) {
    for inner in schema["allOf"].as_array().into_iter().flatten() {
        judge(value, old, inner, path, errors, made);
    }
    let mut fits = |schema: &'s Value| {
        if made.is_spent() {
            return true;
        }
        let mut errors = Vec::new();
        made.within += 1;
        judge(value, None, schema, path, &mut errors, made);
        made.within -= 1;
        errors.is_empty()
    };
    if let Some(any) = schema["anyOf"].as_array()
        && !any.iter().any(&mut fits)
    {
        wrong(path, value, "must validate at least one schema (anyOf)", errors);
    }
    if let Some(one) = schema["oneOf"].as_array() {
        match one.iter().filter(|s| fits(s)).count() {
            1 => {}
            0 => wrong(path, value, "must validate one and only one schema (oneOf). Found none valid", errors),
            n => wrong(
                path,
                value,
                &format!("must validate one and only one schema (oneOf). Found {n} valid alternatives"),
                errors,
            ),
        }
    }
    if schema["not"].is_object() && fits(&schema["not"]) {
        wrong(path, value, "must not validate the schema (not)", errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(value: &Value, schema: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate(value, None, schema, "", &mut errors);
        errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn messages() {
        let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "required": ["image"], "properties": {
            "image": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
            "n": {"type": "integer", "minimum": 1, "maximum": 5},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "p": {"x-kubernetes-int-or-string": true},
            "l": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        }}}});
        assert_eq!(texts(&json!({}), &schema), ["spec: Required value"]);
        assert_eq!(
            texts(&json!({"spec": {"image": "A1"}}), &schema),
            ["spec.image: Invalid value: \"A1\": spec.image in body should match '^[a-z]+$'"]
        );
        assert_eq!(
            texts(&json!({"spec": {"image": "a", "n": "x"}}), &schema),
            ["spec.n: Invalid value: \"string\": spec.n in body must be of type integer: \"string\""]
        );
        assert_eq!(
            texts(&json!({"spec": {"image": "a", "n": 9}}), &schema),
            ["spec.n: Invalid value: 9: spec.n in body should be less than or equal to 5"]
        );
        assert_eq!(
            texts(&json!({"spec": {"image": "a", "mode": "c"}}), &schema),
            ["spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\""]
        );
        assert_eq!(
            texts(&json!({"spec": {"image": "a", "l": ["x", "y"]}}), &schema),
            ["spec.l: Too many: 2: must have at most 1 items"]
        );
        assert!(texts(&json!({"spec": {"image": "a", "p": "50%", "n": 2}}), &schema).is_empty());
    }

    #[test]
    fn what_has_not_changed_is_not_judged() {
        let short = json!({"type": "string", "maxLength": 2});
        let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": short}});
        let schema = json!({"type": "object", "required": ["new"], "properties": {
            "spec": {"type": "object", "required": ["x"], "properties": {"a": short, "b": short}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item},
            "list": {"type": "array", "items": short},
        }});
        let fields = |old: &Value, new: Value| {
            let mut errors = Vec::new();
            validate(&new, Some(old), &schema, "", &mut errors);
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        let old = json!({"spec": {"a": "long"}, "map": [{"k": "1", "v": "long"}], "list": ["long"]});
        assert_eq!(fields(&old, old.clone()), [""; 0]);
        let mut new = old.clone();
        new["metadata"] = json!({"labels": {"a": "b"}});
        assert_eq!(fields(&old, new.clone()), ["new"], "the object as a whole has changed");
        new["spec"]["b"] = "ok".into();
        assert_eq!(fields(&old, new.clone()), ["new", "spec.x"], "spec.a has not");
        new = json!({"spec": old["spec"], "map": [{"k": "2", "v": "long"}, {"k": "1", "v": "long"}], "list": ["long", "x"]});
        let wrong = fields(&old, new);
        assert_eq!(wrong, ["new", "list[0]", "map[0].v"], "items of maps are found by their keys");
    }

    #[test]
    fn multiples_of_fractions_are_multiples() {
        for (value, factor, fits) in [
            (json!(0.3), json!(0.1), true),
            (json!(21.1), json!(0.1), true),
            (json!(5.1), json!(0.001), true),
            (json!(3), json!(0.01), true),
            (json!(0), json!(0.1), true),
            (json!(4.5), json!(1.5), true),
            (json!(9_007_199_254_740_993_i64), json!(2), false),
            (json!(0.35), json!(0.1), false),
            (json!(0.04), json!(0.1), false),
            (json!(7), json!(2), false),
        ] {
            let told = texts(&value, &json!({"type": "number", "multipleOf": factor}));
            assert_eq!(told.is_empty(), fits, "{value} of {factor}: {told:?}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_meets_no_pattern() {
        let schema = json!({"type": "string", "maxLength": 10, "pattern": "^(([a-z0-9]{1,60}-?){1,60})$"});
        let started = std::time::Instant::now();
        assert_eq!(texts(&json!("a".repeat(3_000_000)), &schema), [": Too long: may not be more than 10 bytes"]);
        assert!(started.elapsed().as_millis() < 2000, "{:?}", started.elapsed());
    }

    #[test]
    fn work_for_patterns_and_alternatives_is_bounded() {
        let pattern = json!({"type": "string", "pattern": "^(([a-z0-9]{1,60}-?){1,60})$"});
        let branch = json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1});
        let many = json!({"type": "array", "anyOf": vec![branch; 100]});
        let started = std::time::Instant::now();
        let told = texts(&json!("a".repeat(3_000_000)), &pattern);
        assert!(told.last().is_some_and(|text| text.contains("too large to be held against")), "{told:?}");
        let told = texts(&json!(vec![1; 20_000]), &many);
        assert!(told.last().is_some_and(|text| text.contains("too large to be held against")), "{told:?}");
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }

    #[test]
    fn many_values_are_judged_by_what_was_made_of_the_schema_once() {
        let words: Vec<String> = (0..5000).map(|at| format!("word-{at}")).collect();
        let schema = json!({"type": "array", "items": {"type": "string", "enum": words, "pattern": "^([a-z]{1,60}-?){1,9}[0-9]*$"}});
        // This thread's own time, in nanoseconds (proc(5)): what else the host does counts for nothing.
        let spent = || -> u64 {
            let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            stat.split(' ').next().unwrap().parse().unwrap()
        };
        let before = spent();
        let good: Vec<&String> = words.iter().rev().cycle().take(5000).collect();
        assert_eq!(texts(&json!(good), &schema), [""; 0]);
        let bad = texts(&json!(vec!["Ä"; 5000]), &schema);
        assert_eq!(bad.len(), 10_000);
        assert!(bad[1].ends_with("in body should match '^([a-z]{1,60}-?){1,9}[0-9]*$'"), "{}", bad[1]);
        assert!(spent() - before < 5_000_000_000, "{} ns", spent() - before);
    }
}
