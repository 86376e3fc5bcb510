//! Rules of roles and bindings, after pkg/apis/rbac/validation of Kubernetes 1.36.

use serde_json::{Value, json};

use crate::auth::rbac::GROUP;
use crate::kinds::workload::selector::selector as readable;
use apimachinery::field::{Errors, FieldError, invalid_struct, invalid_text};
use apimachinery::json::{items, present, text};
use apimachinery::names;

pub(super) fn role(role: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    rules(&mut errors, role, true);
    errors
}

pub(super) fn cluster_role(role: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    rules(&mut errors, role, false);
    aggregation(&mut errors, role, false);
    errors
}

/// Wrong label values may stay in selectors that have some already.
pub(super) fn cluster_role_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let selectors = items(&old["aggregationRule"], "clusterRoleSelectors");
    let wrong = selectors.iter().any(|selector| !readable(&mut Errors::new(), "", selector));
    let mut errors = Errors::new();
    rules(&mut errors, new, false);
    aggregation(&mut errors, new, wrong);
    errors
}

pub(super) fn role_binding(new: &Value) -> Vec<FieldError> {
    binding(new, true)
}

pub(super) fn cluster_role_binding(new: &Value) -> Vec<FieldError> {
    binding(new, false)
}

pub(super) fn role_binding_update(new: &Value, old: &Value) -> Vec<FieldError> {
    changed(new, old, role_binding(new))
}

pub(super) fn cluster_role_binding_update(new: &Value, old: &Value) -> Vec<FieldError> {
    changed(new, old, cluster_role_binding(new))
}

/// The role of a binding cannot change, since the right to bind one role is not a right to bind another: delete and
/// create the binding.
fn changed(new: &Value, old: &Value, mut errors: Errors) -> Errors {
    let (new, old) = (&new["roleRef"], &old["roleRef"]);
    if new != old {
        let of = |field: &str| Value::from(text(new, field));
        let shown = format!(r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#, of("apiGroup"), of("kind"), of("name"));
        errors.push(invalid_struct("roleRef", &shown, "cannot change roleRef"));
    }
    errors
}

fn rules(errors: &mut Errors, role: &Value, namespaced: bool) {
    for (i, one) in items(role, "rules").iter().enumerate() {
        rule(errors, &format!("rules[{i}]"), one, namespaced);
    }
}

fn rule(errors: &mut Errors, path: &str, rule: &Value, namespaced: bool) {
    let none = |field: &str| items(rule, field).is_empty();
    if none("verbs") {
        errors.push(FieldError::required(format!("{path}.verbs"), "verbs must contain at least one value"));
    }
    if !none("nonResourceURLs") {
        let at = format!("{path}.nonResourceURLs");
        let urls = &rule["nonResourceURLs"];
        if namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.push(FieldError::invalid(at.as_str(), urls, detail));
        }
        if !(none("apiGroups") && none("resources") && none("resourceNames")) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(at, urls, detail));
        }
        return;
    }
    if none("apiGroups") {
        let detail = "resource rules must supply at least one api group";
        errors.push(FieldError::required(format!("{path}.apiGroups"), detail));
    }
    if none("resources") {
        let detail = "resource rules must supply at least one resource";
        errors.push(FieldError::required(format!("{path}.resources"), detail));
    }
}

fn aggregation(errors: &mut Errors, role: &Value, wrong_values: bool) {
    const PATH: &str = "aggregationRule.clusterRoleSelectors";
    let Some(rule) = present(role, "aggregationRule") else { return };
    let selectors = items(rule, "clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(PATH, detail));
    }
    for (i, selector) in selectors.iter().enumerate() {
        let path = format!("{PATH}[{i}]");
        let mut found = Errors::new();
        if readable(&mut found, &path, selector) {
            errors.append(&mut found);
            continue;
        }
        if wrong_values {
            found.retain(|error| !error.field.contains(".values["));
        }
        errors.append(&mut found);
        errors.push(FieldError::invalid(path, &Value::Null, "invalid label selector."));
    }
}

fn binding(binding: &Value, namespaced: bool) -> Errors {
    let mut errors = Errors::new();
    let role = &binding["roleRef"];
    group(&mut errors, "roleRef.apiGroup", text(role, "apiGroup"));
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = text(role, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("roleRef.kind", &kind.into(), kinds));
    }
    match text(role, "name") {
        "" => errors.push(FieldError::required("roleRef.name", "")),
        name => invalid_text(&mut errors, "roleRef.name", name, names::path_segment(name)),
    }
    for (i, one) in items(binding, "subjects").iter().enumerate() {
        subject(&mut errors, &format!("subjects[{i}]"), one, namespaced);
    }
    errors
}

fn group(errors: &mut Errors, path: &str, group: &str) {
    if group != GROUP {
        errors.push(FieldError::not_supported(path, &group.into(), &[GROUP]));
    }
}

fn subject(errors: &mut Errors, path: &str, subject: &Value, namespaced: bool) {
    let (name, api_group) = (text(subject, "name"), text(subject, "apiGroup"));
    let at = |field: &str| format!("{path}.{field}");
    if name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                invalid_text(errors, &at("name"), name, names::dns_subdomain(name));
            }
            if !api_group.is_empty() {
                errors.push(FieldError::not_supported(at("apiGroup"), &api_group.into(), &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(at("namespace"), ""));
            }
        }
        "User" | "Group" => group(errors, &at("apiGroup"), api_group),
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(at("kind"), &json!(other), &kinds));
        }
    }
}
