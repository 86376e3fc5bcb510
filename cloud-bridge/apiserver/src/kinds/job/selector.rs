//! The selector that a Job gets, so that it finds its own pods and no others (pkg/registry/batch/job/strategy.go).

use sampan_json::SetField;
use serde_json::{Value, json};

use apimachinery::field::{Errors, FieldError};
use apimachinery::json::text;
use apimachinery::selector::selects;

const UID: &str = "batch.kubernetes.io/controller-uid";
const NAME: &str = "batch.kubernetes.io/job-name";
/// Labels from before they had a domain.
const LEGACY_UID: &str = "controller-uid";
const LEGACY_NAME: &str = "job-name";

const TEMPLATE: [&str; 4] = ["spec", "template", "metadata", "labels"];

/// Adds the labels to the template and their selector. Existing ones are validated later.
pub(super) fn generate(job: &mut Value) {
    let name = job["metadata"]["name"].clone();
    let uid = job["metadata"]["uid"].clone();
    for (label, value) in [(LEGACY_NAME, &name), (NAME, &name), (LEGACY_UID, &uid), (UID, &uid)] {
        add(job, &TEMPLATE, label, value);
    }
    add(job, &["spec", "selector", "matchLabels"], UID, &uid);
}

fn add(job: &mut Value, path: &[&str], label: &str, value: &Value) {
    let path: Vec<&str> = path.iter().copied().chain([label]).collect();
    if job.at_mut(&path).is_none() {
        job.set_at(&path, value.clone());
    }
}

/// Whether the template has the labels.
pub(super) fn is_generated(job: &Value) -> bool {
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    labels.get(UID).is_some() || labels.get(LEGACY_UID).is_some()
}

/// Whether the template has those with a domain. Jobs of older versions lack them.
pub(super) fn has_prefixed(job: &Value) -> bool {
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    labels.get(UID).is_some() && labels.get(NAME).is_some()
}

/// Judges labels and selector of a Job that does not choose them itself.
pub(super) fn validate(errors: &mut Errors, job: &Value, prefixed: bool) {
    let (metadata, spec) = (&job["metadata"], &job["spec"]);
    if spec["manualSelector"] == true || spec["selector"].is_null() {
        return;
    }
    let (name, uid) = (text(metadata, "name"), text(metadata, "uid"));
    if uid.is_empty() {
        errors.push(FieldError::required("metadata.uid", ""));
    }
    let mut expected = json!({LEGACY_UID: uid, LEGACY_NAME: name});
    has(errors, spec, LEGACY_UID, uid);
    has(errors, spec, LEGACY_NAME, name);
    if prefixed {
        has(errors, spec, UID, uid);
        has(errors, spec, NAME, name);
        expected.set(UID, uid.into());
        expected.set(NAME, name.into());
    }
    if !selects(&spec["selector"], &expected) {
        errors.push(FieldError::invalid("spec.selector", &spec["selector"], "`selector` not auto-generated"));
    }
}

fn has(errors: &mut Errors, spec: &Value, label: &str, expected: &str) {
    let labels = &spec["template"]["metadata"]["labels"];
    let at = format!("spec.template.metadata.labels[{label}]");
    let detail = format!("must be '{expected}'");
    match labels.get(label).and_then(Value::as_str) {
        None => errors.push(FieldError::required(at, &detail)),
        Some(found) if found != expected => errors.push(FieldError::invalid(at, labels, &detail)),
        Some(_) => {}
    }
}
