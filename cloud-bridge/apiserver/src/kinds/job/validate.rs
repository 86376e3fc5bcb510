//! Rules of a whole Job, after pkg/apis/batch/validation of Kubernetes 1.36.

use serde_json::Value;

use super::{selector, spec};
use crate::kinds::workload;
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{integer, text};
use apimachinery::names;

/// Validates a new Job.
pub(super) fn create(job: &Value) -> Vec<FieldError> {
    job_with(job, true)
}

/// Validates a Job; those of older versions lack some labels.
pub(super) fn job_with(job: &Value, prefixed: bool) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &job["spec"];
    selector::validate(&mut errors, job, prefixed);
    spec::spec(&mut errors, "spec", spec);
    let (selector, template) = (&spec["selector"], &spec["template"]);
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    let readable = workload::selector::selector(&mut errors, "spec.selector", selector);
    if readable && !workload::selector::finds(selector, &template["metadata"]["labels"]) {
        workload::template::not_selected(&mut errors, "spec.template", &template["metadata"]);
    }
    host_names(&mut errors, job);
    errors
}

/// The pods of an indexed Job are called after it and their index.
fn host_names(errors: &mut Errors, job: &Value) {
    let completions = integer(&job["spec"], "completions").unwrap_or_default();
    if text(&job["spec"], "completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = text(&job["metadata"], "name");
    let longest = format!("{name}-{}", completions - 1);
    if !names::dns_label(&longest).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.push(FieldError::invalid("metadata.name", &name.into(), &detail));
    }
}
