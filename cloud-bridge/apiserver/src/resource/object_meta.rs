//! The rules for `metadata`, common to all kinds. Follows apimachinery's api/validation/objectmeta.go.

use std::collections::HashSet;

use serde_json::Value;

use super::Resource;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text, not_negative};
use apimachinery::json::{integer, items, text, text_entries};
use apimachinery::names;

/// Sum of the lengths of all annotation keys and values.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Validates `metadata` of a new or changed object (after `generateName` has made a name).
pub fn validate_object_meta(obj: &Value, resource: &Resource) -> Vec<FieldError> {
    let meta = &obj["metadata"];
    let rule = resource.rules().name;
    let mut errors = Errors::new();
    let prefix = text(meta, "generateName");
    if !prefix.is_empty() {
        invalid_text(&mut errors, "metadata.generateName", prefix, rule(&mask_trailing_dash(prefix)));
    }
    match text(meta, "name") {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => invalid_text(&mut errors, "metadata.name", name, rule(name)),
    }
    match (resource.namespaced, text(meta, "namespace")) {
        (true, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (true, namespace) => {
            invalid_text(&mut errors, "metadata.namespace", namespace, names::dns_label(namespace));
        }
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type")),
    }
    errors.extend(beside_names(meta, resource.group.is_empty() && !resource.is_custom()));
    errors
}

/// Validates the metadata of an object within another one, of whose kind nothing is known.
pub(crate) fn validate_embedded(meta: &Value) -> Errors {
    let mut errors = Errors::new();
    let prefix = text(meta, "generateName");
    invalid_text(&mut errors, "metadata.generateName", prefix, names::path_segment(&mask_trailing_dash(prefix)));
    let name = text(meta, "name");
    invalid_text(&mut errors, "metadata.name", name, names::path_segment(name));
    let namespace = text(meta, "namespace");
    if !namespace.is_empty() {
        invalid_text(&mut errors, "metadata.namespace", namespace, names::dns_label(namespace));
    }
    errors.extend(beside_names(meta, false));
    errors
}

/// Errors other than those of names. `core`: the group in which finalizers must be known ones.
fn beside_names(meta: &Value, core: bool) -> Errors {
    let mut errors = Errors::new();
    not_negative(&mut errors, "metadata.generation".into(), integer(meta, "generation").unwrap_or_default());
    labels(&mut errors, "metadata.labels", meta, "labels");
    annotations(&mut errors, "metadata.annotations", meta);
    owners(&mut errors, meta);
    finalizers(&mut errors, meta, core);
    errors
}

/// Validates a change of `metadata`, beside `validate_object_meta` of the new object.
pub fn validate_object_meta_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (&new["metadata"], &old["metadata"]);
    let mut errors = Errors::new();
    if !old["deletionTimestamp"].is_null() {
        let had: HashSet<&str> = items(old, "finalizers").iter().filter_map(Value::as_str).collect();
        let wanted = items(new, "finalizers").iter().filter_map(Value::as_str);
        let mut extra: Vec<&str> = wanted.filter(|one| !had.contains(one)).collect();
        extra.sort_unstable();
        if !extra.is_empty() {
            let list: Vec<String> = extra.iter().map(|f| format!("{f:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        // The server sets omitted fields before it compares.
        if !new[field].is_null() {
            immutable(&mut errors, &format!("metadata.{field}"), &new[field], &old[field]);
        }
    }
    errors
}

/// Keys and values of a label map, such as `metadata.labels` and `spec.nodeSelector`.
pub(crate) fn labels(errors: &mut Errors, path: &str, holder: &Value, field: &str) {
    for (key, value) in text_entries(holder, field) {
        invalid_text(errors, path, key, names::qualified_name(key));
        invalid_text(errors, path, value, names::label_value(value));
    }
}

/// Keys and the size of annotations.
pub(crate) fn annotations(errors: &mut Errors, path: &str, meta: &Value) {
    let mut size = 0;
    for (key, value) in text_entries(meta, "annotations") {
        size += key.len() + value.len();
        invalid_text(errors, path, key, names::qualified_name(&key.to_lowercase()));
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX));
    }
}

fn owners(errors: &mut Errors, meta: &Value) {
    const PATH: &str = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in items(meta, "ownerReferences") {
        let api_version = text(owner, "apiVersion");
        let mut empty = |field: &str, value: &str, detail: &str| {
            errors.push(FieldError::invalid(format!("{PATH}.{field}"), &value.into(), detail));
        };
        if api_version.is_empty() || api_version.ends_with('/') {
            empty("apiVersion", api_version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                empty(field, "", "must not be empty");
            }
        }
        if api_version == "v1" && text(owner, "kind") == "Event" {
            errors.push(FieldError::invalid(PATH, owner, "/v1, Kind=Event is disallowed from being an owner"));
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            if let Some(first) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                errors.push(FieldError::invalid(PATH, &meta["ownerReferences"], &detail));
            } else {
                controller = Some(name);
            }
        }
    }
}

/// Finalizers without a domain must be known ones in the core group.
fn finalizers(errors: &mut Errors, meta: &Value, core: bool) {
    const PATH: &str = "metadata.finalizers";
    let list = items(meta, "finalizers");
    for finalizer in list.iter().filter_map(Value::as_str) {
        invalid_text(errors, PATH, finalizer, names::qualified_name(finalizer));
    }
    for (i, finalizer) in list.iter().enumerate().filter_map(|(i, f)| Some((i, f.as_str()?))).filter(|_| core) {
        if !finalizer.contains('/') && !["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("{PATH}[{i}]"), &finalizer.into(), detail));
        }
    }
    if list.iter().any(|f| f == "orphan") && list.iter().any(|f| f == "foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(PATH, &meta["finalizers"], detail));
    }
}

/// A prefix that ends with a dash is judged as if a name followed.
fn mask_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut masked: String = rest.chars().take(rest.chars().count() - 1).collect();
            masked.push('a');
            masked
        }
        _ => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use apimachinery::meta;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|e| e.field.as_str()).collect()
    }

    fn resource(kind: &str) -> std::sync::Arc<Resource> {
        let mut all = crate::kinds::resources().into_iter();
        all.find(|r| r.kind == kind).expect("a built-in kind")
    }

    #[test]
    fn a_name_is_needed_and_namespaces_only_where_they_belong() {
        let errors = validate_object_meta(&json!({"metadata": {"namespace": "x"}}), &resource("Node"));
        assert_eq!(fields(&errors), ["metadata.name", "metadata.namespace"]);
        let good = json!({"metadata": {"name": "a", "generateName": "a-", "namespace": "n",
            "labels": {"a/b": "c"}, "annotations": {"X.y/Z": "any \n text"}}});
        assert_eq!(validate_object_meta(&good, &resource("Pod")), []);
    }

    #[test]
    fn identity_cannot_change() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "deletionTimestamp": "t"}});
        let new = json!({"metadata": {"name": "a", "uid": "2", "finalizers": ["a/b"]}});
        let errors = validate_object_meta_update(&new, &old);
        assert_eq!(fields(&errors), ["metadata.finalizers", "metadata.uid"]);
        assert_eq!(errors[1].message, "Invalid value: \"2\": field is immutable");
    }

    #[test]
    fn a_deletion_time_cannot_be_set_by_hand() {
        let old = json!({"metadata": {"name": "a", "uid": "1"}});
        let mut new = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-02T03:04:05Z"}});
        meta::keep_old(&mut new, &old);
        let errors = validate_object_meta_update(&new, &old);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "metadata.deletionTimestamp");
    }
}
