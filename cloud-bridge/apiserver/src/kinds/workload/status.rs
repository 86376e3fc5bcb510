//! Counts in the status of a workload: none is negative, and a part is not more than the whole.

use serde_json::Value;

use apimachinery::field::{Errors, FieldError, not_negative};
use apimachinery::json::integer;

/// Counts that may not be negative.
pub(crate) fn counts(errors: &mut Errors, status: &Value, fields: &[&str]) {
    for field in fields {
        not_negative(errors, format!("status.{field}"), integer(status, field).unwrap_or_default());
    }
}

/// Counts with another that they are part of, as the refusal names it.
pub(crate) fn parts(errors: &mut Errors, status: &Value, fields: &[(&str, &str)]) {
    let number = |field: &str| integer(status, field).unwrap_or_default();
    for (field, most) in fields {
        if number(field) > number(most.trim_start_matches("status.")) {
            let detail = format!("cannot be greater than {most}");
            errors.push(FieldError::invalid(format!("status.{field}"), &number(field).into(), &detail));
        }
    }
}

/// How often names collided only grows.
pub(crate) fn collision_count(errors: &mut Errors, status: &Value, old: &Value) {
    let collisions = integer(status, "collisionCount").unwrap_or_default();
    if integer(old, "collisionCount").is_some_and(|before| collisions < before) {
        errors.push(FieldError::invalid("status.collisionCount", &collisions.into(), "cannot be decremented"));
    }
}
