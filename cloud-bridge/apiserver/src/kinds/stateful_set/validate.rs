//! Rules of StatefulSets, after pkg/apis/apps/validation of Kubernetes 1.36.

use serde_json::{Value, json};

use super::claims;
use crate::kinds::workload::{selector, status, template};
use apimachinery::field::{Errors, FieldError, FieldErrorKind, invalid_struct, invalid_text, not_negative};
use apimachinery::json::{integer, present, remove, text};
use apimachinery::names;

/// Fields of the spec that may change.
const CHANGEABLE: &[&str] = &[
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

/// Validates a new StatefulSet.
pub(super) fn create(set: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &set["spec"];
    scaling(&mut errors, spec);
    claims::validate(&mut errors, spec);
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        invalid_text(&mut errors, "spec.serviceName", service, names::dns_label(service));
    }
    pods(&mut errors, spec, true);
    errors
}

/// Validates a change of one. What cannot change and was accepted once is not judged again.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (&new["spec"], &old["spec"]);
    let mut before = Errors::new();
    scaling(&mut before, old);
    pods(&mut before, old, true);
    let mut errors = Errors::new();
    scaling(&mut errors, new);
    pods(&mut errors, new, before.is_empty());
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        for field in CHANGEABLE {
            remove(&mut spec, field);
        }
        spec
    };
    if fixed(new) != fixed(old) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", detail));
    }
    errors
}

/// Checks the order and the number of pods.
fn scaling(errors: &mut Errors, spec: &Value) {
    let policy = text(spec, "podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", &policy.into(), detail));
    }
    strategy(errors, &spec["updateStrategy"]);
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for field in ["whenDeleted", "whenScaled"] {
        let policy = text(retention, field);
        if !["Retain", "Delete"].contains(&policy) {
            let at = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
            errors.push(FieldError::not_supported(at, &policy.into(), &["Retain", "Delete"]));
        }
    }
    for field in ["replicas", "minReadySeconds"] {
        not_negative(errors, format!("spec.{field}"), integer(spec, field).unwrap_or_default());
    }
    not_negative(errors, "spec.ordinals.start".into(), integer(&spec["ordinals"], "start").unwrap_or_default());
}

fn strategy(errors: &mut Errors, strategy: &Value) {
    const PATH: &str = "spec.updateStrategy";
    let rolling = present(strategy, "rollingUpdate");
    let partition = rolling.and_then(|rolling| integer(rolling, "partition")).unwrap_or_default();
    let shown = rolling.map_or(Value::Null, |_| json!({"Partition": partition, "MaxUnavailable": null}));
    match text(strategy, "type") {
        "RollingUpdate" => not_negative(errors, format!("{PATH}.rollingUpdate.partition"), partition),
        "OnDelete" if rolling.is_some() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            let shown = format!("{{\"Partition\":{partition},\"MaxUnavailable\":null}}");
            errors.push(invalid_struct(format!("{PATH}.rollingUpdate"), &shown, detail));
        }
        "OnDelete" => {}
        other => {
            let shown = format!("{{\"Type\":{other:?},\"RollingUpdate\":{shown}}}");
            errors.push(invalid_struct(PATH, &shown, "must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
}

/// Selector and template of the pods.
fn pods(errors: &mut Errors, spec: &Value, judge_template: bool) {
    const TEMPLATE: &str = "spec.template";
    let (selector, template) = (&spec["selector"], &spec["template"]);
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    let readable = selector::selector(errors, "spec.selector", selector);
    selector::not_empty(errors, selector, "statefulset");
    if readable {
        if !selector::finds(selector, &template["metadata"]["labels"]) {
            template::not_selected(errors, TEMPLATE, &template["metadata"]);
        }
        if judge_template {
            template::validate(errors, TEMPLATE, &claims::with_volumes(spec));
        }
    } else {
        let message = format!("Invalid value: {selector}");
        errors.push(FieldError { field: "spec.selector".into(), kind: FieldErrorKind::Invalid, message });
    }
    template::runs_forever(errors, TEMPLATE, template, "StatefulSet");
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = &new["status"];
    let counts = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    status::counts(&mut errors, status, &counts);
    let parts = [
        ("readyReplicas", "status.replicas"),
        ("currentReplicas", "status.replicas"),
        ("updatedReplicas", "status.replicas"),
        ("availableReplicas", "status.replicas"),
        ("availableReplicas", "status.readyReplicas"),
    ];
    status::parts(&mut errors, status, &parts);
    status::collision_count(&mut errors, status, &old["status"]);
    errors
}
