//! What one kind of object may decide about itself: defaults, preparation, validation, selectable fields,
//! table cells and how a strategic merge patch applies. Named after the API server's `rest.RESTCreateStrategy`
//! and its siblings.
//!
//! Everything here is a pure function over `serde_json::Value`: no storage, no clock, no identity. The verbs
//! in `rest` call the hooks in this order: create = decode, `default`, `prepare_create`, metadata filling,
//! `validate_create`; update = decode, `default`, `prepare_update`, `validate_update`; update of the status
//! subresource = decode, `default`, `prepare_status_update`, `validate_status_update`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use super::decode::Decoded;
use super::list_keys;

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

/// One column of a `meta.k8s.io/v1` Table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: Cow<'static, str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub type_: Cow<'static, str>,
    /// `name` for the first column, else usually empty.
    pub format: Cow<'static, str>,
    pub description: Cow<'static, str>,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
}

/// A strategic merge patch that could not be applied; becomes 400 or 422 with this text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PatchError {
    /// The kind has no merge keys (custom resources): 415.
    #[error("strategic merge patch is not supported")]
    Unsupported,
    /// The patch itself is malformed: 400.
    #[error("{0}")]
    Invalid(String),
}

/// The hooks of one kind. The default bodies suit a kind without opinions.
#[allow(unused_variables)]
pub trait Strategy: Send + Sync {
    /// The check of a body for kinds without a Rust type (custom resources): pruning by schema. Built-in kinds
    /// never come here.
    fn decode(&self, value: Value) -> Result<Decoded, String> {
        Ok(Decoded { value, unknown: Vec::new() })
    }

    /// Fills what the API's defaulting fills, and brings quantities to their canonical form. Idempotent.
    /// Must tolerate a missing `spec` (it runs before validation).
    fn default(&self, obj: &mut Value) {}

    /// Clears or sets what a client may not choose at creation (status, `spec.nodeName` rules, QoS class,
    /// phase, Secret `stringData` into `data`).
    fn prepare_create(&self, obj: &mut Value) {}

    /// Puts back what a client may not change by an update of the main resource (status). `generation` is
    /// the caller's business: it is raised when `spec` changed and `has_generation` is true.
    fn prepare_update(&self, new: &mut Value, old: &Value) {}

    /// Puts back all that an update of the status subresource may not change (everything but status and, in
    /// metadata, what the kind's strategy lets through).
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let status = new.get("status").cloned();
        let metadata = new.get("metadata").cloned();
        *new = old.clone();
        if let Some(map) = new.as_object_mut() {
            map.remove("status");
            status.map(|s| map.insert("status".into(), s));
            metadata.map(|m| map.insert("metadata".into(), m));
        }
    }

    /// Validation of a new object, without the generic metadata rules (those are the caller's).
    fn validate_create(&self, obj: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Validation of an update of the main resource.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Validation of an update of the status subresource.
    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Puts back all that an update of another subresource of the object (`ephemeralcontainers`) may not change.
    fn prepare_part_update(&self, part: &str, new: &mut Value, old: &Value) {
        new.clone_from(old);
    }

    /// Validation of an update of such a subresource.
    fn validate_part_update(&self, part: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Warnings for the client (deprecated fields), sent as `Warning` headers.
    fn warnings(&self, obj: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Columns of the Table form. The cells of `row` correspond one to one.
    fn columns(&self) -> Vec<Column> {
        vec![
            Column {
                name: "Name".into(),
                type_: "string".into(),
                format: "name".into(),
                description: "Name must be unique within a namespace.".into(),
                priority: 0,
            },
            Column {
                name: "Created At".into(),
                type_: "date".into(),
                format: "".into(),
                description: "CreationTimestamp is the server's time of creation.".into(),
                priority: 0,
            },
        ]
    }

    /// The cells of one object.
    fn row(&self, obj: &Value, now: Timestamp) -> Vec<Value> {
        let meta = &obj["metadata"];
        vec![meta["name"].clone(), meta["creationTimestamp"].clone()]
    }

    /// The value of a selectable field other than `metadata.name` and `metadata.namespace`; `None` when the
    /// field label is not supported for this kind, an empty string when the object lacks it.
    fn field<'a>(&self, obj: &'a Value, label: &str) -> Option<Cow<'a, str>> {
        None
    }

    /// The OpenAPI schema of the kind, when it carries one (custom resources).
    fn schema(&self) -> Option<&Value> {
        None
    }

    /// How the list at this path of field names merges in server-side apply: `None` as a whole, no keys as a
    /// set, else by these keys.
    fn list_keys(&self, names: &[&str]) -> Option<Vec<String>> {
        list_keys::builtin(names)
    }

    /// Applies a strategic merge patch to the current object.
    fn strategic_merge(&self, current: &Value, patch: &Value) -> Result<Value, PatchError> {
        Err(PatchError::Unsupported)
    }
}

/// A kind without opinions.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Strategy for Plain {}
