//! Checks of objects for the scale subresource of a custom resource: numbers at its paths, and a selector that is text
//! (K8s apiextensions-apiserver/pkg/registry/customresource/validator.go, `ValidateScaleSpec`).

use serde_json::Value;

use crate::resource::strategy::ScalePaths;
use apimachinery::field::FieldError;
use apimachinery::json::text;

/// Maximum length of a value in messages.
const SHOWN: usize = 1000;

/// Judges where a definition finds the numbers and the selector (K8s apiextensions-apiserver/pkg/apis/apiextensions/validation
/// `ValidateCustomResourceDefinitionSubresources`).
pub(super) fn definition(scale: &Value, at: &str, errors: &mut Vec<FieldError>) {
    if !scale.is_object() {
        return;
    }
    for (field, required, roots, words) in [
        ("specReplicasPath", true, &[".spec."][..], ".spec"),
        ("statusReplicasPath", true, &[".status."], ".status"),
        ("labelSelectorPath", false, &[".spec.", ".status."], "either .spec or .status"),
    ] {
        let (path, field) = (text(scale, field), format!("{at}.{field}"));
        if path.is_empty() {
            errors.extend(required.then(|| FieldError::required(field, "")));
        } else if !path.starts_with('.') {
            errors.push(FieldError::invalid(field, &path.into(), "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| path.starts_with(root)) {
            errors.push(FieldError::invalid(field, &path.into(), &format!("should be a json path under {words}")));
        }
    }
}

/// Checks the whole object, or only its status.
pub(super) fn validate(object: &Value, paths: &ScalePaths, status_alone: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !status_alone {
        errors.extend(number(object, &paths.spec_replicas));
    }
    errors.extend(number(object, &paths.status_replicas));
    if !paths.selector.is_empty() {
        let selector = nested(object, &paths.selector, "string", Value::is_string);
        errors.extend(selector.err().map(|why| FieldError::invalid(paths.selector.as_ref(), &"".into(), &why)));
    }
    errors
}

fn number(object: &Value, path: &str) -> Option<FieldError> {
    let (number, why) = match nested(object, path, "int64", Value::is_i64) {
        Ok(found) => match found.and_then(Value::as_i64)? {
            low @ ..0 => (low, "should be a non-negative integer".to_owned()),
            high if high > i32::MAX.into() => (high, format!("should be less than or equal to {}", i32::MAX)),
            _ => return None,
        },
        Err(why) => (0, why),
    };
    Some(FieldError::invalid(path, &number.into(), &why))
}

/// The value at the path; an error if a value of another type is on the path or at its end.
fn nested<'a>(
    object: &'a Value,
    path: &str,
    expected: &str,
    is: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let wrong = |path: &str, found: &Value, expected: &str| {
        let shown: String = shown(found).chars().take(SHOWN).collect();
        format!("{path} accessor error: {shown} is of the type {}, expected {expected}", kind(found))
    };
    let path = path.strip_prefix('.').unwrap_or(path);
    let (mut found, mut so_far) = (object, String::new());
    for name in path.split('.') {
        so_far = format!("{so_far}.{name}");
        match found {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(inner) => found = inner,
                None => return Ok(None),
            },
            other => return Err(wrong(&so_far, other, "map[string]interface{}")),
        }
    }
    if is(found) { Ok(Some(found)) } else { Err(wrong(&so_far, found, expected)) }
}

/// The name of its type in Go.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", shown(value))).collect();
            fields.sort_unstable();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_a_definition_lead_into_spec_and_status() {
        let told = |scale: Value| {
            let mut errors = Vec::new();
            definition(&scale, "scale", &mut errors);
            errors.into_iter().map(|error| error.message).collect::<Vec<_>>()
        };
        let right = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.a.b",
            "labelSelectorPath": ".spec.selector"});
        assert!(told(right).is_empty() && told(Value::Null).is_empty());
        let wrong = told(json!({"specReplicasPath": ".status.x", "labelSelectorPath": "spec.x"}));
        assert!(wrong[0].ends_with("should be a json path under .spec"), "{wrong:?}");
        assert!(wrong[1].starts_with("Required value"), "{wrong:?}");
        assert!(wrong[2].ends_with("must be a simple json path starting with ."), "{wrong:?}");
        assert_eq!(wrong.len(), 3);
    }
}
