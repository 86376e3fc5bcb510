//! Rules of ResourceQuotas, after ValidateResourceQuota of pkg/apis/core/validation.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kinds::pod::validate::resources::{quantity, standard_name};
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{entries, items, present, text};
use apimachinery::quantity::Quantity;

/// Names without a domain that quotas know.
const QUOTA: &[&str] = &[
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Resources of pods.
const COMPUTE: &[&str] = &["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const OPPOSITES: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

/// Validates a new ResourceQuota.
pub(super) fn create(quota: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &quota["spec"];
    amounts(&mut errors, "spec", spec, "hard");
    scopes(&mut errors, spec);
    selector(&mut errors, spec);
    errors
}

/// Validates a change: the scopes cannot change.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = create(new);
    let set = |quota: &Value| -> BTreeSet<String> {
        items(&quota["spec"], "scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if set(new) != set(old) {
        errors.push(FieldError::invalid("spec.scopes", &new["spec"]["scopes"], "field is immutable"));
    }
    errors
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    for list in ["hard", "used"] {
        amounts(&mut errors, "status", &new["status"], list);
    }
    errors
}

fn amounts(errors: &mut Errors, path: &str, holder: &Value, list: &str) {
    for (name, value) in entries(holder, list) {
        let at = format!("{path}.{list}[{name}]");
        standard_name(errors, &at, name);
        if !name.contains('/') && !known(name) {
            errors.push(FieldError::invalid(
                at.as_str(),
                &name.as_str().into(),
                "must be a standard resource for quota",
            ));
        }
        if let Some(amount) = Quantity::from_value(value) {
            quantity(errors, &at, name, amount);
        }
    }
}

fn known(name: &str) -> bool {
    QUOTA.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// Whether a scope can restrict this resource.
fn fits(scope: &str, name: &str) -> bool {
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ if SCOPES.contains(&scope) => name == "pods" || COMPUTE.contains(&name),
        _ => true,
    }
}

fn unfit<'a>(spec: &'a Value, scope: &str) -> impl Iterator<Item = &'a String> {
    let scope = scope.to_owned();
    entries(spec, "hard").map(|(name, _)| name).filter(move |name| known(name) && !fits(&scope, name))
}

fn scopes(errors: &mut Errors, spec: &Value) {
    const PATH: &str = "spec.scopes";
    let all: Vec<&str> = items(spec, "scopes").iter().filter_map(Value::as_str).collect();
    let complain = |errors: &mut Errors, detail: &str| {
        errors.push(FieldError::invalid(PATH, &spec["scopes"], detail));
    };
    for scope in &all {
        if !SCOPES.contains(scope) {
            complain(errors, "unsupported scope");
        }
        unfit(spec, scope).for_each(|_| complain(errors, "unsupported scope applied to resource"));
    }
    if conflict(&all) {
        complain(errors, "conflicting scopes");
    }
}

fn conflict(scopes: &[&str]) -> bool {
    OPPOSITES.iter().any(|(one, other)| scopes.contains(one) && scopes.contains(other))
}

fn selector(errors: &mut Errors, spec: &Value) {
    const PATH: &str = "spec.scopeSelector.matchExpressions";
    let Some(selector) = present(spec, "scopeSelector") else { return };
    let all = items(selector, "matchExpressions");
    for one in all {
        let (scope, operator) = (text(one, "scopeName"), text(one, "operator"));
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(format!("{PATH}.scopeName"), &scope.into(), "unsupported scope"));
        }
        for _ in unfit(spec, scope) {
            errors.push(FieldError::invalid(PATH, selector, "unsupported scope applied to resource"));
        }
        if !matches!(scope, "PriorityClass" | "VolumeAttributesClass")
            && SCOPES.contains(&scope)
            && operator != "Exists"
        {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(format!("{PATH}.operator"), &operator.into(), detail));
        }
        values(errors, PATH, one, operator);
    }
    if conflict(&all.iter().map(|one| text(one, "scopeName")).collect::<Vec<_>>()) {
        errors.push(FieldError::invalid(PATH, &spec["scopes"], "conflicting scopes"));
    }
}

fn values(errors: &mut Errors, path: &str, one: &Value, operator: &str) {
    let none = items(one, "values").is_empty();
    match operator {
        "In" | "NotIn" if none => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.push(FieldError::required(format!("{path}.values"), detail));
        }
        "Exists" | "DoesNotExist" if !none => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.push(FieldError::invalid(format!("{path}.values"), &one["values"], detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &other.into(), detail));
        }
    }
}
