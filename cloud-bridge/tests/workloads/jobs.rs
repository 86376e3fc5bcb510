//! Jobs and CronJobs on the embedded API, without nodes: the tests end the pods.

use std::collections::BTreeSet;
use std::time::Duration;

use controller_manager::pods::Pods;
use controller_manager::workloads;
use k8s_openapi::api::batch::v1::{CronJob, Job, JobStatus};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Site, until};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

fn job(spec: Value) -> Job {
    let mut object = json!({
        "metadata": {"name": "work"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}},
    });
    object["spec"].as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    serde_json::from_value(object).expect("a Job")
}

fn jobs(site: &Site) -> Api<Job> {
    Api::namespaced(site.client.clone(), "default")
}

async fn pods(site: &Site) -> Vec<Pod> {
    site.pods().list(&ListParams::default()).await.expect("a list").items
}

async fn status(site: &Site) -> JobStatus {
    jobs(site).get("work").await.expect("it is there").status.unwrap_or_default()
}

/// The conditions that are true, with their reasons.
fn conditions(status: &JobStatus) -> Vec<String> {
    let all = status.conditions.iter().flatten().filter(|one| one.status == "True");
    all.map(|one| format!("{}/{}", one.type_, one.reason.clone().unwrap_or_default())).collect()
}

fn is_over(status: &JobStatus) -> bool {
    status.conditions.iter().flatten().any(|one| matches!(one.type_.as_str(), "Complete" | "Failed"))
}

/// Ends all pods, as on a node.
async fn end_pods(site: &Site, phase: &str, code: i32) {
    let ended = json!({"exitCode": code, "finishedAt": "2024-05-05T10:00:00Z"});
    let status = json!({"status": {"phase": phase, "containerStatuses": [
        {"name": "main", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": ended}},
    ]}});
    for pod in pods(site).await {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !matches!(phase, Some("Succeeded" | "Failed")) {
            // It may be deleted meanwhile.
            let _ = site.pods().patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
        }
    }
}

fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|one| one == TRACKING)
}

#[tokio::test]
async fn an_indexed_job_runs_each_index_and_goes_with_its_pods() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2});
    jobs(&site).create(&PostParams::default(), &job(spec)).await.expect("created");
    until("two pods", async || pods(&site).await.len() == 2 && status(&site).await.active == Some(2)).await;
    assert!(pods(&site).await.iter().all(is_tracked));
    until("its end", async || {
        end_pods(&site, "Succeeded", 0).await;
        is_over(&status(&site).await)
    })
    .await;
    let status = status(&site).await;
    assert_eq!(conditions(&status), ["SuccessCriteriaMet/CompletionsReached", "Complete/CompletionsReached"]);
    assert_eq!((status.succeeded, status.completed_indexes.as_deref()), (Some(3), Some("0-2")));
    assert!(status.completion_time.is_some());
    let all = pods(&site).await;
    assert!(all.len() == 3 && !all.iter().any(is_tracked), "{all:?}");
    let hosts: BTreeSet<_> = all.iter().filter_map(|pod| pod.spec.as_ref()?.hostname.clone()).collect();
    assert_eq!(hosts, BTreeSet::from(["work-0", "work-1", "work-2"].map(str::to_owned)));
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    until("its events", async || {
        let events = events.list(&ListParams::default()).await.expect("a list").items;
        let reasons: Vec<&str> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
        reasons.iter().filter(|reason| **reason == "SuccessfulCreate").count() == 3 && reasons.contains(&"Completed")
    })
    .await;
    jobs(&site).delete("work", &DeleteParams::background()).await.expect("deleted");
    until("the end of its pods", async || pods(&site).await.is_empty()).await;
    controllers.abort();
}

/// A Job is deleted while its pods run: their finalizers delay nothing, with any deletion propagation.
#[tokio::test]
async fn a_job_that_is_deleted_takes_its_pods_along() {
    for how in [DeleteParams::background(), DeleteParams::foreground()] {
        let site = Site::open();
        let controllers =
            tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
        jobs(&site)
            .create(&PostParams::default(), &job(json!({"parallelism": 3, "completions": 3})))
            .await
            .expect("created");
        until("three pods", async || pods(&site).await.len() == 3).await;
        jobs(&site).delete("work", &how).await.expect("deleted");
        until("the end of all of it", async || {
            pods(&site).await.is_empty() && jobs(&site).get_opt("work").await.expect("an answer").is_none()
        })
        .await;
        controllers.abort();
    }
}

/// A namespace is deleted while a Job in it needs more pods: none can be created, and those that end still lose their
/// finalizer.
#[tokio::test]
async fn a_job_holds_up_no_namespace() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let namespaces: Api<Namespace> = Api::all(site.client.clone());
    let leaving = serde_json::from_value(json!({"metadata": {"name": "leaving"}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &leaving).await.expect("created");
    let wanted = job(json!({"parallelism": 2, "completions": 4}));
    let there: Api<Job> = Api::namespaced(site.client.clone(), "leaving");
    there.create(&PostParams::default(), &wanted).await.expect("created");
    let pods: Api<Pod> = Api::namespaced(site.client.clone(), "leaving");
    until("two pods", async || pods.list(&ListParams::default()).await.expect("a list").items.len() == 2).await;
    namespaces.delete("leaving", &DeleteParams::default()).await.expect("deleted");
    until("its end", async || namespaces.get_opt("leaving").await.expect("an answer").is_none()).await;
    controllers.abort();
}

/// S15: an end at any time loses no pod and counts none twice.
#[tokio::test]
async fn s15_a_job_counts_each_pod_once_whenever_its_controller_ends() {
    let site = Site::open();
    let spec = json!({"parallelism": 6, "completions": 30});
    jobs(&site).create(&PostParams::default(), &job(spec)).await.expect("created");
    let mut round = 0_u64;
    while !is_over(&status(&site).await) && round < 400 {
        let controllers =
            tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
        tokio::time::sleep(Duration::from_millis(5 + (round * 37) % 1300)).await;
        controllers.abort();
        let _ = controllers.await;
        end_pods(&site, "Succeeded", 0).await;
        let all = pods(&site).await.len();
        assert!(all <= 30, "{all} pods");
        let succeeded = status(&site).await.succeeded.unwrap_or_default();
        assert!(usize::try_from(succeeded).expect("a count") <= all, "{succeeded} of {all}");
        round += 1;
    }
    let status = status(&site).await;
    assert_eq!((status.succeeded, status.failed, pods(&site).await.len()), (Some(30), None, 30));
    assert_eq!(conditions(&status).last().map(String::as_str), Some("Complete/CompletionsReached"));
}

#[tokio::test]
async fn a_job_that_fails_says_why_and_goes_after_its_time() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
    let spec = json!({"podFailurePolicy": {"rules": rules}});
    jobs(&site).create(&PostParams::default(), &job(spec)).await.expect("created");
    until("a pod", async || pods(&site).await.len() == 1).await;
    until("its end", async || {
        end_pods(&site, "Failed", 42).await;
        is_over(&status(&site).await)
    })
    .await;
    assert_eq!(conditions(&status(&site).await), ["FailureTarget/PodFailurePolicy", "Failed/PodFailurePolicy"]);
    let soon = json!({"spec": {"ttlSecondsAfterFinished": 1}});
    jobs(&site).patch("work", &PatchParams::default(), &Patch::Merge(&soon)).await.expect("patched");
    until("its going", async || {
        jobs(&site).get_opt("work").await.expect("an answer").is_none() && pods(&site).await.is_empty()
    })
    .await;
    controllers.abort();
}

#[tokio::test]
async fn a_cron_job_makes_jobs_and_goes_with_them() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let cron_jobs: Api<CronJob> = Api::namespaced(site.client.clone(), "default");
    let tick = json!({
        "metadata": {"name": "tick"},
        "spec": {"schedule": "@every 1s", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job(json!({})).spec}},
    });
    let tick: CronJob = serde_json::from_value(tick).expect("a CronJob");
    cron_jobs.create(&PostParams::default(), &tick).await.expect("created");
    until("a Job and its pod", async || {
        let active = cron_jobs.get("tick").await.expect("it is there").status.and_then(|status| status.active);
        active.is_some_and(|active| active.len() == 1) && pods(&site).await.len() == 1
    })
    .await;
    let all = jobs(&site).list(&ListParams::default()).await.expect("a list").items;
    assert!(all[0].name_any().starts_with("tick-"), "{all:?}");
    assert_eq!(all[0].owner_references()[0].name, "tick");
    let suspend = json!({"spec": {"suspend": true}});
    cron_jobs.patch("tick", &PatchParams::default(), &Patch::Merge(&suspend)).await.expect("patched");
    until("its success", async || {
        end_pods(&site, "Succeeded", 0).await;
        let status = cron_jobs.get("tick").await.expect("it is there").status.unwrap_or_default();
        status.active.is_none() && status.last_successful_time.is_some()
    })
    .await;
    cron_jobs.delete("tick", &DeleteParams::background()).await.expect("deleted");
    until("the end of all of it", async || {
        pods(&site).await.is_empty() && jobs(&site).list(&ListParams::default()).await.expect("a list").items.is_empty()
    })
    .await;
    controllers.abort();
}
