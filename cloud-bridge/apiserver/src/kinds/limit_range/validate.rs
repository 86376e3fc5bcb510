//! Rules of LimitRanges, after ValidateLimitRange of pkg/apis/core/validation.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kinds::pod::validate::resources::{container_name, standard_name};
use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{entries, items, text};
use apimachinery::names;
use apimachinery::quantity::Quantity;

/// Validates a LimitRange.
pub(super) fn range(range: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let mut types = BTreeSet::new();
    for (i, limit) in items(&range["spec"], "limits").iter().enumerate() {
        let path = format!("spec.limits[{i}]");
        let kind = text(limit, "type");
        type_name(&mut errors, &format!("{path}.type"), kind);
        if !types.insert(kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), &kind.into()));
        }
        one(&mut errors, &path, kind, limit);
    }
    errors
}

fn type_name(errors: &mut Errors, path: &str, kind: &str) {
    let wrong = names::qualified_name(kind);
    if wrong.is_empty() && !kind.contains('/') && !["Container", "PersistentVolumeClaim", "Pod"].contains(&kind) {
        let detail = "must be a standard limit type or fully qualified";
        errors.push(FieldError::invalid(path, &kind.into(), detail));
    }
    invalid_text(errors, path, kind, wrong);
}

fn one(errors: &mut Errors, path: &str, kind: &str, limit: &Value) {
    let mut names = BTreeSet::new();
    let mut resources = |errors: &mut Errors, list: &str| {
        for (name, _) in entries(limit, list) {
            let at = format!("{path}.{list}[{name}]");
            if matches!(kind, "Pod" | "Container") {
                container_name(errors, &at, name);
            } else {
                standard_name(errors, &at, name);
            }
            names.insert(name.as_str());
        }
    };
    resources(errors, "max");
    resources(errors, "min");
    for list in ["default", "defaultRequest"] {
        if kind != "Pod" {
            resources(errors, list);
        } else if entries(limit, list).next().is_some() {
            let detail = "may not be specified when `type` is 'Pod'";
            errors.push(FieldError::forbidden(format!("{path}.{list}"), detail));
        }
    }
    let bounded = ["min", "max"].iter().any(|list| limit[*list].get("storage").is_some());
    if kind == "PersistentVolumeClaim" && !bounded {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(format!("{path}.limits"), detail));
    }
    resources(errors, "maxLimitRequestRatio");
    for name in names {
        amounts(errors, path, name, limit, kind != "Pod");
    }
}

/// The amounts of one resource fit together.
fn amounts(errors: &mut Errors, path: &str, name: &str, limit: &Value, defaults: bool) {
    let get = |list: &str| Quantity::from_value(&limit[list][name]);
    let (min, max, ratio) = (get("min"), get("max"), get("maxLimitRequestRatio"));
    let (default, request) = if defaults { (get("default"), get("defaultRequest")) } else { (None, None) };
    let mut complain = |list: &str, shown: Quantity, detail: String| {
        let at = format!("{path}.{list}[{name}]");
        errors.push(FieldError::invalid(at, &shown.to_string().into(), &detail));
    };
    // Of each pair the first may not be the greater one: list and amount to complain of, and how.
    let pairs = [
        (min, max, "min", min, ("min", "max")),
        (min, request, "defaultRequest", request, ("min", "default request")),
        (request, max, "defaultRequest", request, ("default request", "max")),
        (request, default, "defaultRequest", request, ("default request", "default limit")),
        (min, default, "default", min, ("min", "default")),
        (default, max, "default", max, ("default", "max")),
    ];
    for (less, more, list, shown, (lesser, greater)) in pairs {
        if let (Some(less), Some(more), Some(shown)) = (less, more, shown)
            && less > more
        {
            complain(list, shown, format!("{lesser} value {less} is greater than {greater} value {more}"));
        }
    }
    if let Some(ratio) = ratio {
        if ratio < Quantity::from_units(1) {
            complain("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (min, max) {
            let most = ratio_of(max, min);
            if ratio_of(ratio, Quantity::from_units(1)) > most {
                complain("maxLimitRequestRatio", ratio, format!("ratio {ratio} is greater than max/min = {most:.6}"));
            }
        }
    }
    let overcommit = !name.contains('/') && !name.starts_with("hugepages-");
    if let (Some(default), Some(request)) = (default, request)
        && !overcommit
        && default != request
    {
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        complain("defaultRequest", request, detail);
    }
}

/// How many times as much one amount is as another.
fn ratio_of(one: Quantity, other: Quantity) -> f64 {
    const EXACT: i64 = i64::MAX / 1000;
    if one.units() < EXACT && other.units() < EXACT {
        one.millis() as f64 / other.millis() as f64
    } else {
        one.units() as f64 / other.units() as f64
    }
}
