//! Validation of a value by an OpenAPI v3 schema, in the words of the API server. Pure.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};

use super::lists;
use super::patterns::{Patterns, THREAD_WORK};
use apimachinery::field::{Errors, FieldError, FieldErrorKind};

/// How many errors are made in full. Those beyond are counted only, and a schema may have long words.
const TOLD: usize = 512;

/// An enumeration that is longer is looked up, not looked through.
const SHORT: usize = 16;

/// Maximum number of errors. An object with that many is refused anyway.
const ERRORS_MAX: usize = 100_000;

/// How often values of one object are held against schemas of `allOf`, `anyOf`, `oneOf` and `not`: these multiply.
const ALTERNATIVES_MAX: usize = 500_000;

/// [`ALTERNATIVES_MAX`] for values that are judged on the bridge's thread.
const THREAD_ALTERNATIVES: usize = 20_000;

/// Where values are judged, which limits the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Beside the bridge's thread, one object at a time.
    Aside,
    /// On it: the defaults of a definition, and an object that is stored otherwise than it was judged aside.
    Thread,
}

/// Adds the errors of `value` at `path`. Parts that equal `old` are not checked: they may be older than the schema
/// (apiextensions-apiserver pkg/apiserver/validation/ratcheting.go).
pub(crate) fn validate(
    value: &Value,
    old: Option<&Value>,
    schema: &Value,
    path: &str,
    place: Place,
    errors: &mut Vec<FieldError>,
) {
    errors.extend(Judge::at(place).errors(Held { value, old, schema, path }));
}

/// A value that is held against a schema.
#[derive(Clone, Copy)]
pub(super) struct Held<'v, 's> {
    pub(super) value: &'v Value,
    /// The previous value.
    pub(super) old: Option<&'v Value>,
    pub(super) schema: &'s Value,
    pub(super) path: &'v str,
}

/// Errors so far, compiled schemas, which are shared by many values, and the rest of the limits.
#[derive(Default)]
pub(super) struct Judge<'s> {
    errors: Errors,
    pub(super) patterns: Patterns<'s>,
    /// How deep within combined schemas the value is judged, and how often that was, with the errors of alternatives.
    within: usize,
    alternatives: usize,
    /// The allowed words of an enum, by the address of its list.
    words: HashMap<*const Value, HashSet<String>>,
}

impl<'s> Judge<'s> {
    /// Returns a judge with the limits of this place.
    pub(super) fn at(place: Place) -> Self {
        match place {
            Place::Aside => Self::default(),
            Place::Thread => {
                let alternatives = ALTERNATIVES_MAX - THREAD_ALTERNATIVES;
                Self { patterns: Patterns::within(THREAD_WORK), alternatives, ..Self::default() }
            }
        }
    }

    /// The errors of a value.
    pub(super) fn errors(&mut self, held: Held<'_, 's>) -> Errors {
        self.judge(held);
        if self.is_spent() {
            let why = "the object is too large to be held against the patterns and alternatives of its schema";
            self.errors.push(FieldError::forbidden(held.path, why));
        }
        std::mem::take(&mut self.errors)
    }

    /// Whether the limits are used up.
    fn is_spent(&self) -> bool {
        self.patterns.spent || self.alternatives > ALTERNATIVES_MAX || self.errors.len() > ERRORS_MAX
    }

    fn judge(&mut self, held: Held<'_, 's>) {
        let Held { value, old, schema, .. } = held;
        if old == Some(value) || (value.is_null() && schema["nullable"] == true) {
            return;
        }
        self.alternatives += usize::from(self.within > 0);
        if self.is_spent() || !self.types(held) {
            return;
        }
        self.enumeration(held);
        match value {
            Value::String(text) => self.string(held, text),
            Value::Number(number) => self.numeric(held, number),
            Value::Array(items) => self.array(held, items),
            Value::Object(map) => self.object(held, map),
            _ => {}
        }
        self.combined(held);
    }

    fn wrong(&mut self, path: &str, value: &Value, why: &str) {
        let why = if self.errors.len() < TOLD { why } else { "" };
        self.errors.push(FieldError::invalid(path, value, &format!("{path} in body {why}")));
    }

    fn too_many(&mut self, path: &str, found: usize, most: u64) {
        let message = format!("Too many: {found}: must have at most {most} items");
        self.errors.push(FieldError { field: path.to_owned(), kind: FieldErrorKind::TooMany, message });
    }

    /// Whether the value has a type that it may have.
    fn types(&mut self, Held { value, schema, path, .. }: Held<'_, 's>) -> bool {
        let found = type_of(value);
        let (wanted, fits) = if schema["x-kubernetes-int-or-string"] == true {
            ("integer,string", matches!(found, "integer" | "string"))
        } else {
            let Some(wanted) = schema["type"].as_str() else { return true };
            let whole = value.as_f64().is_some_and(|f| f.fract() == 0.0);
            let numeric = (wanted == "number" && found == "integer") || (wanted == "integer" && whole);
            (wanted, wanted == found || numeric)
        };
        if !fits {
            let why = format!("{path} in body must be of type {wanted}: {found:?}");
            self.errors.push(FieldError::type_invalid(path, found, &why));
        }
        fits
    }

    fn enumeration(&mut self, Held { value, schema, path, .. }: Held<'_, 's>) {
        let Some(allowed) = schema["enum"].as_array() else { return };
        let known = if allowed.len() > SHORT {
            let words = self.words.entry(allowed.as_ptr());
            words.or_insert_with(|| allowed.iter().map(Value::to_string).collect()).contains(&value.to_string())
        } else {
            allowed.contains(value)
        };
        if known {
            return;
        }
        let shown = if self.errors.len() < TOLD { allowed.as_slice() } else { &[] };
        let names: Vec<String> =
            shown.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.errors.push(FieldError::not_supported(path, value, &names));
    }

    fn string(&mut self, Held { value, schema, path, .. }: Held<'_, 's>, text: &str) {
        let length = text.chars().count() as u64;
        if let Some(least) = schema["minLength"].as_u64().filter(|n| length < *n) {
            self.wrong(path, value, &format!("should be at least {least} chars long"));
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|n| length > *n) {
            self.errors.push(FieldError::too_long(path, usize::try_from(most).unwrap_or(usize::MAX)));
            return;
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && !self.patterns.matches(pattern, text)
        {
            self.wrong(path, value, &format!("should match '{pattern}'"));
        }
    }

    fn numeric(&mut self, Held { value, schema, path, .. }: Held<'_, 's>, number: &Number) {
        let Some(n) = number.as_f64() else { return };
        let bounds = [("minimum", "exclusiveMinimum", "greater", 1.0), ("maximum", "exclusiveMaximum", "less", -1.0)];
        for (bound, exclusive, word, sign) in bounds {
            let Some(limit) = schema[bound].as_f64() else { continue };
            let (n, limit, exclusive) = (sign * n, sign * limit, schema[exclusive] == true);
            if n < limit || (exclusive && n <= limit) {
                let or = if exclusive { "" } else { " or equal to" };
                self.wrong(path, value, &format!("should be {word} than{or} {}", schema[bound]));
            }
        }
        let factor = &schema["multipleOf"];
        if factor.as_f64().is_some_and(|factor| factor != 0.0) && !is_multiple(number, factor) {
            self.wrong(path, value, &format!("should be a multiple of {factor}"));
        }
    }

    fn array(&mut self, Held { old, schema, path, .. }: Held<'_, 's>, items: &[Value]) {
        let count = items.len() as u64;
        if let Some(least) = schema["minItems"].as_u64().filter(|n| count < *n) {
            self.wrong(path, &count.into(), &format!("should have at least {least} items"));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|n| count > *n) {
            self.too_many(path, items.len(), most);
        }
        // Items of lists other than maps have no names by which to find their previous values.
        let keys = lists::map_keys(schema);
        let name = |item: &Value| lists::named(item, &keys).to_string();
        let before = old.and_then(Value::as_array).filter(|_| !keys.is_empty());
        let before: HashMap<String, &Value> = before.into_iter().flatten().map(|item| (name(item), item)).collect();
        for (index, value) in items.iter().enumerate() {
            if self.is_spent() {
                return;
            }
            let old = if before.is_empty() { None } else { before.get(&name(value)).copied() };
            self.judge(Held { value, old, schema: &schema["items"], path: &format!("{path}[{index}]") });
        }
    }

    fn object(&mut self, Held { value, old, schema, path }: Held<'_, 's>, map: &Map<String, Value>) {
        let child = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        // Kind and version of the whole are not stored with it.
        let stored = |key: &&str| !path.is_empty() || !matches!(*key, "apiVersion" | "kind");
        for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).filter(stored) {
            if !map.contains_key(key) {
                self.errors.push(FieldError::required(child(key), ""));
            }
        }
        if let Some(most) = schema["maxProperties"].as_u64().filter(|n| map.len() as u64 > *n) {
            self.too_many(path, map.len(), most);
        }
        if let Some(least) = schema["minProperties"].as_u64().filter(|n| (map.len() as u64) < *n) {
            self.wrong(path, value, &format!("should have at least {least} properties"));
        }
        for (key, value) in map {
            if self.is_spent() {
                return;
            }
            let schema = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
            if schema.is_object() {
                self.judge(Held { value, old: old.and_then(|old| old.get(key)), schema, path: &child(key) });
            }
        }
    }

    fn combined(&mut self, held: Held<'_, 's>) {
        let Held { value, schema, path, .. } = held;
        self.within += 1;
        for schema in schema["allOf"].as_array().into_iter().flatten() {
            self.judge(Held { schema, ..held });
        }
        self.within -= 1;
        if let Some(any) = schema["anyOf"].as_array()
            && !any.iter().any(|schema| self.fits(held, schema))
        {
            self.wrong(path, value, "must validate at least one schema (anyOf)");
        }
        if let Some(one) = schema["oneOf"].as_array() {
            let found = match one.iter().filter(|schema| self.fits(held, schema)).count() {
                1 => String::new(),
                0 => "none valid".to_owned(),
                n => format!("{n} valid alternatives"),
            };
            if !found.is_empty() {
                self.wrong(path, value, &format!("must validate one and only one schema (oneOf). Found {found}"));
            }
        }
        if schema["not"].is_object() && self.fits(held, &schema["not"]) {
            self.wrong(path, value, "must not validate the schema (not)");
        }
    }

    /// Whether nothing is wrong with a value by an alternative.
    fn fits(&mut self, held: Held<'_, 's>, schema: &'s Value) -> bool {
        if self.is_spent() {
            return true;
        }
        let errors = std::mem::take(&mut self.errors);
        self.within += 1;
        self.judge(Held { schema, old: None, ..held });
        self.within -= 1;
        let found = std::mem::replace(&mut self.errors, errors).len();
        self.alternatives += found.saturating_sub(1);
        found == 0
    }
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

/// Whether a number is a multiple of a factor, within the precision of binary fractions: 0.3 is one of 0.1 (K8s
/// kube-openapi pkg/validation/validate/values.go `MultipleOf`).
fn is_multiple(number: &Number, factor: &Value) -> bool {
    /// Tolerance of the quotient (go-openapi/swag `IsFloat64AJSONInteger`).
    const TOLERANCE: f64 = 1e-9;
    if let (Some(number), Some(factor)) = (number.as_i64(), factor.as_i64()) {
        return number.checked_rem(factor) == Some(0);
    }
    let (Some(number), Some(factor)) = (number.as_f64(), factor.as_f64()) else { return true };
    let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    (quotient - quotient.round()).abs() <= TOLERANCE * quotient.round().abs()
}

#[cfg(test)]
mod tests;
