//! Rules of CronJobs, after pkg/apis/batch/validation of Kubernetes 1.36.

use serde_json::Value;

use crate::kinds::job;
use apimachinery::cron::{Schedule, zone};
use apimachinery::field::{Errors, FieldError, not_negative, one_of};
use apimachinery::json::{integer, present, text};

/// Jobs are called after it and a number of ten digits.
const NAME_MAX: usize = 63 - 11;

/// Validates a new CronJob.
pub(super) fn create(cron: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec(&mut errors, &cron["spec"], None);
    let name = text(&cron["metadata"], "name");
    if name.len() > NAME_MAX {
        let detail = format!("must be no more than {NAME_MAX} characters");
        errors.push(FieldError::invalid("metadata.name", &name.into(), &detail));
    }
    errors
}

/// Validates a change of one.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec(&mut errors, &new["spec"], Some(&old["spec"]));
    errors
}

fn spec(errors: &mut Errors, spec: &Value, old: Option<&Value>) {
    schedule(errors, spec, old);
    let number = |field: &str| integer(spec, field).unwrap_or_default();
    not_negative(errors, "spec.startingDeadlineSeconds".into(), number("startingDeadlineSeconds"));
    // An accepted zone may no longer exist.
    if old.is_none_or(|old| old["timeZone"] != spec["timeZone"])
        && let Some(name) = present(spec, "timeZone").and_then(Value::as_str)
    {
        time_zone(errors, name);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    one_of(errors, "spec.concurrencyPolicy".into(), text(spec, "concurrencyPolicy"), &policies);
    job_template(errors, &spec["jobTemplate"]["spec"]);
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(errors, format!("spec.{field}"), number(field));
    }
}

fn schedule(errors: &mut Errors, spec: &Value, old: Option<&Value>) {
    const PATH: &str = "spec.schedule";
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(PATH, ""));
        return;
    }
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(PATH, &schedule.into(), detail));
    if let Err(why) = Schedule::parse(schedule) {
        refuse(&why);
    }
    // Once they were allowed.
    let had = old.is_some_and(|old| text(old, "schedule").contains("TZ"));
    match (schedule.contains("TZ"), had) {
        (true, true) if present(spec, "timeZone").is_some() => {
            refuse("cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
        (true, false) => refuse("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        _ => {}
    }
}

fn time_zone(errors: &mut Errors, name: &str) {
    let mut refuse = |detail: &str| errors.push(FieldError::invalid("spec.timeZone", &name.into(), detail));
    if name.is_empty() {
        refuse("timeZone must be nil or non-empty string");
        return;
    }
    let part = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
        ![".", ".."].contains(&part)
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.chars().all(known)
    };
    if !name.split('/').all(part) {
        refuse(&format!("unknown time zone {name}"));
        return;
    }
    let local = name.eq_ignore_ascii_case("Local");
    if local {
        refuse("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    // Go knows the machine's own by this name.
    if name != "Local"
        && let Err(why) = zone::load(name)
    {
        refuse(&why);
    }
}

/// Its Jobs get a selector each.
fn job_template(errors: &mut Errors, spec: &Value) {
    const PATH: &str = "spec.jobTemplate.spec";
    job::spec::spec(errors, PATH, spec);
    if let Some(selector) = present(spec, "selector") {
        let detail = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(format!("{PATH}.selector"), selector, detail));
    }
    if spec["manualSelector"] == true {
        let at = format!("{PATH}.manualSelector");
        errors.push(FieldError::not_supported(at, &true.into(), &["nil", "false"]));
    }
}
