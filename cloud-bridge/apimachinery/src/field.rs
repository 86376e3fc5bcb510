//! Errors of an object's fields, in the API server's words (K8s apimachinery util/validation/field).

use serde_json::Value;

/// Why a field is wrong; the `reason` of a Status cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

impl FieldErrorKind {
    /// The reason as a Status cause carries it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }
}

/// One wrong field. `message` is the whole text after the field path, exactly as kubectl prints it:
/// `Invalid value: "x": must be ...`, `Required value`, `Unsupported value: "X": supported values: "A", "B"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path from the object's root: `spec.containers[0].image`.
    pub field: String,
    pub kind: FieldErrorKind,
    pub message: String,
}

impl FieldError {
    fn new(kind: FieldErrorKind, field: impl Into<String>, message: String) -> Self {
        Self { field: field.into(), kind, message }
    }

    /// `Invalid value: VALUE: DETAIL`; strings are quoted, other values are JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(FieldErrorKind::Invalid, field, format!("Invalid value: {}: {detail}", shown(value)))
    }

    /// `Required value` or `Required value: DETAIL`.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let text = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self::new(FieldErrorKind::Required, field, text)
    }

    /// `Duplicate value: VALUE`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, format!("Duplicate value: {}", shown(value)))
    }

    /// `Not found: VALUE`.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(FieldErrorKind::NotFound, field, format!("Not found: {}", shown(value)))
    }

    /// `Forbidden: DETAIL`.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, format!("Forbidden: {detail}"))
    }

    /// `Unsupported value: VALUE: supported values: "A", "B"`, in the order given.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let names: Vec<_> = supported.iter().map(|s| format!("{s:?}")).collect();
        let text = format!("Unsupported value: {}: supported values: {}", shown(value), names.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, text)
    }

    /// `Unsupported value: VALUE: supported values: …` with a value shown as it is.
    pub fn not_supported_text(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let names: Vec<_> = supported.iter().map(|s| format!("{s:?}")).collect();
        let text = format!("Unsupported value: {value}: supported values: {}", names.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, text)
    }

    /// `Too long: may not be more than MAX bytes`.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(FieldErrorKind::TooLong, field, format!("Too long: may not be more than {max} bytes"))
    }

    /// `Invalid value: "TYPE": DETAIL`: a value of the wrong JSON type in a custom resource.
    pub fn type_invalid(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, format!("Invalid value: {value:?}: {detail}"))
    }
}

/// A value as field errors show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => format!("{s:?}"),
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

/// Wrong fields, in the order found.
pub type Errors = Vec<FieldError>;

/// `Invalid value: "TEXT": MESSAGE` for each message.
pub fn invalid_text(errors: &mut Errors, path: &str, text: &str, messages: Vec<String>) {
    let value = Value::from(text);
    errors.extend(messages.iter().map(|message| FieldError::invalid(path, &value, message)));
}

/// `Invalid value: NUMBER: MESSAGE` for each message.
pub fn invalid_number(errors: &mut Errors, path: &str, number: i64, messages: Vec<String>) {
    let value = Value::from(number);
    errors.extend(messages.iter().map(|message| FieldError::invalid(path, &value, message)));
}

/// `must be greater than or equal to 0`.
pub fn not_negative(errors: &mut Errors, path: String, number: i64) {
    if number < 0 {
        errors.push(FieldError::invalid(path, &number.into(), "must be greater than or equal to 0"));
    }
}

/// Adds a detail to an error without one.
pub fn with_detail(mut error: FieldError, detail: &str) -> FieldError {
    error.message = format!("{}: {detail}", error.message);
    error
}

/// `Invalid value: SHOWN: DETAIL` where the API server shows an internal struct, whose members have Go's names
/// and order.
pub fn invalid_struct(path: impl Into<String>, shown: &str, detail: &str) -> FieldError {
    let message = format!("Invalid value: {shown}: {detail}");
    FieldError { field: path.into(), kind: FieldErrorKind::Invalid, message }
}

/// `Too many: ACTUAL: must have at most MAX items`.
pub fn too_many(path: impl Into<String>, actual: usize, max: usize) -> FieldError {
    FieldError {
        field: path.into(),
        kind: FieldErrorKind::TooMany,
        message: format!("Too many: {actual}: must have at most {max} items"),
    }
}

/// A string that must be one of a list: `Required value` when empty, `Unsupported value` otherwise.
pub fn one_of(errors: &mut Errors, path: String, value: &str, supported: &[&str]) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, &value.into(), supported));
    }
}

/// `field is immutable` when the two differ.
pub fn immutable(errors: &mut Errors, path: &str, new: &Value, old: &Value) {
    if new != old {
        errors.push(FieldError::invalid(path, new, "field is immutable"));
    }
}
