//! The row of a Job.

use jiff::Timestamp;
use serde_json::Value;

use super::status::is_true;
use crate::kinds::columns::{AGE, NAME, Table, age, human_duration, name};
use crate::kinds::workload::table::{CONTAINERS, IMAGES, SELECTOR, containers, selector};
use apimachinery::json::{integer, text};

/// Table of Jobs.
pub(super) const TABLE: Table<8> = Table {
    columns: [
        NAME,
        ("Status", "string", 0, "Status of the job."),
        ("Completions", "string", 0, "How many of its pods have succeeded, and how many are to."),
        ("Duration", "string", 0, "Time required to complete the job."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    row,
};

/// The cells of one Job.
fn row(job: &Value, now: Timestamp) -> [Value; 8] {
    let spec = &job["spec"];
    let [names, images] = containers(&spec["template"]);
    [
        name(job),
        state(job).into(),
        completions(job).into(),
        duration(&job["status"], now).into(),
        age(job, now),
        names,
        images,
        selector(&spec["selector"]),
    ]
}

fn state(job: &Value) -> &'static str {
    let holds = |kind: &str| is_true(&job["status"], kind);
    if let Some(ended) = ["Complete", "Failed"].into_iter().find(|kind| holds(kind)) {
        return ended;
    }
    if !job["metadata"]["deletionTimestamp"].is_null() {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|kind| holds(kind)).unwrap_or("Running")
}

fn completions(job: &Value) -> String {
    let succeeded = integer(&job["status"], "succeeded").unwrap_or_default();
    match (integer(&job["spec"], "completions"), integer(&job["spec"], "parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, Some(parallelism)) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(status: &Value, now: Timestamp) -> String {
    let time = |field: &str| text(status, field).parse::<Timestamp>().ok();
    let Some(start) = time("startTime") else { return String::new() };
    human_duration(time("completionTime").unwrap_or(now).as_second() - start.as_second())
}
