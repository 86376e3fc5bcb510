//! Rules of DaemonSets, after pkg/apis/apps/validation of Kubernetes 1.36.

use serde_json::Value;

use crate::kinds::workload::amount::{amount, at_most_all};
use crate::kinds::workload::{selector, status, template};
use apimachinery::field::{Errors, FieldError, immutable, not_negative};
use apimachinery::json::{integer, present, text};

/// Validates a new DaemonSet.
pub(super) fn create(set: &Value) -> Vec<FieldError> {
    const TEMPLATE: &str = "spec.template";
    let mut errors = Errors::new();
    let spec = &set["spec"];
    let (selector, template) = (&spec["selector"], &spec["template"]);
    let readable = selector::selector(&mut errors, "spec.selector", selector);
    if readable && !selector::finds(selector, &template["metadata"]["labels"]) {
        template::not_selected(&mut errors, TEMPLATE, &template["metadata"]);
    }
    selector::not_empty(&mut errors, selector, "daemonset");
    template::validate(&mut errors, TEMPLATE, template);
    template::runs_forever(&mut errors, TEMPLATE, template, "DaemonSet");
    not_negative(&mut errors, "spec.minReadySeconds".into(), integer(spec, "minReadySeconds").unwrap_or_default());
    strategy(&mut errors, &spec["updateStrategy"]);
    let history = integer(spec, "revisionHistoryLimit").unwrap_or_default();
    not_negative(&mut errors, "spec.revisionHistoryLimit".into(), history);
    errors
}

/// Validates a change of one.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    immutable(&mut errors, "spec.selector", &new["spec"]["selector"], &old["spec"]["selector"]);
    errors.extend(create(new));
    errors
}

fn strategy(errors: &mut Errors, strategy: &Value) {
    const ROLLING: &str = "spec.updateStrategy.rollingUpdate";
    match (text(strategy, "type"), present(strategy, "rollingUpdate")) {
        ("OnDelete", _) => {}
        ("RollingUpdate", Some(rolling)) => rolling_update(errors, ROLLING, rolling),
        ("RollingUpdate", None) => errors.push(FieldError::required(ROLLING, "")),
        (other, _) => {
            let shown = format!("{{\"Type\":{other:?},\"RollingUpdate\":null}}");
            let known = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported_text("spec.updateStrategy", &shown, &known));
        }
    }
}

/// The old pod is either deleted before the new one is created, or after that.
fn rolling_update(errors: &mut Errors, path: &str, rolling: &Value) {
    const FIELDS: [&str; 2] = ["maxUnavailable", "maxSurge"];
    let at = |field: &str| format!("{path}.{field}");
    let amounts = FIELDS.map(|field| amount(errors, &at(field), &rolling[field]));
    for (field, amount) in FIELDS.iter().zip(amounts) {
        at_most_all(errors, &at(field), &rolling[*field], amount);
    }
    // What cannot be read counts as none.
    match amounts.map(|amount| amount.unwrap_or_default() != 0) {
        [true, true] => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(FieldError::invalid(at("maxSurge"), &rolling["maxSurge"], detail));
        }
        [false, false] => {
            errors.push(FieldError::required(at("maxUnavailable"), "cannot be 0 when maxSurge is 0"));
        }
        _ => {}
    }
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = &new["status"];
    let counts = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    status::counts(&mut errors, status, &counts);
    status::collision_count(&mut errors, status, &old["status"]);
    errors
}
