//! The template of pods in a workload: defaults and rules of a pod, at another place.

use sampan_json::SetField;
use serde_json::Value;

use super::selector;
use crate::kinds::pod::{SPEC, defaults, validate};
use crate::patch::merge_keys::{META, Type, object};
use crate::resource::object_meta;
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{integer, items, object_mut, text};

/// How its lists merge.
pub(crate) static KEYS: Type = Type { fields: &[META, object("spec", &SPEC)] };

/// Sets defaults of the template in a spec. Defaults that a pod gets at its creation are omitted.
pub(crate) fn default(spec: &mut Value) {
    object_mut(spec, "template");
    let Some(template) = spec.get_mut("template") else { return };
    object_mut(template, "metadata");
    object_mut(template, "spec");
    if let Some(spec) = template.get_mut("spec").filter(|spec| spec.is_object()) {
        defaults::pod_spec(spec);
    }
}

/// The rules of any template (ValidatePodTemplateSpec of pkg/apis/core/validation).
pub(crate) fn validate(errors: &mut Errors, path: &str, template: &Value) {
    let (metadata, spec) = (&template["metadata"], &template["spec"]);
    object_meta::labels(errors, &format!("{path}.labels"), metadata, "labels");
    object_meta::annotations(errors, &format!("{path}.annotations"), metadata);
    let mut wrong = Errors::new();
    validate::spec::pod_spec(&mut wrong, spec);
    errors.extend(wrong.into_iter().map(|error| FieldError { field: format!("{path}.{}", error.field), ..error }));
    if !items(spec, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(format!("{path}.spec.ephemeralContainers"), detail));
    }
}

/// Selector and template of a spec whose pods are a ReplicaSet's (ValidatePodTemplateSpecForReplicaSet of
/// pkg/apis/apps/validation).
pub(crate) fn of_replica_set(errors: &mut Errors, spec: &Value) {
    const PATH: &str = "spec.template";
    let (template, selector) = (&spec["template"], &spec["selector"]);
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    let readable = selector::selector(errors, "spec.selector", selector);
    // Kubernetes uses this word for both kinds.
    selector::not_empty(errors, selector, "deployment");
    if !readable {
        errors.push(FieldError::invalid("spec.selector", selector, "invalid label selector"));
        return;
    }
    if !selector::finds(selector, &template["metadata"]["labels"]) {
        not_selected(errors, PATH, &template["metadata"]);
    }
    validate(errors, PATH, template);
    runs_forever(errors, PATH, template, "ReplicaSet");
}

/// The refusal of a template whose pods are not found.
pub(crate) fn not_selected(errors: &mut Errors, path: &str, metadata: &Value) {
    let detail = "`selector` does not match template `labels`";
    errors.push(FieldError::invalid(format!("{path}.metadata.labels"), &metadata["labels"], detail));
}

/// Pods of the named kind run forever.
pub(crate) fn runs_forever(errors: &mut Errors, path: &str, template: &Value, kind: &str) {
    let spec = &template["spec"];
    let policy = text(spec, "restartPolicy");
    if policy != "Always" {
        let at = format!("{path}.spec.restartPolicy");
        errors.push(FieldError::not_supported(at, &policy.into(), &["Always"]));
    }
    if integer(spec, "activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(format!("{path}.spec.activeDeadlineSeconds"), &detail));
    }
}

/// Removes fields of features that are off by default from the template of a workload.
pub(crate) fn drop_disabled(workload: &mut Value) {
    if let Some(spec) = workload.at_mut(&["spec", "template", "spec"]) {
        defaults::drop_disabled(spec);
    }
}
