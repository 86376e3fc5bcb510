//! Rules of ReplicaSets, after pkg/apis/apps/validation of Kubernetes 1.36.

use serde_json::Value;

use crate::kinds::workload::{status, template};
use apimachinery::field::{Errors, FieldError, immutable, not_negative};
use apimachinery::json::integer;

/// Validates a new ReplicaSet.
pub(super) fn create(set: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &set["spec"];
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&mut errors, format!("spec.{field}"), integer(spec, field).unwrap_or_default());
    }
    template::of_replica_set(&mut errors, spec);
    errors
}

/// Validates a change of one.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = create(new);
    immutable(&mut errors, "spec.selector", &new["spec"]["selector"], &old["spec"]["selector"]);
    errors
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, _old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = &new["status"];
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
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
