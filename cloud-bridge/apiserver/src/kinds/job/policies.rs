//! Rules of the policies for failure and success of a Job.

use std::collections::HashSet;

use serde_json::Value;

use super::indexes;
use apimachinery::field::{Errors, FieldError, FieldErrorKind, invalid_text, not_negative, too_many};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];
/// Maximum number of rules in a policy, and of conditions in a rule.
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const INDEXES_MAX: usize = 64 * 1024;

/// Validates the policies of a spec at a path.
pub(super) fn policies(errors: &mut Errors, path: &str, spec: &Value) {
    let failure = present(spec, "podFailurePolicy");
    if let Some(policy) = failure {
        let rules = format!("{path}.podFailurePolicy.rules");
        limited(errors, &rules, items(policy, "rules").len(), RULES_MAX);
        let pod = &spec["template"]["spec"];
        let containers = items(pod, "containers").iter().chain(items(pod, "initContainers"));
        let containers: HashSet<&str> = containers.map(|container| text(container, "name")).collect();
        for (i, rule) in items(policy, "rules").iter().enumerate() {
            failure_rule(errors, &format!("{rules}[{i}]"), rule, spec, &containers);
        }
    }
    if let Some(policy) = present(spec, "successPolicy") {
        let path = format!("{path}.successPolicy");
        if text(spec, "completionMode") == "Indexed" {
            success(errors, &format!("{path}.rules"), policy, spec);
        } else {
            errors.push(FieldError::invalid(path, policy, "requires indexed completion mode"));
        }
    }
    if let Some(policy) = present(spec, "podReplacementPolicy").and_then(Value::as_str) {
        let known: &[&str] = if failure.is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        if !known.contains(&policy) {
            let at = format!("{path}.podReplacementPolicy");
            errors.push(FieldError::not_supported(at, &policy.into(), known));
        }
    }
}

/// `Invalid value: DETAIL`, if the value would not help.
pub(super) fn without_value(errors: &mut Errors, path: &str, detail: &str) {
    let message = format!("Invalid value: {detail}");
    errors.push(FieldError { field: path.to_owned(), kind: FieldErrorKind::Invalid, message });
}

fn limited(errors: &mut Errors, path: &str, actual: usize, max: usize) {
    if actual > max {
        errors.push(too_many(path, actual, max));
    }
}

/// A text that must be one of a list, which is also shown if it is missing.
fn one_of(errors: &mut Errors, path: String, value: &str, known: &[&str]) {
    if value.is_empty() {
        let all: Vec<String> = known.iter().map(|one| format!("{one:?}")).collect();
        errors.push(FieldError::required(path, &format!("valid values: [{}]", all.join(" "))));
    } else if !known.contains(&value) {
        errors.push(FieldError::not_supported(path, &value.into(), known));
    }
}

fn failure_rule(errors: &mut Errors, path: &str, rule: &Value, spec: &Value, containers: &HashSet<&str>) {
    let action = text(rule, "action");
    if action == "FailIndex" && integer(spec, "backoffLimitPerIndex").is_none() {
        let detail = "requires the backoffLimitPerIndex to be set";
        errors.push(FieldError::invalid(format!("{path}.action"), &action.into(), detail));
    }
    one_of(errors, format!("{path}.action"), action, ACTIONS);
    let codes = present(rule, "onExitCodes");
    if let Some(codes) = codes {
        exit_codes(errors, &format!("{path}.onExitCodes"), codes, containers);
    }
    let conditions = items(rule, "onPodConditions");
    limited(errors, &format!("{path}.onPodConditions"), conditions.len(), RULES_MAX);
    for (i, pattern) in conditions.iter().enumerate() {
        let path = format!("{path}.onPodConditions[{i}]");
        let kind = text(pattern, "type");
        invalid_text(errors, &format!("{path}.type"), kind, names::qualified_name(kind));
        one_of(errors, format!("{path}.status"), text(pattern, "status"), STATUSES);
    }
    match (codes, conditions.is_empty()) {
        (Some(_), false) => {
            without_value(errors, path, "specifying both OnExitCodes and OnPodConditions is not supported");
        }
        (None, true) => without_value(errors, path, "specifying one of OnExitCodes and OnPodConditions is required"),
        _ => {}
    }
}

fn exit_codes(errors: &mut Errors, path: &str, codes: &Value, containers: &HashSet<&str>) {
    let operator = text(codes, "operator");
    one_of(errors, format!("{path}.operator"), operator, OPERATORS);
    if let Some(name) = present(codes, "containerName").and_then(Value::as_str)
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(format!("{path}.containerName"), &name.into(), detail));
    }
    let at = format!("{path}.values");
    let values: Vec<i64> = items(codes, "values").iter().filter_map(Value::as_i64).collect();
    let shown = Value::from(values.clone());
    if values.is_empty() {
        errors.push(FieldError::invalid(at.as_str(), &Value::Null, "at least one value is required"));
    }
    limited(errors, &at, values.len(), EXIT_CODES_MAX);
    let mut seen = HashSet::new();
    for (i, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            let detail = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(format!("{at}[{i}]"), &0.into(), detail));
        }
        if !seen.insert(value) {
            errors.push(FieldError::duplicate(format!("{at}[{i}]"), &(*value).into()));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(at, &shown, "must be ordered"));
    }
}

fn success(errors: &mut Errors, path: &str, policy: &Value, spec: &Value) {
    let rules = items(policy, "rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(path, detail));
    }
    limited(errors, path, rules.len(), RULES_MAX);
    let completions = integer(spec, "completions").unwrap_or_default();
    for (i, rule) in rules.iter().enumerate() {
        success_rule(errors, &format!("{path}[{i}]"), rule, completions);
    }
}

fn success_rule(errors: &mut Errors, path: &str, rule: &Value, completions: i64) {
    let (count, listed) = (integer(rule, "succeededCount"), present(rule, "succeededIndexes").and_then(Value::as_str));
    if count.is_none() && listed.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let mut total = 0;
    if let Some(listed) = listed {
        let at = format!("{path}.succeededIndexes");
        if listed.len() > INDEXES_MAX {
            errors.push(FieldError::too_long(at.as_str(), INDEXES_MAX));
        }
        match indexes::count(listed, completions) {
            Ok(count) => total = count,
            Err(why) => {
                let detail = format!("error parsing succeededIndexes: {why}");
                errors.push(FieldError::invalid(at, &listed.into(), &detail));
            }
        }
    }
    let Some(count) = count else { return };
    let at = format!("{path}.succeededCount");
    not_negative(errors, at.clone(), count);
    let mut most = |max: i64, what: &str| {
        if count > max {
            let detail = format!("must be less than or equal to {max} ({what})");
            errors.push(FieldError::invalid(at.as_str(), &count.into(), &detail));
        }
    };
    most(completions, "the number of specified completions");
    if listed.is_some() {
        most(total, "the number of indexes in the specified succeededIndexes field");
    }
}
