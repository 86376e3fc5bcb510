//! Rules of Deployments, after pkg/apis/apps/validation of Kubernetes 1.36.

use serde_json::Value;

use super::template;
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
    let selector = &spec["selector"];
    // The typed form makes one that is missing an empty one.
    if template::is_empty(selector) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if template::selector(errors, "spec.selector", selector) {
        template::validate(errors, "spec.template", &spec["template"], selector);
    } else {
        errors.push(FieldError::invalid("spec.selector", selector, "invalid label selector"));
    }
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
    if rolling["maxUnavailable"].is_string() && amounts[0].is_some_and(|percent| percent > 100) {
        let detail = "must not be greater than 100%";
        errors.push(FieldError::invalid(at("maxUnavailable"), &rolling["maxUnavailable"], detail));
    }
}

/// The number of a count or of a percentage.
fn amount(errors: &mut Errors, path: &str, value: &Value) -> Option<u64> {
    if let Value::String(text) = value {
        let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.filter(|digits| !digits.is_empty()).map(|digits| digits.parse().unwrap_or(u64::MAX));
        if number.is_none() {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                          '93%', regex used for validation is '[0-9]+%')";
            errors.push(FieldError::invalid(path, value, detail));
        }
        return number;
    }
    let count = value.as_i64().unwrap_or_default();
    not_negative(errors, path.to_owned(), count);
    u64::try_from(count).ok()
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = &new["status"];
    let number = |field: &str| integer(status, field).unwrap_or_default();
    for field in [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ] {
        not_negative(&mut errors, format!("status.{field}"), number(field));
    }
    for (field, most) in [
        ("updatedReplicas", "status.replicas"),
        ("readyReplicas", "status.replicas"),
        ("availableReplicas", "status.replicas"),
        ("availableReplicas", "readyReplicas"),
    ] {
        if number(field) > number(most.trim_start_matches("status.")) {
            let detail = format!("cannot be greater than {most}");
            errors.push(FieldError::invalid(format!("status.{field}"), &number(field).into(), &detail));
        }
    }
    let collisions = number("collisionCount");
    if integer(&old["status"], "collisionCount").is_some_and(|before| collisions < before) {
        errors.push(FieldError::invalid("status.collisionCount", &collisions.into(), "cannot be decremented"));
    }
    errors
}
