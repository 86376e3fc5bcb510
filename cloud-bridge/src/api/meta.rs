//! ObjectMeta: what the server fills in, what it keeps from clients, and the rules it validates for every kind.

use std::collections::BTreeMap;

use jiff::{Timestamp, Unit};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use super::names;
use super::resource::Resource;
use super::strategy::FieldError;

/// The finalizer of a foreground deletion.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that orphans dependents.
pub(super) const ORPHAN: &str = "orphan";

/// A text field of the metadata, or `""`.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The finalizers.
pub(super) fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(|f| f.as_str()).map(str::to_owned).collect()
}

/// Replaces the finalizers.
pub(super) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    set(object, "finalizers", if finalizers.is_empty() { Value::Null } else { json!(finalizers) });
}

/// Sets a metadata field, or removes it with null.
pub(super) fn set(object: &mut Value, field: &str, value: Value) {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if let Some(map) = object["metadata"].as_object_mut() {
        if value.is_null() {
            map.remove(field);
        } else {
            map.insert(field.to_owned(), value);
        }
    }
}

/// True once a deletion was asked for.
pub(super) fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The grace period of a deletion under way.
pub(super) fn grace(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

/// A time as the API writes it: RFC 3339 in whole seconds.
pub(super) fn rfc3339(time: Timestamp) -> String {
    time.round(Unit::Second)
        .ok()
        .filter(|rounded| *rounded <= time)
        .or_else(|| Timestamp::from_second(time.as_second()).ok())
        .unwrap_or(time)
        .to_string()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system's generator does not fail once the kernel has booted; zeroes would only collide and be refused.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes
}

/// A random UUID.
pub(super) fn new_uid() -> String {
    let mut b = random::<16>();
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let hex: String = b.iter().map(|x| format!("{x:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A name from `generateName`: at most 58 characters of it and five random ones.
pub(super) fn generate_name(base: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let base: String = base.chars().take(58).collect();
    let suffix: String = random::<5>().iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect();
    base + &suffix
}

/// What the server sets on every new object.
pub(super) fn fill_new(object: &mut Value, now: Timestamp) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"] {
        set(object, field, Value::Null);
    }
    set(object, "creationTimestamp", rfc3339(now).into());
    set(object, "uid", new_uid().into());
}

/// What an update may not change silently is put back from the old object.
pub(super) fn keep_old(new: &mut Value, old: &Value) {
    for field in ["creationTimestamp", "selfLink"] {
        set(new, field, old["metadata"][field].clone());
    }
    if text(new, "uid").is_empty() {
        set(new, "uid", old["metadata"]["uid"].clone());
    }
    if deleting(old) {
        set(new, "deletionTimestamp", old["metadata"]["deletionTimestamp"].clone());
    }
    if grace(old).is_some() && grace(new).is_none() {
        set(new, "deletionGracePeriodSeconds", old["metadata"]["deletionGracePeriodSeconds"].clone());
    }
    if text(new, "namespace").is_empty() {
        set(new, "namespace", old["metadata"]["namespace"].clone());
    }
}

/// The rule for names of a kind.
fn name_rule(resource: &Resource) -> fn(&str) -> Option<String> {
    match (resource.group.as_ref(), resource.plural.as_ref()) {
        ("", "namespaces") => names::dns_label,
        ("", "services") => names::dns_1035_label,
        ("", "events") | ("events.k8s.io", _) => names::path_segment,
        _ => names::dns_subdomain,
    }
}

/// Validates the metadata of a new or changed object.
pub(super) fn validate(object: &Value, resource: &Resource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let rule = name_rule(resource);
    let generate = text(object, "generateName");
    if !generate.is_empty() {
        // A prefix may end in what a whole name may not.
        let probe = generate.strip_suffix(['-', '.']).map_or_else(|| generate.to_owned(), |base| format!("{base}a"));
        if let Some(why) = rule(&probe) {
            errors.push(FieldError::invalid("metadata.generateName", &generate.into(), &why));
        }
    }
    let name = text(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = rule(name) {
        errors.push(FieldError::invalid("metadata.name", &name.into(), &why));
    }
    let namespace = text(object, "namespace");
    if resource.namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        } else if let Some(why) = names::dns_label(namespace) {
            errors.push(FieldError::invalid("metadata.namespace", &namespace.into(), &why));
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    validate_labels(object, &mut errors);
    validate_annotations(object, &mut errors);
    validate_owners(object, &mut errors);
    validate_finalizers(object, resource, &mut errors);
    errors
}

fn pairs(value: &Value) -> BTreeMap<&str, &str> {
    let map = value.as_object();
    map.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default())).collect()
}

fn validate_labels(object: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in pairs(&object["metadata"]["labels"]) {
        if let Some(why) = names::qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", &key.into(), &why));
        }
        if let Some(why) = names::label_value(value) {
            errors.push(FieldError::invalid("metadata.labels", &value.into(), &why));
        }
    }
}

/// The most that all annotations of an object may hold.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn validate_annotations(object: &Value, errors: &mut Vec<FieldError>) {
    let annotations = pairs(&object["metadata"]["annotations"]);
    for key in annotations.keys() {
        if let Some(why) = names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &(*key).into(), &why));
        }
    }
    if annotations.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long("metadata.annotations", MAX_ANNOTATIONS));
    }
}

fn validate_owners(object: &Value, errors: &mut Vec<FieldError>) {
    let path = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::invalid(format!("{path}.{field}"), &"".into(), why));
            }
        }
        if owner["controller"] == true {
            let name = format!(
                "{}/{}",
                owner["kind"].as_str().unwrap_or_default(),
                owner["name"].as_str().unwrap_or_default()
            );
            match &controller {
                Some(first) => errors.push(FieldError::invalid(
                    path,
                    &object["metadata"]["ownerReferences"],
                    &format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"),
                )),
                None => controller = Some(name),
            }
        }
    }
}

fn validate_finalizers(object: &Value, resource: &Resource, errors: &mut Vec<FieldError>) {
    let path = "metadata.finalizers";
    let list = finalizers(object);
    for (index, finalizer) in list.iter().enumerate() {
        if let Some(why) = names::qualified_name(finalizer) {
            errors.push(FieldError::invalid(path, &finalizer.as_str().into(), &why));
        } else if !finalizer.contains('/')
            && !matches!(finalizer.as_str(), FOREGROUND | ORPHAN | "kubernetes")
            && !resource.is_custom()
            && resource.group.is_empty()
        {
            errors.push(FieldError::invalid(
                format!("{path}[{index}]"),
                &finalizer.as_str().into(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    if list.iter().any(|f| f == FOREGROUND) && list.iter().any(|f| f == ORPHAN) {
        errors.push(FieldError::invalid(
            path,
            &json!(list),
            &format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set"),
        ));
    }
}

/// Validates how the metadata changed.
pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if deleting(old) {
        let had = finalizers(old);
        let mut extra: Vec<_> = finalizers(new).into_iter().filter(|f| !had.contains(f)).collect();
        extra.sort();
        if !extra.is_empty() {
            let shown = extra.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ");
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                &format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"),
            ));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (is, was) = (&new["metadata"][field], &old["metadata"][field]);
        if is != was {
            errors.push(FieldError::invalid(format!("metadata.{field}"), is, "field is immutable"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_generated() {
        let name = generate_name(&"x".repeat(70));
        assert_eq!(name.len(), 63);
        assert_ne!(generate_name("a-"), generate_name("a-"));
        assert_eq!(new_uid().len(), 36);
    }

    #[test]
    fn times_have_whole_seconds() {
        let time: Timestamp = "2026-01-02T03:04:05.9Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn a_deletion_time_cannot_be_set_by_hand() {
        let old = json!({"metadata": {"name": "a", "uid": "1"}});
        let mut new = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-02T03:04:05Z"}});
        keep_old(&mut new, &old);
        let errors = validate_update(&new, &old);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "metadata.deletionTimestamp");
    }
}
