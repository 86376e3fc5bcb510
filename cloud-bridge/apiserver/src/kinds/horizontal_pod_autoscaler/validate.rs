//! Rules of HorizontalPodAutoscalers, after pkg/apis/autoscaling/validation and the strategy of
//! pkg/registry/autoscaling/horizontalpodautoscaler.

use serde_json::Value;

use super::behavior;
use super::metric::SOURCES;
use crate::kinds::pod::validate::resources::container_name;
use apimachinery::field::{Errors, FieldError, invalid_text, not_negative};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;
use apimachinery::quantity::Quantity;

const TARGET_TYPES: [&str; 3] = ["Utilization", "Value", "AverageValue"];

/// Which references to other objects pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Required,
    Optional,
    /// Unchanged fields.
    Unchecked,
}

/// Validates a new HorizontalPodAutoscaler.
pub(super) fn create(new: &Value) -> Vec<FieldError> {
    validate(new, None)
}

/// Validates a change: stored values may stay.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    validate(new, Some(old))
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    for field in ["currentReplicas", "desiredReplicas"] {
        not_negative(&mut errors, format!("status.{field}"), integer(&new["status"], field).unwrap_or_default());
    }
    errors
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &new["spec"];
    let least = i64::from(old.is_none_or(|old| integer(&old["spec"], "minReplicas") != Some(0)));
    let (min, max) = (integer(spec, "minReplicas"), integer(spec, "maxReplicas").unwrap_or_default());
    if let Some(min) = min.filter(|min| *min < least) {
        let detail = format!("must be greater than or equal to {least}");
        errors.push(FieldError::invalid("spec.minReplicas", &min.into(), &detail));
    }
    if max == 0 {
        errors.push(FieldError::required("spec.maxReplicas", "must be set and greater than 0"));
    } else if max < 0 {
        errors.push(FieldError::invalid("spec.maxReplicas", &max.into(), "must be greater than or equal to 1"));
    }
    if min.is_some_and(|min| max < min) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", &max.into(), detail));
    }
    let target = &spec["scaleTargetRef"];
    reference(&mut errors, "spec.scaleTargetRef", target, target_group(target, old));
    let metrics = items(spec, "metrics");
    let objects = old.map_or(Group::Optional, described_group);
    for (index, metric) in metrics.iter().enumerate() {
        validate_metric(&mut errors, &format!("spec.metrics[{index}]"), metric, objects);
    }
    if min == Some(0) && !metrics.iter().any(|metric| matches!(text(metric, "type"), "Object" | "External")) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", detail));
    }
    behavior::validate(&mut errors, "spec.behavior", &spec["behavior"]);
    errors
}

/// The check of the target: its kind was accepted before, or is of the core group.
fn target_group(target: &Value, old: Option<&Value>) -> Group {
    let old = old.map(|old| &old["spec"]["scaleTargetRef"]);
    let kind = |reference: &Value| (text(reference, "apiVersion").to_owned(), text(reference, "kind").to_owned());
    match old {
        Some(old) if kind(old) == kind(target) => Group::Unchecked,
        _ if text(target, "kind") == "ReplicationController" => Group::Optional,
        _ => Group::Required,
    }
}

/// The check of objects in metrics: none if one was invalid before.
fn described_group(old: &Value) -> Group {
    let mut objects = items(&old["spec"], "metrics").iter().filter(|metric| text(metric, "type") == "Object");
    let wrong = objects.any(|metric| {
        present(metric, "object")
            .is_some_and(|object| wrong_api_version(&object["describedObject"], Group::Optional).is_some())
    });
    if wrong { Group::Unchecked } else { Group::Optional }
}

fn reference(errors: &mut Errors, path: &str, reference: &Value, group: Group) {
    for field in ["kind", "name"] {
        required_segment(errors, &format!("{path}.{field}"), text(reference, field), "");
    }
    if let Some(why) = wrong_api_version(reference, group) {
        errors.push(FieldError::invalid(format!("{path}.apiVersion"), &text(reference, "apiVersion").into(), &why));
    }
}

/// ParseGroupVersion of apimachinery, and whether there is a group.
fn wrong_api_version(reference: &Value, group: Group) -> Option<String> {
    let version = text(reference, "apiVersion");
    if group == Group::Unchecked {
        return None;
    }
    match version.matches('/').count() {
        2.. => Some(format!("unexpected GroupVersion string: {version}")),
        slashes if group == Group::Required && (slashes == 0 || version.starts_with('/')) => {
            Some("apiVersion must specify API group".to_owned())
        }
        _ => None,
    }
}

fn required_segment(errors: &mut Errors, path: &str, value: &str, missing: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(path, missing));
    } else {
        invalid_text(errors, path, value, names::path_segment(value));
    }
}

fn validate_metric(errors: &mut Errors, path: &str, metric: &Value, objects: Group) {
    let kind = text(metric, "type");
    let own = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    let unknown = || {
        let known: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        FieldError::not_supported(format!("{path}.type"), &kind.into(), &known)
    };
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{path}.type"), "must specify a metric source type"));
    }
    if own.is_none() {
        errors.push(unknown());
    }
    const ORDER: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];
    let given: Vec<&str> = ORDER.into_iter().filter(|field| present(metric, field).is_some()).collect();
    if let Some(first) = given.first() {
        source(errors, &format!("{path}.{first}"), first, &metric[*first], objects);
    }
    match own {
        None => errors.push(unknown()),
        Some(own) if !given.contains(&own) => {
            let detail = "must populate information for the given metric source";
            errors.push(FieldError::required(format!("{path}.{own}"), detail));
        }
        Some(_) => {}
    }
    if given.len() != 1 {
        let others = given.iter().filter(|field| Some(**field) != own);
        errors.extend(others.map(|field| {
            FieldError::forbidden(format!("{path}.{field}"), "must populate the given metric source only")
        }));
    }
}

/// Validates a metric in the field of its type.
fn source(errors: &mut Errors, path: &str, field: &str, source: &Value, objects: Group) {
    let has = |field: &str| present(&source["target"], field).is_some();
    match field {
        "resource" | "containerResource" => {
            required(errors, path, "name", source, "must specify a resource name");
            if field == "containerResource" {
                container_source(errors, path, source);
            }
        }
        _ => {
            if field == "object" {
                reference(errors, &format!("{path}.describedObject"), &source["describedObject"], objects);
            }
            let name = text(&source["metric"], "name");
            required_segment(errors, &format!("{path}.metric.name"), name, "must specify a metric name");
        }
    }
    target(errors, &format!("{path}.target"), &source["target"]);
    let (value, average, utilization) = (has("value"), has("averageValue"), has("averageUtilization"));
    let (missing, why) = match field {
        "object" if !value && !average => ("averageValue", "must set either a target value or averageValue"),
        "external" if !value && !average => {
            ("averageValue", "must set either a target value for metric or a per-pod target")
        }
        "pods" if !average => ("averageValue", "must specify a positive target averageValue"),
        "resource" | "containerResource" if !utilization && !average => {
            ("averageUtilization", "must set either a target raw value or a target utilization")
        }
        _ => ("", ""),
    };
    if !missing.is_empty() {
        errors.push(FieldError::required(format!("{path}.target.{missing}"), why));
    }
    if field == "external" && value && average {
        let detail = "may not set both a target value for metric and a per-pod target";
        errors.push(FieldError::forbidden(format!("{path}.target.value"), detail));
    }
    if matches!(field, "resource" | "containerResource") && utilization && average {
        let detail = "may not set both a target raw value and a target utilization";
        errors.push(FieldError::forbidden(format!("{path}.target.averageValue"), detail));
    }
}

fn required(errors: &mut Errors, path: &str, field: &str, holder: &Value, why: &str) {
    if text(holder, field).is_empty() {
        errors.push(FieldError::required(format!("{path}.{field}"), why));
    }
}

fn container_source(errors: &mut Errors, path: &str, source: &Value) {
    let (name, container) = (text(source, "name"), text(source, "container"));
    if !name.is_empty() {
        container_name(errors, &format!("{path}.name"), name);
    }
    required(errors, path, "container", source, "must specify a container");
    if !container.is_empty() {
        invalid_text(errors, &format!("{path}.container"), container, names::dns_label(container));
    }
}

fn target(errors: &mut Errors, path: &str, target: &Value) {
    let kind = text(target, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{path}.type"), "must specify a metric target type"));
    }
    if !TARGET_TYPES.contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(format!("{path}.type"), &kind.into(), detail));
    }
    for field in ["value", "averageValue"] {
        if Quantity::from_value(&target[field]).is_some_and(|amount| amount.is_zero() || amount.is_negative()) {
            errors.push(FieldError::invalid(format!("{path}.{field}"), &target[field], "must be positive"));
        }
    }
    if let Some(percent) = integer(target, "averageUtilization").filter(|percent| *percent < 1) {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid(format!("{path}.averageUtilization"), &percent.into(), detail));
    }
}
