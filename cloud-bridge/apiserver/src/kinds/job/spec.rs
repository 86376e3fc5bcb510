//! Rules of the spec of a Job, also of one in a CronJob (validateJobSpec of pkg/apis/batch/validation).

use serde_json::Value;

use super::policies;
use crate::kinds::workload::template;
use apimachinery::field::{Errors, FieldError, not_negative};
use apimachinery::json::{integer, present, text};
use apimachinery::names;

/// How many pods of an indexed Job may run, and how many of its indexes may fail.
const INDEXED_MAX: i64 = 100_000;
/// Above this number of completions, stricter limits hold.
const COMPLETIONS_SOFT_LIMIT: i64 = 100_000;
const HIGH_COMPLETIONS_MAX: i64 = 10_000;
const MANAGED_BY_MAX: usize = 63;

/// Validates a spec at a path, but for its selector.
pub(crate) fn spec(errors: &mut Errors, path: &str, spec: &Value) {
    let at = |field: &str| format!("{path}.{field}");
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(errors, at(field), integer(spec, field).unwrap_or_default());
    }
    let each = integer(spec, "backoffLimitPerIndex");
    if integer(spec, "maxFailedIndexes").is_some() && each.is_none() {
        errors.push(FieldError::required(at("backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
    }
    if let Some(manager) = present(spec, "managedBy").and_then(Value::as_str) {
        managed_by(errors, &at("managedBy"), manager);
    }
    let mode = text(spec, "completionMode");
    match mode {
        "Indexed" => indexed(errors, path, spec),
        "NonIndexed" => {}
        _ if present(spec, "completionMode").is_none() => {}
        other => {
            let known = ["NonIndexed", "Indexed"];
            errors.push(FieldError::not_supported(at("completionMode"), &other.into(), &known));
        }
    }
    if mode == "NonIndexed" || present(spec, "completionMode").is_none() {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(number) = integer(spec, field) {
                errors.push(FieldError::invalid(at(field), &number.into(), "requires indexed completion mode"));
            }
        }
    }
    policies::policies(errors, path, spec);
    template::validate(errors, &at("template"), &spec["template"]);
    restart_policy(errors, &at("template.spec.restartPolicy"), spec);
}

/// Validates the limits of an Indexed Job.
fn indexed(errors: &mut Errors, path: &str, spec: &Value) {
    let at = |field: &str| format!("{path}.{field}");
    let number = |field: &str| integer(spec, field);
    let (completions, failed) = (number("completions"), number("maxFailedIndexes"));
    let mut most = |field: &str, max: i64, detail: &str| {
        if let Some(given) = number(field).filter(|given| *given > max) {
            let detail = format!("must be less than or equal to {detail}");
            errors.push(FieldError::invalid(at(field), &given.into(), &detail));
        }
    };
    most("parallelism", INDEXED_MAX, &format!("{INDEXED_MAX} when completion mode is Indexed"));
    if let Some(completions) = completions {
        most("maxFailedIndexes", completions, "completions");
    }
    most("maxFailedIndexes", INDEXED_MAX, &INDEXED_MAX.to_string());
    let many = completions.is_some_and(|completions| completions > COMPLETIONS_SOFT_LIMIT);
    if many && number("backoffLimitPerIndex").is_some() {
        let detail = format!(
            "{HIGH_COMPLETIONS_MAX} when completions are above {COMPLETIONS_SOFT_LIMIT} and used with backoff limit per index"
        );
        most("parallelism", HIGH_COMPLETIONS_MAX, &detail);
        most("maxFailedIndexes", HIGH_COMPLETIONS_MAX, &detail);
        if failed.is_none() {
            let detail = format!("must be specified when completions is above {COMPLETIONS_SOFT_LIMIT}");
            errors.push(FieldError::required(at("maxFailedIndexes"), &detail));
        }
    }
    if completions.is_none() {
        errors.push(FieldError::required(at("completions"), "when completion mode is Indexed"));
    }
}

/// Checks the name of the controller of the Job (IsDomainPrefixedPath of apimachinery's util/validation).
fn managed_by(errors: &mut Errors, path: &str, manager: &str) {
    const OTHERS: &str = "/-._~%!$&'()*+,;=:";
    let allowed = |rest: &str| rest.chars().all(|c| c.is_ascii_alphanumeric() || OTHERS.contains(c));
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.push(FieldError::required(path, "")),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            apimachinery::field::invalid_text(errors, path, host, names::dns_subdomain(host));
            if !allowed(rest) {
                let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid(path, &rest.into(), detail));
            }
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, &manager.into(), detail));
        }
    }
    if manager.len() > MANAGED_BY_MAX {
        errors.push(FieldError::too_long(path, MANAGED_BY_MAX));
    }
}

/// A pod that is done is not started again.
fn restart_policy(errors: &mut Errors, path: &str, spec: &Value) {
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    match policy {
        "" | "Always" => errors.push(FieldError::required(path, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if present(spec, "podFailurePolicy").is_some() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(path, &policy.into(), detail));
        }
        "OnFailure" | "Never" => {}
        other => errors.push(FieldError::not_supported(path, &other.into(), &["OnFailure", "Never"])),
    }
}

/// Warnings about a spec at a path.
pub(crate) fn warnings(path: &str, spec: &Value) -> Vec<String> {
    let number = |field: &str| integer(spec, field).unwrap_or_default();
    let many = number("completions") > COMPLETIONS_SOFT_LIMIT && number("parallelism") > HIGH_COMPLETIONS_MAX;
    if text(spec, "completionMode") != "Indexed" || !many {
        return Vec::new();
    }
    vec![format!(
        "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
         Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
    )]
}
