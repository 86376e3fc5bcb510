//! The hooks of one kind of object: defaults, preparation, validation, selectable fields, table cells and how a
//! strategic merge patch applies. Named after the API server's `rest.RESTCreateStrategy` and its siblings.
//!
//! Every hook is a pure function over `serde_json::Value`: it has no storage, no clock and no user. The verbs in
//! `registry` decode the body and then call the hooks in this order. Create: `default`, `prepare_create`, filling of
//! the metadata, `validate_create`. Update: `default`, `prepare_update`, `validate_update`. Update of the status
//! subresource: `default`, `prepare_status_update`, `validate_status_update`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use super::cel::CelQuestion;
use super::rules::Rules;
use crate::codec::decode::Decoded;
use crate::patch::merge_keys;
use crate::patch::shape::Shape;
use crate::patch::strategic::PatchError;
use apimachinery::field::FieldError;

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

/// Where an object has what its `scale` subresource shows and sets, as JSON paths (`.spec.replicas`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// Consists only of names.
    pub spec_replicas: Cow<'static, str>,
    pub status_replicas: Cow<'static, str>,
    /// Selector, as text or as an object; empty without one.
    pub selector: Cow<'static, str>,
}

/// Errors of an object that was validated by its schema beside the thread.
#[derive(Debug)]
pub struct Foreseen {
    /// Hash of what was validated.
    pub of: u64,
    pub errors: Vec<FieldError>,
}

/// Replaces `new` by the old object with the new status and metadata.
pub(crate) fn only_status(new: &mut Value, old: &Value) {
    let (Value::Object(new), Value::Object(old)) = (new, old) else { return };
    new.retain(|name, _| ["metadata", "status"].contains(&name.as_str()) || old.contains_key(name));
    for (name, value) in old {
        let brought = name == "status" || (name == "metadata" && new.contains_key(name));
        // Mostly it is the same: to compare is less work than to copy.
        if !brought && new.get(name) != Some(value) {
            new.insert(name.clone(), value.clone());
        }
    }
}

/// The hooks of one kind. The default bodies suit a kind without opinions.
#[allow(unused_variables)]
pub trait Strategy: Send + Sync {
    /// Rules of the kind for the verbs.
    fn rules(&self) -> &Rules {
        &Rules::CUSTOM
    }

    /// Why nothing of the kind may be created now.
    fn refusal(&self) -> Option<&'static str> {
        None
    }

    /// Whether the schema of the kind has patterns or combines schemas, which may take long also for a short object.
    fn has_patterns(&self) -> bool {
        false
    }

    /// Validates an object by its schema beside the thread.
    fn foresee(&self, subresource: &str, new: &Value, old: Option<&Value>) -> Option<Foreseen> {
        None
    }

    /// Takes the foreseen errors of an object for its validation, which follows at once.
    fn recall(&self, foreseen: Option<Foreseen>) {}

    /// The check of a body for kinds without a Rust type (custom resources): pruning by schema. Built-in kinds
    /// never come here.
    fn decode(&self, value: Value) -> Result<Decoded, String> {
        Ok(Decoded { value, unknown: Vec::new() })
    }

    /// A stored object by the present rules, if that differs: a definition may have changed since.
    fn read(&self, stored: &Value) -> Option<Value> {
        None
    }

    /// Sets the defaults of the API, and converts quantities to their canonical form. Idempotent. Must tolerate a
    /// missing `spec` (it runs before validation).
    fn default(&self, obj: &mut Value) {}

    /// Clears or sets the fields that a client may not set at creation (status, `spec.nodeName` rules, QoS class,
    /// phase, Secret `stringData` into `data`).
    fn prepare_create(&self, obj: &mut Value) {}

    /// Restores the fields that a client may not change by an update of the main resource (status). The caller handles
    /// `generation`: it increases if `spec` changed and `has_generation` is true.
    fn prepare_update(&self, new: &mut Value, old: &Value) {}

    /// Whether an update raises the generation of an object that has one.
    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        new["spec"] != old["spec"]
    }

    /// Restores everything that an update of the status subresource may not change (all except status and, in metadata,
    /// the fields that the kind's strategy allows).
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        only_status(new, old);
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

    /// Paths of the `scale` subresource, if the kind has one.
    fn scale(&self) -> Option<&ScalePaths> {
        None
    }

    /// The question about the validation rules for the new state of an object, or of the named subresource; `None`
    /// without rules.
    fn validations(&self, subresource: &str, new: &Value, old: Option<&Value>) -> Option<CelQuestion> {
        None
    }

    /// Warnings about a new object (deprecated fields), sent as `Warning` headers.
    fn warnings(&self, obj: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Warnings about a changed object, except its subresources.
    fn update_warnings(&self, obj: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Warning with every request, if the version is deprecated.
    fn deprecation(&self) -> Option<String> {
        None
    }

    /// Warning with every write.
    fn notice(&self) -> Option<String> {
        None
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

    /// Whether the kind has its own field labels, which determines the message for an unknown one.
    fn has_field_labels(&self) -> bool {
        true
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

    /// How the kind's objects merge in server-side apply.
    fn shape(&self) -> Shape<'_> {
        Shape::built(&merge_keys::OBJECT)
    }

    /// Applies a strategic merge patch to the current object.
    fn strategic_merge(&self, current: Value, patch: Value) -> Result<Value, PatchError> {
        Err(PatchError::Unsupported)
    }
}

/// A kind without opinions.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Strategy for Plain {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_and_metadata_are_all_that_a_status_write_brings() {
        let old = json!({"metadata": {"name": "a"}, "spec": {"x": 1}, "data": {}, "status": {"y": 1}});
        let written = |mut new: Value| {
            only_status(&mut new, &old);
            new
        };
        let brought =
            json!({"metadata": {"name": "a", "labels": {}}, "spec": {"x": 2}, "other": 1, "status": {"y": 2}});
        let expected =
            json!({"metadata": {"name": "a", "labels": {}}, "spec": {"x": 1}, "data": {}, "status": {"y": 2}});
        assert_eq!(written(brought), expected);
        assert_eq!(written(json!({})), json!({"metadata": {"name": "a"}, "spec": {"x": 1}, "data": {}}));
    }
}
