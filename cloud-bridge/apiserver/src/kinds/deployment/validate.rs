//! Rules of Deployments, after pkg/apis/apps/validation of Kubernetes 1.36.

use serde_json::Value;

use crate::kinds::workload::amount::{amount, at_most_all};
use crate::kinds::workload::{status, template};
use apimachinery::field::{Errors, FieldError, immutable, not_negative};
use apimachinery::json::{integer, present, text};

/// Validates a new Deployment.
pub(super) fn create(deployment: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec(&mut errors, &deployment["spec"]);
    errors
}

/// Validates a change of one.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = create(new);
    immutable(&mut errors, "spec.selector", &new["spec"]["selector"], &old["spec"]["selector"]);
    errors
}

fn spec(errors: &mut Errors, spec: &Value) {
    let number = |field: &str| integer(spec, field).unwrap_or_default();
    not_negative(errors, "spec.replicas".into(), number("replicas"));
    template::of_replica_set(errors, spec);
    strategy(errors, &spec["strategy"]);
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        not_negative(errors, format!("spec.{field}"), number(field));
    }
    let deadline = number("progressDeadlineSeconds");
    if deadline <= number("minReadySeconds") {
        let detail = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid("spec.progressDeadlineSeconds", &deadline.into(), detail));
    }
}

fn strategy(errors: &mut Errors, strategy: &Value) {
    const ROLLING: &str = "spec.strategy.rollingUpdate";
    let rolling = present(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(ROLLING, detail));
        }
        ("Recreate", None) => {}
        ("RollingUpdate", Some(rolling)) => rolling_update(errors, ROLLING, rolling),
        ("RollingUpdate", None) => {
            errors.push(FieldError::required(ROLLING, "this should be defaulted and never be nil"));
        }
        (other, _) => {
            let shown = format!("{{\"Type\":{other:?},\"RollingUpdate\":null}}");
            errors.push(FieldError::not_supported_text("spec.strategy", &shown, &["Recreate", "RollingUpdate"]));
        }
    }
}

fn rolling_update(errors: &mut Errors, path: &str, rolling: &Value) {
    let at = |field: &str| format!("{path}.{field}");
    let amounts = ["maxUnavailable", "maxSurge"].map(|field| amount(errors, &at(field), &rolling[field]));
    if amounts == [Some(0), Some(0)] {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(at("maxUnavailable"), &rolling["maxUnavailable"], detail));
    }
    at_most_all(errors, &at("maxUnavailable"), &rolling["maxUnavailable"], amounts[0]);
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = &new["status"];
    status::counts(
        &mut errors,
        status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
    );
    let parts = &[
        ("updatedReplicas", "status.replicas"),
        ("readyReplicas", "status.replicas"),
        ("availableReplicas", "status.replicas"),
        ("availableReplicas", "readyReplicas"),
    ];
    status::parts(&mut errors, status, parts);
    status::collision_count(&mut errors, status, &old["status"]);
    errors
}
