//! Parts of a policy whose fields are all understood. Pure.

use serde_json::{Map, Value};

/// A port of a rule, without fields that are null.
pub(super) fn port(from: &Value) -> Result<Value, String> {
    known(from, &["protocol", "port", "endPort"])?;
    let said = from.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    Ok(Value::Object(said.map(|(field, value)| (field.clone(), value.clone())).collect()))
}

/// `None` if it is absent, which differs from an empty selector that selects all.
pub(super) fn selector(from: &Value) -> Result<Option<Value>, String> {
    match from {
        Value::Null => Ok(None),
        from if is_selector(from) => Ok(Some(from.clone())),
        _ => Err("a selector is none".to_owned()),
    }
}

/// Whether all of its fields are understood: an ignored field would select more pods.
pub(super) fn is_selector(from: &Value) -> bool {
    let texts = |value: &Value| value.as_array().is_some_and(|values| values.iter().all(Value::is_string));
    let expression = |one: &Value| {
        known(one, &["key", "operator", "values"]).is_ok()
            && one["key"].is_string()
            && match one["operator"].as_str() {
                Some("In" | "NotIn") => texts(&one["values"]),
                Some("Exists" | "DoesNotExist") => is_empty(&one["values"]),
                _ => false,
            }
    };
    let (labels, expressions) = (&from["matchLabels"], &from["matchExpressions"]);
    known(from, &["matchLabels", "matchExpressions"]).is_ok()
        && (labels.is_null() || labels.as_object().is_some_and(|labels| labels.values().all(Value::is_string)))
        && (expressions.is_null() || expressions.as_array().is_some_and(|all| all.iter().all(expression)))
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Fails if the value is not an object, or has a field that is not among these.
pub(super) fn known(value: &Value, fields: &[&str]) -> Result<(), String> {
    let Value::Object(object) = value else { return Err("a part of it is of another type".to_owned()) };
    let odd = |object: &Map<String, Value>| object.keys().find(|field| !fields.contains(&field.as_str())).cloned();
    match odd(object) {
        None => Ok(()),
        Some(field) => Err(format!("it says {:?}", field.chars().take(60).collect::<String>())),
    }
}

/// `None` if it is empty or absent: for rules' ports and peers both have the same meaning.
pub(super) fn array(value: &Value) -> Result<Option<&Vec<Value>>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Array(values) => Ok(Some(values).filter(|values| !values.is_empty())),
        _ => Err("a part of it is of another type".to_owned()),
    }
}
