//! Validation of built-in kinds: field paths and wording as the API server's, so that what kubectl prints is
//! what its users know. Follows pkg/apis/core/validation of Kubernetes 1.36. Pure; an object is expected to
//! have passed its typed decoding and its defaults.

pub(super) mod affinity;
pub(super) mod config;
pub(super) mod container;
pub(super) mod env;
pub(super) mod metadata;
pub(super) mod mount;
pub(super) mod names;
pub(super) mod network;
pub(super) mod node;
pub(super) mod pod;
mod pod_annotations;
pub(super) mod pod_ephemeral;
pub(super) mod pod_resize;
pub(super) mod pod_status;
pub(super) mod pod_update;
pub(super) mod probe;
pub(super) mod resources;
pub(super) mod runtime_class;
pub(super) mod security;
pub(super) mod storage;
pub(super) mod volume;

pub use metadata::{validate_object_meta, validate_object_meta_update};
pub use pod::binding;

use serde_json::Value;

use super::strategy::{FieldError, FieldErrorKind};

/// Wrong fields, in the order found.
pub(super) type Errors = Vec<FieldError>;

/// `Invalid value: "TEXT": MESSAGE` for each message.
pub(super) fn invalid_text(errors: &mut Errors, path: &str, text: &str, messages: Vec<String>) {
    let value = Value::from(text);
    errors.extend(messages.iter().map(|message| FieldError::invalid(path, &value, message)));
}

/// `Invalid value: NUMBER: MESSAGE` for each message.
pub(super) fn invalid_number(errors: &mut Errors, path: &str, number: i64, messages: Vec<String>) {
    let value = Value::from(number);
    errors.extend(messages.iter().map(|message| FieldError::invalid(path, &value, message)));
}

/// `must be greater than or equal to 0`.
pub(super) fn not_negative(errors: &mut Errors, path: String, number: i64) {
    if number < 0 {
        errors.push(FieldError::invalid(path, &number.into(), "must be greater than or equal to 0"));
    }
}

/// Adds a detail to an error that has none by itself.
pub(super) fn with_detail(mut error: FieldError, detail: &str) -> FieldError {
    error.message = format!("{}: {detail}", error.message);
    error
}

/// `Invalid value: SHOWN: DETAIL` where the API server shows an internal struct, whose members have Go's names
/// and order.
pub(super) fn invalid_struct(path: impl Into<String>, shown: &str, detail: &str) -> FieldError {
    let message = format!("Invalid value: {shown}: {detail}");
    FieldError { field: path.into(), kind: FieldErrorKind::Invalid, message }
}

/// `Too many: ACTUAL: must have at most MAX items`.
pub(super) fn too_many(path: impl Into<String>, actual: usize, max: usize) -> FieldError {
    FieldError {
        field: path.into(),
        kind: FieldErrorKind::TooMany,
        message: format!("Too many: {actual}: must have at most {max} items"),
    }
}

/// A string that must be one of a list: `Required value` when empty, `Unsupported value` otherwise.
pub(super) fn one_of(errors: &mut Errors, path: String, value: &str, supported: &[&str]) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, &value.into(), supported));
    }
}

/// `field is immutable` when the two differ.
pub(super) fn immutable(errors: &mut Errors, path: &str, new: &Value, old: &Value) {
    if new != old {
        errors.push(FieldError::invalid(path, new, "field is immutable"));
    }
}
