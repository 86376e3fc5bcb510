//! Validation of the status of a Job, on which clients rely, whatever controller acts on the Job (validateJobStatus of
//! pkg/apis/batch/validation with the options of pkg/registry/batch/job/strategy.go). Most rules check changes only: a
//! change of the spec may have made the status outdated.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::indexes;
use super::policies::without_value;
use crate::kinds::workload::status;
use apimachinery::field::{Errors, FieldError, invalid_struct};
use apimachinery::json::{flag, integer, items, present, text};

const CONDITIONS: &str = "status.conditions";

/// Whether a condition holds.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    has(status, kind, "True")
}

fn has(status: &Value, kind: &str, value: &str) -> bool {
    items(status, "conditions").iter().any(|c| text(c, "type") == kind && text(c, "status") == value)
}

fn is_finished(status: &Value) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

/// Validates a change of the status.
pub(super) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (spec, before, status) = (&new["spec"], &old["status"], &new["status"]);
    status::counts(&mut errors, status, &["active", "succeeded", "failed", "ready", "terminating"]);
    uncounted(&mut errors, &status["uncountedTerminatedPods"]);
    conditions(&mut errors, spec, status, before);
    times(&mut errors, spec, status, before);
    finished(&mut errors, status, before);
    indexes(&mut errors, spec, status, before);
    counters(&mut errors, spec, status, before);
    errors
}

/// Pods that have ended and are in no counter yet.
fn uncounted(errors: &mut Errors, pods: &Value) {
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        for (i, uid) in items(pods, list).iter().filter_map(Value::as_str).enumerate() {
            let at = format!("status.uncountedTerminatedPods.{list}[{i}]");
            if uid.is_empty() {
                errors.push(FieldError::invalid(at, &"".into(), "must not be empty"));
            } else if !seen.insert(uid) {
                errors.push(FieldError::duplicate(at, &uid.into()));
            }
        }
    }
}

/// Which conditions go together, and which stay.
fn conditions(errors: &mut Errors, spec: &Value, status: &Value, before: &Value) {
    let now = |kind: &str| is_true(status, kind);
    let was = |kind: &str| is_true(before, kind);
    let changed = |kind: &str| now(kind) != was(kind);
    let mut refuse = |wrong: bool, detail: &str| {
        if wrong {
            without_value(errors, CONDITIONS, detail);
        }
    };
    let (complete, failed, met) = (now("Complete"), now("Failed"), now("SuccessCriteriaMet"));
    let target = now("FailureTarget");
    refuse(
        (changed("Complete") || changed("Failed")) && complete && failed,
        "cannot set Complete=True and Failed=true conditions",
    );
    refuse(
        (changed("Complete") || changed("FailureTarget")) && complete && target,
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    refuse(
        (changed("Failed") || status["failedIndexes"] != before["failedIndexes"]) && failed && !target,
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    refuse(
        (changed("Complete") || changed("SuccessCriteriaMet")) && complete && !met,
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    refuse(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    refuse(met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    refuse(
        present(spec, "successPolicy").is_some() && complete && !met,
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    );
    for kind in ["Failed", "Complete", "FailureTarget"] {
        refuse(was(kind) && !now(kind), &format!("cannot disable the terminal {kind}=True condition"));
    }
    let met_before = was("SuccessCriteriaMet");
    refuse(met_before && !met, "cannot disable the SuccessCriteriaMet=True condition");
    refuse(
        was("Complete") && !met_before && met,
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
    );
}

fn times(errors: &mut Errors, spec: &Value, status: &Value, before: &Value) {
    const COMPLETION: &str = "status.completionTime";
    const START: &str = "status.startTime";
    let (started, ended) = (&status["startTime"], &status["completionTime"]);
    let (start_changed, end_changed) = (*started != before["startTime"], *ended != before["completionTime"]);
    let complete = is_true(status, "Complete");
    if complete != is_true(before, "Complete") || end_changed {
        if !ended.is_null() && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.push(FieldError::invalid(COMPLETION, ended, detail));
        } else if ended.is_null() && complete {
            errors.push(FieldError::required(COMPLETION, "completionTime is required for Complete jobs"));
        }
    }
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    if (start_changed || end_changed)
        && let (Some(start), Some(end)) = (time(started), time(ended))
        && end < start
    {
        errors.push(FieldError::invalid(COMPLETION, ended, "must be equal to or after `startTime`"));
    }
    let nothing_to_do = flag(spec, "suspend") && integer(spec, "completions") == Some(0);
    let finished = is_finished(status);
    if (finished != is_finished(before) || start_changed) && !nothing_to_do && started.is_null() && finished {
        errors.push(FieldError::required(START, "startTime is required for finished job"));
    }
    if end_changed && !ended.is_null() && !before["completionTime"].is_null() {
        errors.push(FieldError::invalid(COMPLETION, ended, "field is immutable"));
    }
    let resuming = has(before, "Suspended", "True") && has(status, "Suspended", "False");
    if start_changed && !resuming && !before["startTime"].is_null() && !flag(spec, "suspend") {
        errors.push(FieldError::invalid(START, started, "field is immutable for unsuspended job once set"));
    }
}

/// A finished Job has no pods any more.
fn finished(errors: &mut Errors, status: &Value, before: &Value) {
    let finished = is_finished(status);
    let ended = finished != is_finished(before);
    for field in ["active", "terminating"] {
        let count = integer(status, field).unwrap_or_default();
        if finished && (ended || status[field] != before[field]) && count > 0 {
            let detail = format!("{field}>0 is invalid for finished job");
            errors.push(FieldError::invalid(format!("status.{field}"), &count.into(), &detail));
        }
    }
    let (pods, were) = (&status["uncountedTerminatedPods"], &before["uncountedTerminatedPods"]);
    let left = ["succeeded", "failed"].iter().any(|list| !items(pods, list).is_empty());
    if finished && (ended || pods != were) && left {
        let shown = json!({"Succeeded": pods["succeeded"], "Failed": pods["failed"]});
        let shown = format!("{{\"Succeeded\":{},\"Failed\":{}}}", shown["Succeeded"], shown["Failed"]);
        errors.push(invalid_struct("status.uncountedTerminatedPods", &shown, "must be empty for finished job"));
    }
}

fn indexes(errors: &mut Errors, spec: &Value, status: &Value, before: &Value) {
    const COMPLETED: &str = "status.completedIndexes";
    const FAILED: &str = "status.failedIndexes";
    let completed = text(status, "completedIndexes");
    let failed = present(status, "failedIndexes").and_then(Value::as_str);
    let completed_changed = completed != text(before, "completedIndexes");
    let failed_changed = status["failedIndexes"] != before["failedIndexes"];
    let completions = integer(spec, "completions");
    let each = integer(spec, "backoffLimitPerIndex").is_some();
    let mut read = |path: &str, name: &str, listed: &str| {
        if let Some(Err(why)) = completions.map(|completions| indexes::count(listed, completions)) {
            errors.push(FieldError::invalid(path, &listed.into(), &format!("error parsing {name}: {why}")));
        }
    };
    if completed_changed {
        read(COMPLETED, "completedIndexes", completed);
    }
    if let Some(failed) = failed.filter(|_| failed_changed && each) {
        read(FAILED, "failedIndexes", failed);
    }
    if completed_changed && !completed.is_empty() && text(spec, "completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(FieldError::invalid(COMPLETED, &completed.into(), detail));
    }
    let Some(failed) = failed else { return };
    if failed_changed && !each {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(FieldError::invalid(FAILED, &failed.into(), detail));
    }
    if (failed_changed || completed_changed)
        && let Some(index) = completions.and_then(|completions| indexes::overlap(completed, failed, completions))
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(FieldError::invalid(FAILED, &failed.into(), &detail));
    }
}

/// Counters only grow, but for an indexed Job that is scaled down.
fn counters(errors: &mut Errors, spec: &Value, status: &Value, before: &Value) {
    let number = |holder: &Value, field: &str| integer(holder, field).unwrap_or_default();
    let ready_changed = status["ready"] != before["ready"] || status["active"] != before["active"];
    let ready = number(status, "ready");
    if ready_changed && ready > number(status, "active") {
        errors.push(FieldError::invalid("status.ready", &ready.into(), "cannot set more ready pods than active"));
    }
    let shrinks = text(spec, "completionMode") == "Indexed" && spec["completions"] == spec["parallelism"];
    for (field, judged) in [("failed", true), ("succeeded", !shrinks)] {
        let count = number(status, field);
        if judged && count < number(before, field) {
            let detail = format!("cannot decrease the {field} counter");
            errors.push(FieldError::invalid(format!("status.{field}"), &count.into(), &detail));
        }
    }
}
