//! Jobs in the model of the API.

use std::time::Duration;

use apimachinery::key::ObjectKey;
use serde_json::{Value, json};

use super::marks::TRACKING;
use crate::workloads::plan::Action;
use crate::workloads::simulation::{Course, Model, Named, key, owned, seeds};
use crate::workloads::world::Kind;

const BOUND: &str = "most-active";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(super) fn job(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "work", "annotations": {BOUND: spec["parallelism"].as_i64().unwrap_or(1).to_string()}},
        "spec": {
            "selector": {"matchLabels": {"job": "work"}},
            "template": {
                "metadata": {"labels": {"job": "work"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
            },
        },
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

pub(super) fn pods(model: &Model) -> Vec<&Value> {
    owned(model, Kind::Pod, &model.get(Kind::Job, "work")["metadata"]["uid"]).collect()
}

pub(super) fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|list| list.contains(&json!(TRACKING)))
}

pub(super) fn is_active(pod: &Value) -> bool {
    let ended = pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
    !ended && pod["metadata"]["deletionTimestamp"].is_null()
}

pub(super) fn status(model: &Model) -> &Value {
    &model.get(Kind::Job, "work")["status"]
}

pub(super) fn count(status: &Value, name: &str) -> i64 {
    status[name].as_i64().unwrap_or_default()
}

fn uncounted(status: &Value, name: &str) -> i64 {
    i64::try_from(status["uncountedTerminatedPods"][name].as_array().map_or(0, Vec::len)).unwrap()
}

/// The conditions that are true, in their order, with their reasons.
pub(super) fn conditions(model: &Model) -> Vec<String> {
    let all = status(model)["conditions"].as_array().cloned().unwrap_or_default();
    let is_true = all.iter().filter(|one| one["status"] == "True");
    is_true.map(|one| format!("{}/{}", one["type"].as_str().unwrap(), one["reason"].as_str().unwrap())).collect()
}

/// Ends a pod, and notes what the Job must count in the end.
pub(super) fn end_pod(course: &mut Course, key: &ObjectKey, phase: &str, code: i64) {
    let pod = course.model.objects[&(Kind::Pod, key.clone())].clone();
    let stamp = course.model.clock().to_string();
    if is_tracked(&pod) {
        let mut notes = course.model.notes.borrow_mut();
        if phase == "Succeeded" {
            *notes.entry("Succeeded".to_owned()).or_default() += 1;
            if let Some(index) = pod["metadata"]["annotations"][INDEX].as_str() {
                let times = notes.entry(format!("index {index}")).or_default();
                *times += 1;
                assert_eq!(*times, 1, "index {index} succeeds twice");
            }
        } else if pod["metadata"]["deletionTimestamp"].is_null() {
            *notes.entry("Failed".to_owned()).or_default() += 1;
        }
    }
    course.model.change(Kind::Pod, key, |pod| {
        let ended = json!({"exitCode": code, "finishedAt": stamp});
        pod["status"] = json!({"phase": phase, "containerStatuses": [
            {"name": "main", "restartCount": 0, "state": {"terminated": ended}},
        ]});
    });
}

/// What nodes do: a pod starts, then it ends, well or, one in `fails`, not.
pub(super) fn nodes(course: &mut Course, fails: u64) {
    for key in course.model.names(Kind::Pod) {
        let pod = course.model.objects[&(Kind::Pod, key.clone())].clone();
        let phase = pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
        if phase == "Succeeded" || phase == "Failed" || (!course.calm && course.chance.one_in(2)) {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                course.model.end(Kind::Pod, &key);
            }
        } else if !pod["metadata"]["deletionTimestamp"].is_null() {
            end_pod(course, &key, "Failed", 137);
        } else if phase.is_empty() {
            course.model.change(Kind::Pod, &key, |pod| {
                pod["spec"]["nodeName"] = "node".into();
                pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            });
        } else if fails > 0 && course.chance.one_in(fails) {
            end_pod(course, &key, "Failed", 1);
        } else {
            end_pod(course, &key, "Succeeded", 0);
        }
    }
}

/// Deletes a pod like a user: it fails, if it has not terminated.
pub(super) fn delete_pod(course: &mut Course, key: &ObjectKey) {
    let pod = course.model.objects[&(Kind::Pod, key.clone())].clone();
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    if is_active(&pod) && is_tracked(&pod) {
        *course.model.notes.borrow_mut().entry("Failed".to_owned()).or_default() += 1;
    }
    let stamp = course.model.clock().to_string();
    course.model.change(Kind::Pod, key, |pod| pod["metadata"]["deletionTimestamp"] = stamp.into());
}

/// Invariants after each write: not too many pods, no count decreases, none exceeds what happened.
pub(super) fn sound(model: &Model, _: &Action) {
    for job in model.of(Kind::Job) {
        let bound: usize = job["metadata"]["annotations"][BOUND].as_str().unwrap().parse().unwrap();
        let pods: Vec<&Value> = owned(model, Kind::Pod, &job["metadata"]["uid"]).collect();
        let active = pods.iter().filter(|pod| is_active(pod)).count();
        assert!(active <= bound, "{active} active pods, of {bound} at most");
        let status = &job["status"];
        for (name, list, truth) in [("succeeded", "succeeded", "Succeeded"), ("failed", "failed", "Failed")] {
            let mut notes = model.notes.borrow_mut();
            let before = notes.entry(format!("told {name}")).or_default();
            let now = count(status, name);
            assert!(now >= *before, "{name} goes from {before} to {now}");
            *before = now;
            let truth = notes.get(truth).copied().unwrap_or_default();
            // Those that are ended because the Job is over have failed, too.
            let known = name == "succeeded" || status["conditions"].is_null();
            assert!(!known || now + uncounted(status, list) <= truth, "{name}: {status}, of {truth}");
        }
    }
}

pub(super) fn settle(course: &mut Course, fails: u64) {
    course.calm = true;
    for _ in 0..80 {
        nodes(course, fails);
        course.step(30);
    }
}

fn random_job(course: &mut Course) -> Value {
    let (parallelism, completions) = (1 + course.chance.below(4), 1 + course.chance.below(7));
    let limit = [2, 5, 100][usize::try_from(course.chance.below(3)).unwrap()];
    let mut spec = json!({"parallelism": parallelism, "completions": completions, "backoffLimit": limit});
    if course.chance.one_in(2) {
        spec["completionMode"] = "Indexed".into();
        if course.chance.one_in(2) {
            spec["backoffLimit"] = i32::MAX.into();
            spec["backoffLimitPerIndex"] = course.chance.below(3).into();
        }
    }
    if course.chance.one_in(3) {
        spec["podReplacementPolicy"] = "Failed".into();
    }
    job(spec)
}

/// S15: whatever is killed, lost or late, a Job counts each of its pods once, and has its end for a reason.
#[test]
fn s15_a_job_counts_each_pod_once() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut course = Course::new(seed, sound);
        let object = random_job(&mut course);
        course.model.put(Kind::Job, object);
        let meddled = seed % 3 == 0;
        for _ in 0..80 {
            if meddled && course.chance.one_in(8) {
                let number = course.chance.below(4);
                course.model.change(Kind::Job, &key("work"), |job| {
                    let bound: u64 = job["metadata"]["annotations"][BOUND].as_str().unwrap().parse().unwrap();
                    match number {
                        0 | 1 => job["spec"]["suspend"] = (number == 0).into(),
                        _ => {
                            job["spec"]["parallelism"] = number.into();
                            job["metadata"]["annotations"][BOUND] = bound.max(number).to_string().into();
                        }
                    }
                });
            }
            if course.chance.one_in(15)
                && let Some(key) = course.model.names(Kind::Pod).first().cloned()
            {
                delete_pod(&mut course, &key);
            }
            if course.chance.one_in(20) {
                course.restart();
            }
            nodes(&mut course, 4);
            let seconds = course.chance.below(30).cast_signed();
            course.step(seconds);
        }
        course.model.change(Kind::Job, &key("work"), |job| job["spec"]["suspend"] = false.into());
        settle(&mut course, 4);
        ended_well(&course.model, meddled);
        gone_leaves_nothing(&mut course);
    }
}

fn ended_well(model: &Model, meddled: bool) {
    let status = status(model);
    let mut conditions = conditions(model);
    // As in Kubernetes, a finished Job has no condition that it continues.
    conditions.retain(|one| !one.starts_with("Suspended/"));
    assert!(pods(model).into_iter().all(|pod| !is_tracked(pod) && !is_active(pod)), "{status}");
    assert_eq!(uncounted(status, "succeeded") + uncounted(status, "failed"), 0, "{status}");
    assert_eq!((count(status, "active"), count(status, "terminating")), (0, 0), "{status}");
    let truth = |name: &str| model.notes.borrow().get(name).copied().unwrap_or_default();
    let spec = &model.get(Kind::Job, "work")["spec"];
    if !meddled {
        assert_eq!(count(status, "succeeded"), truth("Succeeded"), "{status}");
    }
    if conditions == ["SuccessCriteriaMet/CompletionsReached", "Complete/CompletionsReached"] {
        assert!(count(status, "succeeded") >= spec["completions"].as_i64().unwrap(), "{status}");
        assert!(meddled || count(status, "failed") == truth("Failed"), "{status}, of {}", truth("Failed"));
        assert!(status["completionTime"].is_string());
    } else {
        let reason = if spec["backoffLimitPerIndex"].is_null() { "BackoffLimitExceeded" } else { "FailedIndexes" };
        assert_eq!(conditions, [format!("FailureTarget/{reason}"), format!("Failed/{reason}")], "{status}");
    }
}

/// The Job is deleted while its pods run, another one with its name is created, and the pods of the first one are
/// deleted with it.
fn gone_leaves_nothing(course: &mut Course) {
    course.calm = true;
    course.model.remove(Kind::Job, &key("work"));
    for pod in course.model.names(Kind::Pod) {
        course.model.end(Kind::Pod, &pod);
    }
    course.model.notes.borrow_mut().clear();
    course.model.put(Kind::Job, job(json!({"completions": 3, "parallelism": 3})));
    course.step(1);
    let first = course.model.names(Kind::Pod);
    assert_eq!(pods(&course.model).iter().filter(|pod| is_tracked(pod)).count(), 3);
    assert_eq!(first.len(), 3);
    course.calm = false;
    course.model.remove(Kind::Job, &key("work"));
    for pod in first {
        course.model.end(Kind::Pod, &pod);
    }
    assert_eq!(course.model.names(Kind::Pod).len(), 3, "held by their finalizers");
    course.model.notes.borrow_mut().clear();
    course.model.put(Kind::Job, job(json!({"completions": 0, "parallelism": 0})));
    settle(course, 0);
    assert_eq!(course.model.names(Kind::Pod), []);
}

/// A time that no clock reaches is not added to one: that would end all controllers.
#[test]
fn a_deadline_beyond_any_clock_is_looked_at_again_tomorrow() {
    let mut course = Course::new(1, sound);
    course.calm = true;
    course.model.put(Kind::Job, job(json!({"activeDeadlineSeconds": i64::MAX})));
    course.step(1);
    assert_eq!(pods(&course.model).len(), 1);
    assert!(course.waits().is_some_and(|wait| wait <= Duration::from_secs(86_400)), "{:?}", course.waits());
}
