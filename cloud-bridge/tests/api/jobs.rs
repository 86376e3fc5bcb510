//! Jobs and CronJobs as objects over HTTP. Jobs are suspended, so that a real cluster's controller does not act on
//! them.

use sampan_json::SetField;
use serde_json::{Value, json};

use crate::harness::{APPLY, Api, MERGE, STRATEGIC, TABLE};
use crate::workloads::{refuses_wrong_types, with};

const START: &str = "2026-01-01T00:00:00Z";

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"suspend": true, "template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}}}})
}

fn cron_job(name: &str) -> Value {
    let template = json!({"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "busybox:1"}]}});
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": {
        "schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": template}}}})
}

#[tokio::test]
async fn a_job_gets_a_selector_of_its_own() {
    let api = Api::open().await;
    let all = api.group_path("batch/v1", "jobs");
    let made = api.post(&all, job("j")).await.ok();
    let uid = &made["metadata"]["uid"];
    let labels = json!({"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid, "job-name": "j"});
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(made["metadata"]["labels"], labels);
    assert_eq!(made["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    assert_eq!((&made["spec"]["backoffLimit"], &made["metadata"]["generation"]), (&json!(6), &json!(1)));
    let path = format!("{all}/j");
    // A client that sends the manifest again does not remove the defaults. A real API server treats the creator as
    // owner of the defaults too, so this one insists.
    let mut applied = job("j");
    applied.set_at(&["spec", "parallelism"], json!(2));
    let applied = api.patch(&format!("{path}?fieldManager=a&force=true"), APPLY, applied).await.ok();
    assert_eq!((&applied["spec"]["selector"], &applied["spec"]["parallelism"]), (&made["spec"]["selector"], &json!(2)));
    let resources = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "resources": {"limits": {"cpu": "1"}}}]}}}});
    api.patch(&path, STRATEGIC, resources).await.ok();
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
    api.patch(&path, STRATEGIC, image).await.fails_with(422, "spec.template.spec: Invalid value: ");
    let found = |query: &str| format!("{all}?fieldSelector={query}");
    assert_eq!(api.get(&found("status.successful%3D0")).await.ok()["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(api.get(&found("status.succeeded%3D0")).await.code, 400);
    let generated = with(with(job(""), &["metadata", "name"], Value::Null), &["metadata", "generateName"], "g-".into());
    let generated = api.post(&all, generated).await.ok();
    let labels = &generated["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["batch.kubernetes.io/job-name"], generated["metadata"]["name"]);
}

#[tokio::test]
async fn who_deletes_a_job_is_told_of_its_pods() {
    let api = Api::open().await;
    let all = api.group_path("batch/v1", "jobs");
    let told = |warnings: &[String]| warnings.iter().any(|text| text.contains("child pods are preserved by default"));
    for (query, orphans) in [("", true), ("?propagationPolicy=Background", false), ("?propagationPolicy=Orphan", true)]
    {
        let held = with(job("j"), &["metadata", "finalizers"], json!(["x.example/hold"]));
        api.post(&all, held).await.ok();
        let answer = api.delete(&format!("{all}/j{query}"), Value::Null).await;
        assert_eq!(told(&answer.warnings), query.is_empty(), "{query}: {:?}", answer.warnings);
        let finalizers = answer.ok()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers.as_array().is_some_and(|list| list.contains(&json!("orphan"))), orphans, "{query}");
        api.patch(&format!("{all}/j"), MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
        api.until(&format!("{all}/j"), |answer| answer.code == 404).await;
    }
    api.post(&all, job("k")).await.ok();
    assert!(told(&api.delete(&all, Value::Null).await.warnings));
}

#[tokio::test]
async fn the_status_of_a_job_tells_one_story() {
    let api = Api::open().await;
    let all = api.group_path("batch/v1", "jobs");
    // No controller writes the status of this one.
    api.post(&all, with(job("j"), &["spec", "managedBy"], "x.example/nobody".into())).await.ok();
    let path = format!("{all}/j/status");
    let say = |status: Value| api.patch(&path, MERGE, json!({ "status": status }));
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let early = json!({"startTime": START, "conditions": [condition("Complete")], "completionTime": START});
    say(early).await.fails_with(422, "without the SuccessCriteriaMet=true condition");
    let ended = json!({"startTime": START, "completionTime": START, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    say(ended).await.ok();
    say(json!({"conditions": [condition("SuccessCriteriaMet")], "completionTime": null}))
        .await
        .fails_with(422, "cannot disable the terminal Complete=True condition");
    say(json!({"succeeded": 0})).await.fails_with(422, "cannot decrease the succeeded counter");
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("j"), json!("Complete"), json!("1/1"), json!("0s")]);
}

#[tokio::test]
async fn a_job_that_cannot_work_is_refused() {
    let api = Api::open().await;
    let all = api.group_path("batch/v1", "jobs");
    let always = with(job("j"), &["spec", "template", "spec", "restartPolicy"], Value::Null);
    let why = "Job.batch \"j\" is invalid: spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \
               \"Never\"";
    api.post(&all, always).await.fails(422, why);
    let own = with(job("j"), &["spec", "selector"], json!({"matchLabels": {"a": "b"}}));
    api.post(&all, own).await.fails_with(422, "`selector` not auto-generated");
    let dotted = api.post(&all, with(job("j"), &["metadata", "name"], "a.b".into())).await;
    assert!(dotted.warnings.iter().any(|text| text.contains("a DNS label is recommended")), "{dotted:?}");
    dotted.ok();
    api.delete(&format!("{all}/a.b?propagationPolicy=Background"), Value::Null).await.ok();
    let fields = [
        ("spec.parallelism", json!("1")),
        ("spec.completions", json!([])),
        ("spec.completionMode", json!(1)),
        ("spec.backoffLimit", json!({})),
        ("spec.backoffLimitPerIndex", json!("1")),
        ("spec.maxFailedIndexes", json!("1")),
        ("spec.activeDeadlineSeconds", json!("1")),
        ("spec.ttlSecondsAfterFinished", json!(true)),
        ("spec.podFailurePolicy", json!([])),
        ("spec.podFailurePolicy.rules", json!({})),
        ("spec.podFailurePolicy.rules", json!([{"action": 1}])),
        (
            "spec.podFailurePolicy.rules",
            json!([{"action": "Count", "onExitCodes": {"operator": "In", "values": ["1"]}}]),
        ),
        ("spec.successPolicy", json!("x")),
        ("spec.successPolicy.rules", json!([{"succeededIndexes": 1}])),
        ("spec.podReplacementPolicy", json!(1)),
        ("spec.managedBy", json!([])),
        ("spec.manualSelector", json!("true")),
        ("spec.suspend", json!("true")),
        ("spec.selector", json!("a=b")),
        ("spec.template", json!([])),
        ("status.startTime", json!("yesterday")),
        ("status.uncountedTerminatedPods", json!([])),
    ];
    if !api.real {
        refuses_wrong_types(&api, &all, &job("j"), &fields).await;
    }
}

#[tokio::test]
async fn a_cron_job_is_kept_shown_and_refused() {
    let api = Api::open().await;
    let all = api.group_path("batch/v1", "cronjobs");
    let made = api.post(&all, cron_job("c")).await.ok();
    assert_eq!((&made["spec"]["concurrencyPolicy"], &made["metadata"]["generation"]), (&json!("Allow"), &json!(1)));
    assert_eq!((&made["status"], &made["spec"]["jobTemplate"]["spec"]["selector"]), (&json!({}), &Value::Null));
    let path = format!("{all}/c");
    // A Job that exists: the controller of a real cluster removes others from the list.
    let active = api.post(&api.group_path("batch/v1", "jobs"), job("c-1")).await.ok()["metadata"].clone();
    let active = json!({"kind": "Job", "name": "c-1", "namespace": api.ns, "uid": active["uid"]});
    let told = json!({"status": {"lastScheduleTime": START, "active": [active]}});
    api.patch(&format!("{path}/status"), MERGE, told).await.ok();
    let changed = api.patch(&path, STRATEGIC, json!({"spec": {"timeZone": "UTC"}})).await.ok();
    assert_eq!(
        (&changed["status"]["lastScheduleTime"], &changed["metadata"]["generation"]),
        (&json!(START), &json!(2))
    );
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..5], [json!("c"), json!("0 0 1 1 *"), json!("UTC"), json!("True"), json!(1)]);
    assert_eq!(cells[7..], [json!("c"), json!("busybox:1"), json!("<none>")]);
    api.patch(&path, MERGE, json!({"spec": {"schedule": "61 * * * *"}})).await.fails(
        422,
        "CronJob.batch \"c\" is invalid: spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum \
         (59): 61",
    );
    let zone = json!({"spec": {"timeZone": "Mars/Base"}});
    api.patch(&path, MERGE, zone)
        .await
        .fails_with(422, "spec.timeZone: Invalid value: \"Mars/Base\": unknown time zone");
    let gone = api.delete(&path, Value::Null).await;
    assert!(gone.warnings.is_empty(), "{gone:?}");
    let fields = [
        ("spec.schedule", json!(5)),
        ("spec.timeZone", json!([])),
        ("spec.suspend", json!("no")),
        ("spec.concurrencyPolicy", json!(1)),
        ("spec.startingDeadlineSeconds", json!("1")),
        ("spec.successfulJobsHistoryLimit", json!("1")),
        ("spec.failedJobsHistoryLimit", json!({})),
        ("spec.jobTemplate", json!([])),
        ("spec.jobTemplate.spec", json!("x")),
        ("spec.jobTemplate.metadata", json!(1)),
        ("status.active", json!({})),
    ];
    if !api.real {
        refuses_wrong_types(&api, &all, &cron_job("c"), &fields).await;
    }
}
