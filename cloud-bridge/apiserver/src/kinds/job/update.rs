//! Allowed changes of a Job, after pkg/apis/batch/validation and pkg/registry/batch/job/strategy.go of Kubernetes 1.36.

use sampan_json::SetField;
use serde_json::{Value, json};

use super::status::is_true;
use super::{selector, validate};
use apimachinery::field::{Errors, FieldError, immutable};
use apimachinery::json::{flag, integer, items_mut, object_mut, present, remove, text};

/// Validates a change.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate::job_with(new, selector::has_prefixed(old));
    let (spec, before) = (&new["spec"], &old["spec"]);
    completions(&mut errors, spec, before);
    let mut stays = |field: &str| immutable(&mut errors, &format!("spec.{field}"), &spec[field], &before[field]);
    stays("selector");
    template(&mut errors, new, old);
    let mut stays = |field: &str| immutable(&mut errors, &format!("spec.{field}"), &spec[field], &before[field]);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        stays(field);
    }
    errors
}

/// An indexed Job is scaled by both numbers at once.
fn completions(errors: &mut Errors, new: &Value, old: &Value) {
    const PATH: &str = "spec.completions";
    let (completions, before) = (&new["completions"], &old["completions"]);
    if text(new, "completionMode") != "Indexed" {
        immutable(errors, PATH, completions, before);
    } else if completions != before && !completions.is_null() && *completions != new["parallelism"] {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(PATH, completions, detail));
    }
}

/// Scheduling and resources of the template may change while the Job has no pods: before it starts or resumes.
fn template(errors: &mut Errors, new: &Value, old: &Value) {
    const PATH: &str = "spec.template";
    let (wanted, was) = (&new["spec"]["template"], &old["spec"]["template"]);
    let status = &old["status"];
    let idle = status["startTime"].is_null() || is_true(status, "Suspended");
    let none = integer(status, "active").unwrap_or_default() == 0;
    if !(flag(&old["spec"], "suspend") && idle && none) {
        immutable(errors, PATH, wanted, was);
        return;
    }
    let mut was = was.clone();
    take_directives(wanted, &mut was);
    for list in ["containers", "initContainers"] {
        take_resources(&wanted["spec"], &mut was, list);
    }
    immutable(errors, &format!("{PATH}.spec"), &wanted["spec"], &was["spec"]);
}

/// Copies the fields that may differ from the new template to the old one.
fn take_directives(new: &Value, old: &mut Value) {
    for (holder, fields) in [
        ("metadata", &["annotations", "labels"][..]),
        ("spec", &["nodeSelector", "tolerations", "schedulingGates"][..]),
    ] {
        object_mut(old, holder);
        if let Some(old) = old.get_mut(holder) {
            for field in fields {
                take(&new[holder], old, field);
            }
        }
    }
    let Some(spec) = old.get_mut("spec") else { return };
    let had = present(spec, "affinity").is_some();
    match present(&new["spec"], "affinity") {
        Some(affinity) => {
            if !had {
                spec.set("affinity", json!({}));
            }
            if let Some(old) = spec.get_mut("affinity") {
                take(affinity, old, "nodeAffinity");
            }
        }
        None if had => {
            let left = spec.get_mut("affinity").map(|affinity| {
                remove(affinity, "nodeAffinity");
                affinity.as_object().is_some_and(|rules| !rules.is_empty())
            });
            if left == Some(false) {
                remove(spec, "affinity");
            }
        }
        None => {}
    }
}

fn take_resources(new: &Value, old: &mut Value, list: &str) {
    let wanted = apimachinery::json::items(new, list);
    let Some(spec) = old.get_mut("spec") else { return };
    if apimachinery::json::items(spec, list).len() != wanted.len() {
        return;
    }
    for (old, new) in items_mut(spec, list).zip(wanted) {
        if text(old, "name") == text(new, "name") {
            take(new, old, "resources");
        }
    }
}

fn take(from: &Value, to: &mut Value, field: &str) {
    match present(from, field) {
        Some(value) => to.set(field, value.clone()),
        None => drop(remove(to, field)),
    }
}
