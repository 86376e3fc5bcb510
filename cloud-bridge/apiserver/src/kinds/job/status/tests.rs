//! Valid and invalid statuses of Jobs, with the paths and messages of Kubernetes.

use serde_json::{Value, json};

use super::status;

/// Errors of a change from an old status to a new one.
fn told_of(spec: Value, old: Value, new: Value) -> Vec<String> {
    let job = |status: Value| json!({"spec": spec, "status": status});
    let errors = status(&job(new), &job(old));
    errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

#[test]
fn a_status_tells_one_story() {
    let none: [&str; 0] = [];
    let (start, end) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
    let conditions =
        |kinds: &[&str]| -> Value { kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect() };
    let complete = json!({"startTime": start, "completionTime": end, "succeeded": 1,
        "conditions": conditions(&["SuccessCriteriaMet", "Complete"])});
    let failed = json!({"startTime": start, "failed": 1, "conditions": conditions(&["FailureTarget", "Failed"])});
    for ended in [&complete, &failed] {
        assert_eq!(told_of(json!({}), json!({"startTime": start}), ended.clone()), none);
        assert_eq!(told_of(json!({}), ended.clone(), ended.clone()), none);
    }
    assert_eq!(
        told_of(json!({}), json!({}), json!({"conditions": conditions(&["Complete"])})),
        [
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true \
             condition",
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.startTime: Required value: startTime is required for finished job",
        ]
    );
    assert_eq!(
        told_of(json!({}), failed.clone(), json!({"startTime": start, "conditions": conditions(&["FailureTarget"])})),
        [
            "status.conditions: Invalid value: cannot disable the terminal Failed=True condition",
            "status.failed: Invalid value: 0: cannot decrease the failed counter",
        ]
    );
    let mut busy = complete.clone();
    json_patch::merge(
        &mut busy,
        &json!({"active": 1, "terminating": 2, "completionTime": "2025-01-01T00:00:00Z",
        "uncountedTerminatedPods": {"failed": ["a"]}}),
    );
    assert_eq!(
        told_of(json!({}), json!({"startTime": start}), busy),
        [
            "status.completionTime: Invalid value: \"2025-01-01T00:00:00Z\": must be equal to or after `startTime`",
            "status.active: Invalid value: 1: active>0 is invalid for finished job",
            "status.terminating: Invalid value: 2: terminating>0 is invalid for finished job",
            "status.uncountedTerminatedPods: Invalid value: {\"Succeeded\":null,\"Failed\":[\"a\"]}: must be empty for \
             finished job",
        ]
    );
    assert_eq!(
        told_of(json!({}), json!({"startTime": start}), json!({"startTime": end})),
        [format!("status.startTime: Invalid value: {end:?}: field is immutable for unsuspended job once set")]
    );
    let resumed = json!({"startTime": end, "conditions": [{"type": "Suspended", "status": "False"}]});
    let halted = json!({"startTime": start, "conditions": conditions(&["Suspended"])});
    assert_eq!(told_of(json!({}), halted, resumed), none);
}

#[test]
fn indexes_and_counters_of_a_status_fit_together() {
    let indexed = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 2, "backoffLimitPerIndex": 1});
    assert!(told_of(indexed.clone(), json!({}), json!({"completedIndexes": "0-2", "failedIndexes": "3"})).is_empty());
    assert_eq!(
        told_of(indexed.clone(), json!({}), json!({"completedIndexes": "0-2,7", "failedIndexes": "2-3"})),
        [
            "status.completedIndexes: Invalid value: \"0-2,7\": error parsing completedIndexes: too large index: \"7\"",
            "status.failedIndexes: Invalid value: \"2-3\": failedIndexes and completedIndexes overlap at index: 2",
        ]
    );
    // A Job that was scaled down meanwhile is not to blame.
    assert!(
        told_of(indexed.clone(), json!({"completedIndexes": "0-7"}), json!({"completedIndexes": "0-7"})).is_empty()
    );
    assert_eq!(
        told_of(json!({"completions": 5}), json!({}), json!({"completedIndexes": "1", "failedIndexes": ""})),
        [
            "status.completedIndexes: Invalid value: \"1\": cannot set non-empty completedIndexes when non-indexed \
             completion mode",
            "status.failedIndexes: Invalid value: \"\": cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        ]
    );
    assert_eq!(
        told_of(json!({}), json!({"succeeded": 2, "failed": 1}), json!({"succeeded": 1, "active": 1, "ready": 2})),
        [
            "status.ready: Invalid value: 2: cannot set more ready pods than active",
            "status.failed: Invalid value: 0: cannot decrease the failed counter",
            "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter",
        ]
    );
    let elastic = json!({"completionMode": "Indexed", "completions": 1, "parallelism": 1});
    assert!(told_of(elastic, json!({"succeeded": 2}), json!({"succeeded": 1})).is_empty());
    assert_eq!(
        told_of(json!({}), json!({}), json!({"uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}})),
        [
            "status.uncountedTerminatedPods.succeeded[1]: Invalid value: \"\": must not be empty",
            "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
        ]
    );
}
