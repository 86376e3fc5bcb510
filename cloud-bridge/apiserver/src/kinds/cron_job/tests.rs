//! Defaults and refusals of CronJobs, with the paths and messages of Kubernetes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{KIND, validate};
use crate::resource::strategy::Strategy;
use apimachinery::field::FieldError;

/// A CronJob with its defaults, changed by a JSON merge patch.
fn filled(change: Value) -> Value {
    let mut value = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {
        "schedule": "*/5 * * * *", "jobTemplate": {"spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}}}});
    json_patch::merge(&mut value, &change);
    KIND.default(&mut value);
    value
}

fn told(errors: Vec<FieldError>) -> Vec<String> {
    errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

fn complaints(spec: Value) -> Vec<String> {
    told(validate::create(&filled(json!({ "spec": spec }))))
}

#[test]
fn defaults_are_those_of_kubernetes_and_idempotent() {
    let mut cron = filled(json!({}));
    let spec = &cron["spec"];
    assert_eq!((&spec["concurrencyPolicy"], &spec["suspend"]), (&json!("Allow"), &json!(false)));
    assert_eq!((&spec["successfulJobsHistoryLimit"], &spec["failedJobsHistoryLimit"]), (&json!(3), &json!(1)));
    let job = &spec["jobTemplate"]["spec"];
    // The created Job gets these.
    assert_eq!((&job["completions"], &job["backoffLimit"]), (&Value::Null, &Value::Null));
    assert_eq!(job["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    let once = cron.clone();
    KIND.default(&mut cron);
    assert_eq!(once, cron);
    assert_eq!(validate::create(&once), []);
    let missing = filled(json!({"spec": {"jobTemplate": null}}));
    assert!(
        told(validate::create(&missing))
            .contains(&"spec.jobTemplate.spec.template.spec.containers: Required value".into())
    );
}

#[test]
fn a_schedule_can_be_read_and_has_no_zone() {
    let of = |schedule: &str| complaints(json!({ "schedule": schedule }));
    assert!(of("@hourly").is_empty() && of("@every 5m").is_empty());
    assert_eq!(of(""), ["spec.schedule: Required value"]);
    assert_eq!(
        of("* * * *"),
        ["spec.schedule: Invalid value: \"* * * *\": expected exactly 5 fields, found 4: [* * * *]"]
    );
    let zoned = "TZ=UTC 0 * * * *";
    let refusal = format!(
        "spec.schedule: Invalid value: {zoned:?}: cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
    );
    assert_eq!(of(zoned), [refusal.as_str()]);
    // One that was accepted once stays.
    let old = filled(json!({"spec": {"schedule": zoned}}));
    assert_eq!(validate::update(&old, &old), []);
    let both = filled(json!({"spec": {"schedule": zoned, "timeZone": "UTC"}}));
    assert!(
        told(validate::update(&both, &old))[0]
            .ends_with("cannot use both timeZone field and TZ or CRON_TZ in schedule")
    );
    assert_eq!(told(validate::update(&old, &filled(json!({})))), [refusal]);
}

#[test]
fn a_zone_is_one_of_the_database() {
    let of = |zone: &str| complaints(json!({ "timeZone": zone }));
    assert!(of("UTC").is_empty());
    let refused =
        |zone: &str, why: &str| assert_eq!(of(zone), [format!("spec.timeZone: Invalid value: {zone:?}: {why}")]);
    refused("", "timeZone must be nil or non-empty string");
    for unknown in ["Mars/Base", "../etc/passwd", "Europe//Berlin", "-1", "a b", "far-too-long-name"] {
        refused(unknown, &format!("unknown time zone {unknown}"));
    }
    refused("Local", "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    // A zone that is no longer in the database does not prevent other changes.
    let old = filled(json!({"spec": {"timeZone": "Mars/Base"}}));
    assert_eq!(validate::update(&filled(json!({"spec": {"timeZone": "Mars/Base", "suspend": true}})), &old), []);
}

#[test]
fn what_cannot_work_is_refused() {
    let path = "spec.jobTemplate.spec";
    assert_eq!(
        complaints(json!({"startingDeadlineSeconds": -1, "concurrencyPolicy": "Some", "failedJobsHistoryLimit": -1,
            "jobTemplate": {"spec": {
                "manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "backoffLimit": -1}}})),
        [
            "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0".to_owned(),
            "spec.concurrencyPolicy: Unsupported value: \"Some\": supported values: \"Allow\", \"Forbid\", \"Replace\""
                .into(),
            format!("{path}.backoffLimit: Invalid value: -1: must be greater than or equal to 0"),
            format!(
                "{path}.selector: Invalid value: {{\"matchLabels\":{{\"a\":\"b\"}}}}: `selector` will be auto-generated"
            ),
            format!("{path}.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\""),
            "spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0".into(),
        ]
    );
    let long = filled(json!({"metadata": {"name": "a".repeat(53)}}));
    assert!(told(validate::create(&long))[0].ends_with("must be no more than 52 characters"));
    assert_eq!(validate::update(&long, &long), []);
}

#[test]
fn a_row_tells_when_it_was_last() {
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let cells = |change: Value| KIND.row(&filled(change), now)[1..6].to_vec();
    assert_eq!(cells(json!({})), [json!("*/5 * * * *"), json!("<none>"), json!("False"), json!(0), json!("<none>")]);
    let busy = json!({"spec": {"suspend": true, "timeZone": "UTC"},
        "status": {"active": [{"name": "a"}], "lastScheduleTime": "2026-01-01T00:55:00Z"}});
    assert_eq!(cells(busy), [json!("*/5 * * * *"), json!("UTC"), json!("True"), json!(1), json!("5m")]);
}
