//! Rules of ReplicationControllers, after pkg/apis/core/validation of Kubernetes 1.36.

use serde_json::Value;

use crate::kinds::workload::{status, template};
use apimachinery::field::{Errors, FieldError, not_negative};
use apimachinery::json::{integer, text_entries};

/// Validates a ReplicationController, new or changed: its selector may change.
pub(super) fn create(controller: &Value) -> Vec<FieldError> {
    const TEMPLATE: &str = "spec.template";
    let mut errors = Errors::new();
    let spec = &controller["spec"];
    not_negative(&mut errors, "spec.minReadySeconds".into(), integer(spec, "minReadySeconds").unwrap_or_default());
    if text_entries(spec, "selector").next().is_none() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    not_negative(&mut errors, "spec.replicas".into(), integer(spec, "replicas").unwrap_or_default());
    let template = &spec["template"];
    if template.is_null() {
        errors.push(FieldError::required(TEMPLATE, ""));
        return errors;
    }
    let labels = &template["metadata"]["labels"];
    if text_entries(spec, "selector").any(|(key, value)| labels.get(key).and_then(Value::as_str) != Some(value)) {
        template::not_selected(&mut errors, TEMPLATE, &template["metadata"]);
    }
    template::validate(&mut errors, TEMPLATE, template);
    template::runs_forever(&mut errors, TEMPLATE, template, "ReplicationController");
    errors
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, _old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = &new["status"];
    let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    status::counts(&mut errors, status, &counts);
    let parts = [
        ("fullyLabeledReplicas", "status.replicas"),
        ("readyReplicas", "status.replicas"),
        ("availableReplicas", "status.replicas"),
        ("availableReplicas", "readyReplicas"),
    ];
    status::parts(&mut errors, status, &parts);
    errors
}
