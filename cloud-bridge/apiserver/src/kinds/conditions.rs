//! Rules of conditions as most kinds have them (apimachinery pkg/apis/meta/v1/validation, ValidateConditions).

use std::collections::BTreeSet;

use serde_json::Value;

use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{integer, text};
use apimachinery::names;

const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32 * 1024;
/// Value of a missing time in the typed form.
const NO_TIME: &str = "1970-01-01T00:00:00Z";

/// Adds the errors of the conditions at a path.
pub(crate) fn validate(errors: &mut Errors, path: &str, conditions: &[Value]) {
    let mut types = BTreeSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{i}]");
        if !types.insert(text(condition, "type")) {
            errors.push(FieldError::duplicate(format!("{path}.type"), &condition["type"]));
        }
        one(errors, &path, condition);
    }
}

fn one(errors: &mut Errors, path: &str, condition: &Value) {
    let kind = text(condition, "type");
    invalid_text(errors, &format!("{path}.type"), kind, names::qualified_name(kind));
    let status = text(condition, "status");
    const STATUSES: &[&str] = &["False", "True", "Unknown"];
    if !STATUSES.contains(&status) {
        errors.push(FieldError::not_supported(format!("{path}.status"), &status.into(), STATUSES));
    }
    if integer(condition, "observedGeneration").is_some_and(|generation| generation < 0) {
        let detail = "must be greater than or equal to zero";
        let at = format!("{path}.observedGeneration");
        errors.push(FieldError::invalid(at, &condition["observedGeneration"], detail));
    }
    if matches!(text(condition, "lastTransitionTime"), "" | NO_TIME) {
        errors.push(FieldError::required(format!("{path}.lastTransitionTime"), ""));
    }
    let at = format!("{path}.reason");
    match text(condition, "reason") {
        "" => errors.push(FieldError::required(at, "")),
        reason => {
            invalid_text(errors, &at, reason, wrong_reason(reason));
            if reason.len() > REASON_MAX {
                errors.push(FieldError::too_long(at, REASON_MAX));
            }
        }
    }
    if text(condition, "message").len() > MESSAGE_MAX {
        errors.push(FieldError::too_long(format!("{path}.message"), MESSAGE_MAX));
    }
}

fn wrong_reason(reason: &str) -> Vec<String> {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
    let good = reason.bytes().all(inner)
        && reason.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && reason.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    if good {
        return Vec::new();
    }
    let rule = "a condition reason must start with alphabetic character, optionally followed by a string of \
                alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    vec![names::pattern_message(rule, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_are_whole_and_of_different_types() {
        let mut good = json!([{"type": "Ready", "status": "True", "reason": "As_Wished", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let fields = |list: &Value| {
            let mut errors = Errors::new();
            validate(&mut errors, "status.conditions", list.as_array().unwrap());
            errors.into_iter().map(|error| error.field.replace("status.conditions", "")).collect::<Vec<_>>()
        };
        assert!(fields(&good).is_empty());
        let twice = good[0].clone();
        good.as_array_mut().unwrap().push(twice);
        assert_eq!(fields(&good), ["[1].type"]);
        let bare = json!([{"type": "a b", "status": "Yes", "observedGeneration": -1}]);
        let wrong = ["[0].type", "[0].status", "[0].observedGeneration", "[0].lastTransitionTime", "[0].reason"];
        assert_eq!(fields(&bare), wrong);
        for (reason, right) in [("a", true), ("A:b", true), ("a:", false), ("1a", false), ("a b", false)] {
            assert_eq!(wrong_reason(reason).is_empty(), right, "{reason}");
        }
    }
}
