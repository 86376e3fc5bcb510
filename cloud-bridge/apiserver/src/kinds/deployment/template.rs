//! The template of pods in a workload, and the selector that must find what is made of it: defaults and rules of a pod,
//! at another place.

use serde_json::Value;

use crate::kinds::pod::{SPEC, defaults, validate};
use crate::patch::merge_keys::{META, Type, object};
use crate::resource::object_meta;
use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{integer, items, object_mut, text};
use apimachinery::{names, selector};

/// How its lists merge.
pub(super) static KEYS: Type = Type { fields: &[META, object("spec", &SPEC)] };

/// What a pod that is made of it would get by itself is left to that pod.
pub(super) fn default(template: &mut Value) {
    object_mut(template, "metadata");
    object_mut(template, "spec");
    if let Some(spec) = template.get_mut("spec").filter(|spec| spec.is_object()) {
        defaults::pod_spec(spec);
    }
}

/// Whether a selector can be read at all (apimachinery's ValidateLabelSelector).
pub(super) fn selector(errors: &mut Errors, path: &str, selector: &Value) -> bool {
    let before = errors.len();
    object_meta::labels(errors, &format!("{path}.matchLabels"), selector, "matchLabels");
    for (i, requirement) in items(selector, "matchExpressions").iter().enumerate() {
        self::requirement(errors, &format!("{path}.matchExpressions[{i}]"), requirement);
    }
    errors.len() == before
}

fn requirement(errors: &mut Errors, path: &str, requirement: &Value) {
    let values = items(requirement, "values");
    let at = format!("{path}.values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(at.as_str(), "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(at.as_str(), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &other.into(), detail));
        }
    }
    let key = text(requirement, "key");
    invalid_text(errors, &format!("{path}.key"), key, names::qualified_name(key));
    for (i, value) in values.iter().filter_map(Value::as_str).enumerate() {
        invalid_text(errors, &format!("{at}[{i}]"), value, names::label_value(value));
    }
}

/// The rules of a template whose pods run forever (ValidatePodTemplateSpecForReplicaSet of pkg/apis/apps/validation). An
/// empty selector finds nothing.
pub(super) fn validate(errors: &mut Errors, path: &str, template: &Value, selector: &Value) {
    let (metadata, spec) = (&template["metadata"], &template["spec"]);
    if is_empty(selector) || !selector::selects(selector, &metadata["labels"]) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(format!("{path}.metadata.labels"), &metadata["labels"], detail));
    }
    object_meta::labels(errors, &format!("{path}.labels"), metadata, "labels");
    object_meta::annotations(errors, &format!("{path}.annotations"), metadata);
    let mut wrong = Errors::new();
    validate::spec::pod_spec(&mut wrong, spec);
    errors.extend(wrong.into_iter().map(|error| FieldError { field: format!("{path}.{}", error.field), ..error }));
    if !items(spec, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(format!("{path}.spec.ephemeralContainers"), detail));
    }
    let policy = text(spec, "restartPolicy");
    if policy != "Always" {
        let at = format!("{path}.spec.restartPolicy");
        errors.push(FieldError::not_supported(at, &policy.into(), &["Always"]));
    }
    if integer(spec, "activeDeadlineSeconds").is_some() {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(FieldError::forbidden(format!("{path}.spec.activeDeadlineSeconds"), detail));
    }
}

/// Whether a selector asks for nothing.
pub(super) fn is_empty(selector: &Value) -> bool {
    let none = |field: &str| match &selector[field] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    none("matchLabels") && none("matchExpressions")
}
