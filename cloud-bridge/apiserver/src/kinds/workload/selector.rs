//! Selectors of pods (ValidateLabelSelector of apimachinery's meta/v1/validation).

use serde_json::{Value, json};

use crate::resource::object_meta;
use apimachinery::field::{Errors, FieldError, invalid_text, too_many};
use apimachinery::json::{items, text};
use apimachinery::names;
use apimachinery::selector::{SIZE_MAX, selects, size};

/// Validates a selector and limits its size. Kubernetes only limits the size of the object, and looks values up; here
/// each pod is compared with all of them. For a selector that is too large no other errors are reported: it may be
/// older than the limit.
pub(crate) fn selector(errors: &mut Errors, path: &str, selector: &Value) -> bool {
    let before = errors.len();
    let size = size(selector);
    if size > SIZE_MAX {
        errors.push(too_many(path, size, SIZE_MAX));
        return true;
    }
    object_meta::labels(errors, &format!("{path}.matchLabels"), selector, "matchLabels");
    for (i, requirement) in items(selector, "matchExpressions").iter().enumerate() {
        self::requirement(errors, &format!("{path}.matchExpressions[{i}]"), requirement);
    }
    errors.len() == before
}

fn requirement(errors: &mut Errors, path: &str, requirement: &Value) {
    let values = items(requirement, "values");
    let at = format!("{path}.values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(at.as_str(), "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(at.as_str(), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &other.into(), detail));
        }
    }
    let key = text(requirement, "key");
    invalid_text(errors, &format!("{path}.key"), key, names::qualified_name(key));
    for (i, value) in values.iter().filter_map(Value::as_str).enumerate() {
        invalid_text(errors, &format!("{at}[{i}]"), value, names::label_value(value));
    }
}

/// Whether a selector exists and is empty, which no controller may use.
pub(crate) fn is_empty(selector: &Value) -> bool {
    let none = |field: &str| match &selector[field] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    selector.is_object() && none("matchLabels") && none("matchExpressions")
}

/// The refusal of a selector that asks for nothing.
pub(crate) fn not_empty(errors: &mut Errors, selector: &Value, kind: &str) {
    if is_empty(selector) {
        let detail = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid("spec.selector", &json!({}), &detail));
    }
}

/// Whether labels are found. A selector that is missing finds nothing, an empty one everything.
pub(crate) fn finds(selector: &Value, labels: &Value) -> bool {
    selector.is_object() && selects(selector, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_selector_is_refused() {
        let of = |count: usize| {
            let values: Value = (0..count).map(|n| format!("v{n}")).collect();
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": values}]})
        };
        let mut errors = Errors::new();
        assert!(selector(&mut errors, "spec.selector", &of(SIZE_MAX - 1)) && errors.is_empty());
        selector(&mut errors, "spec.selector", &of(SIZE_MAX));
        assert_eq!(errors, [too_many("spec.selector", SIZE_MAX + 1, SIZE_MAX)]);
    }
}
