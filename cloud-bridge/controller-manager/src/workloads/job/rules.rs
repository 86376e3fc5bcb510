//! Rules of Jobs, one by one.

use serde_json::{Value, json};

use super::marks::TRACKING;
use super::tests::{
    conditions, count, delete_pod, end_pod, is_active, is_tracked, job, nodes, pods, settle, sound, status,
};
use crate::workloads::simulation::{Course, key};
use crate::workloads::world::Kind;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

fn course(spec: Value) -> Course {
    let mut course = Course::new(1, sound);
    course.calm = true;
    course.model.put(Kind::Job, job(spec));
    course.step(1);
    course
}

/// Lets the controllers react: changes of pods are evaluated after a second.
fn rest(course: &mut Course) {
    course.step(1);
    course.step(1);
}

fn change(course: &mut Course, change: impl FnOnce(&mut Value)) {
    course.model.change(Kind::Job, &key("work"), change);
    course.step(2);
}

/// Ends the first active pod; the controllers react.
fn end_first(course: &mut Course, phase: &str, code: i64) {
    let first = pods(&course.model).into_iter().find(|pod| is_active(pod)).expect("a pod");
    let first = key(first["metadata"]["name"].as_str().unwrap());
    end_pod(course, &first, phase, code);
    rest(course);
}

/// The pod of an index that is active.
fn end_index(course: &mut Course, index: &str, phase: &str, code: i64) {
    let mut all = pods(&course.model).into_iter();
    let pod = all.find(|pod| is_active(pod) && pod["metadata"]["annotations"][INDEX] == index).expect("a pod");
    let pod = key(pod["metadata"]["name"].as_str().unwrap());
    end_pod(course, &pod, phase, code);
    rest(course);
}

fn active(course: &Course) -> usize {
    pods(&course.model).iter().filter(|pod| is_active(pod)).count()
}

#[test]
fn a_pod_of_an_index_knows_it() {
    let course =
        course(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1}));
    let pods = pods(&course.model);
    assert_eq!(pods.len(), 3);
    for (place, pod) in pods.iter().enumerate() {
        let meta = &pod["metadata"];
        assert_eq!(
            (&meta["labels"][INDEX], &meta["annotations"][INDEX]),
            (&json!(place.to_string()), &json!(place.to_string()))
        );
        assert_eq!(meta["annotations"]["batch.kubernetes.io/job-index-failure-count"], "0");
        assert_eq!(meta["generateName"], format!("work-{place}-"));
        assert_eq!(meta["finalizers"], json!([TRACKING]));
        assert_eq!(pod["spec"]["hostname"], format!("work-{place}"));
        assert_eq!(
            pod["spec"]["containers"][0]["env"],
            json!([{
                "name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}},
            }])
        );
    }
    assert_eq!(status(&course.model)["active"], 3);
    assert_eq!(status(&course.model)["startTime"], course.model.clock().to_string());
}

#[test]
fn failures_are_waited_for_longer_each_time_until_they_are_too_many() {
    let mut course = course(json!({"backoffLimit": 2}));
    for wait in [10, 20] {
        end_first(&mut course, "Failed", 1);
        assert_eq!(active(&course), 0);
        course.step(wait - 4);
        assert_eq!(active(&course), 0, "{wait}");
        course.step(4);
        assert_eq!(active(&course), 1, "{wait}");
    }
    end_first(&mut course, "Failed", 1);
    assert_eq!(conditions(&course.model), ["FailureTarget/BackoffLimitExceeded", "Failed/BackoffLimitExceeded"]);
    assert_eq!(count(status(&course.model), "failed"), 3);
    assert_eq!(status(&course.model)["completionTime"], Value::Null);
}

#[test]
fn a_clock_that_is_set_back_makes_no_wait_longer() {
    for spec in [json!({}), json!({"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 3})] {
        let mut course = course(spec);
        end_first(&mut course, "Failed", 1);
        course.step(2);
        course.model.turn_clock(-86_400);
        course.step(4);
        assert_eq!(active(&course), 0);
        course.step(5);
        assert_eq!(active(&course), 1);
    }
}

#[test]
fn a_deadline_ends_what_runs_and_a_job_ends_after_its_pods() {
    let mut course = course(json!({"activeDeadlineSeconds": 30, "parallelism": 2, "completions": 2}));
    course
        .model
        .change(Kind::Pod, &course.model.names(Kind::Pod)[0].clone(), |pod| pod["spec"]["nodeName"] = "node".into());
    course.step(20);
    assert_eq!(active(&course), 2);
    course.step(10);
    rest(&mut course);
    assert_eq!(active(&course), 0);
    assert_eq!(conditions(&course.model), ["FailureTarget/DeadlineExceeded"]);
    assert_eq!(status(&course.model)["terminating"], 1);
    settle(&mut course, 0);
    assert_eq!(conditions(&course.model), ["FailureTarget/DeadlineExceeded", "Failed/DeadlineExceeded"]);
    assert_eq!((count(status(&course.model), "failed"), count(status(&course.model), "terminating")), (2, 0));
}

#[test]
fn a_suspended_job_has_no_pods_and_its_time_does_not_pass() {
    let mut course = course(json!({"suspend": true, "activeDeadlineSeconds": 100}));
    assert_eq!(active(&course), 0);
    assert_eq!(conditions(&course.model), ["Suspended/JobSuspended"]);
    assert_eq!(status(&course.model)["startTime"], Value::Null);
    course.step(500);
    change(&mut course, |job| job["spec"]["suspend"] = false.into());
    assert_eq!((active(&course), conditions(&course.model)), (1, vec![]));
    assert_eq!(status(&course.model)["conditions"][0]["reason"], "JobResumed");
    assert_eq!(status(&course.model)["startTime"], course.model.clock().to_string());
    change(&mut course, |job| job["spec"]["suspend"] = true.into());
    assert_eq!((active(&course), conditions(&course.model)), (0, vec!["Suspended/JobSuspended".to_owned()]));
    assert_eq!(count(status(&course.model), "failed"), 0, "nothing failed");
}

#[test]
fn containers_that_are_restarted_too_often_fail_the_job() {
    let mut course = course(json!({"backoffLimit": 3}));
    change(&mut course, |job| job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure".into());
    for (restarts, wanted) in [(2, 0), (3, 2)] {
        let pod = course.model.names(Kind::Pod)[0].clone();
        course.model.change(Kind::Pod, &pod, |pod| {
            pod["status"] =
                json!({"phase": "Running", "containerStatuses": [{"name": "main", "restartCount": restarts}]});
        });
        rest(&mut course);
        assert_eq!(conditions(&course.model).len(), wanted, "{restarts}");
    }
}

#[test]
fn a_work_queue_ends_with_its_pods_after_the_first_success() {
    let mut course = course(json!({"parallelism": 3}));
    assert_eq!(active(&course), 3);
    end_first(&mut course, "Succeeded", 0);
    assert_eq!((active(&course), conditions(&course.model)), (2, vec![]));
    end_first(&mut course, "Failed", 1);
    course.step(60);
    assert_eq!(active(&course), 1, "none is made again");
    end_first(&mut course, "Succeeded", 0);
    assert_eq!(conditions(&course.model).last().unwrap(), "Complete/CompletionsReached");
    assert_eq!((count(status(&course.model), "succeeded"), count(status(&course.model), "failed")), (2, 1));
}

#[test]
fn a_failure_policy_says_what_failures_are() {
    let rules = json!({"rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1, 42]}},
    ]});
    let mut course = course(json!({"backoffLimit": 1, "podFailurePolicy": rules}));
    end_first(&mut course, "Failed", 7);
    course.step(30);
    end_first(&mut course, "Failed", 1);
    course.step(60);
    assert_eq!((count(status(&course.model), "failed"), active(&course)), (1, 1), "one was ignored");
    let name = pods(&course.model).into_iter().find(|pod| is_active(pod)).unwrap()["metadata"]["name"].clone();
    end_first(&mut course, "Failed", 42);
    assert_eq!(conditions(&course.model), ["FailureTarget/PodFailurePolicy", "Failed/PodFailurePolicy"]);
    let message = format!(
        "Container main for pod ns/{} failed with exit code 42 matching FailJob rule at index 0",
        name.as_str().unwrap()
    );
    assert_eq!(status(&course.model)["conditions"][0]["message"], message);
}

#[test]
fn an_index_fails_by_its_own_limit_or_at_once_and_too_many_end_the_job() {
    let rules = json!({"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [9]}}]});
    let mut course = course(json!({
        "completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimit": 100, "backoffLimitPerIndex": 1,
        "maxFailedIndexes": 1, "podFailurePolicy": rules,
    }));
    end_index(&mut course, "0", "Failed", 1);
    assert_eq!(status(&course.model)["failedIndexes"], "");
    course.step(12);
    let again =
        pods(&course.model).into_iter().find(|pod| is_active(pod) && pod["metadata"]["annotations"][INDEX] == "0");
    assert_eq!(again.unwrap()["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"], "1");
    end_index(&mut course, "0", "Failed", 1);
    assert_eq!(status(&course.model)["failedIndexes"], "0");
    end_index(&mut course, "2", "Succeeded", 0);
    assert_eq!((&status(&course.model)["completedIndexes"], conditions(&course.model).len()), (&json!("2"), 0));
    end_index(&mut course, "3", "Failed", 9);
    settle(&mut course, 0);
    assert_eq!(status(&course.model)["failedIndexes"], "0,3");
    assert_eq!(conditions(&course.model).last().unwrap(), "Failed/MaxFailedIndexesExceeded");
}

#[test]
fn a_success_policy_is_met_by_some_indexes_and_the_rest_has_not_failed() {
    let policy = json!({"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 2}]});
    let mut course = course(json!({
        "completionMode": "Indexed", "completions": 5, "parallelism": 5, "successPolicy": policy,
    }));
    end_index(&mut course, "1", "Succeeded", 0);
    end_index(&mut course, "3", "Succeeded", 0);
    assert_eq!(conditions(&course.model).len(), 0);
    end_index(&mut course, "0", "Succeeded", 0);
    settle(&mut course, 0);
    assert_eq!(conditions(&course.model), ["SuccessCriteriaMet/SuccessPolicy", "Complete/SuccessPolicy"]);
    assert_eq!(status(&course.model)["conditions"][0]["message"], "Matched rules at index 0");
    assert_eq!(
        (count(status(&course.model), "failed"), &status(&course.model)["completedIndexes"]),
        (0, &json!("0,1,3"))
    );
}

#[test]
fn a_pod_is_replaced_once_it_is_gone_where_that_is_said() {
    for (policy, wanted) in [("Failed", 0), ("TerminatingOrFailed", 1)] {
        let mut course = course(json!({"podReplacementPolicy": policy}));
        nodes(&mut course, 0);
        let pod = course.model.names(Kind::Pod)[0].clone();
        delete_pod(&mut course, &pod);
        rest(&mut course);
        course.step(15);
        assert_eq!(active(&course), wanted, "{policy}");
        assert_eq!(status(&course.model)["terminating"], 1, "{policy}");
    }
}

#[test]
fn fewer_at_once_end_those_that_are_too_many_without_a_failure() {
    let mut course = course(json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4}));
    change(&mut course, |job| job["spec"]["parallelism"] = 1.into());
    assert_eq!((active(&course), count(status(&course.model), "failed")), (1, 0));
}

#[test]
fn pods_of_nobody_and_of_other_managers() {
    let mut course = course(json!({"managedBy": "example.com/other"}));
    assert_eq!(course.model.names(Kind::Pod), []);
    assert!(status(&course.model).is_null());
    let pod = |labels: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lost", "labels": labels, "finalizers": [TRACKING]},
            "spec": {"containers": []}})
    };
    course.model.put(Kind::Pod, pod(json!({})));
    course.step(1);
    assert!(!is_tracked(course.model.get(Kind::Pod, "lost")), "no Job may take it");
    course.model.remove(Kind::Job, &key("work"));
    course.model.remove(Kind::Pod, &key("lost"));
    course.model.put(Kind::Job, job(json!({})));
    let mut taken = pod(json!({"job": "work"}));
    taken["metadata"]["finalizers"] = json!([]);
    course.model.put(Kind::Pod, taken);
    rest(&mut course);
    let lost = course.model.get(Kind::Pod, "lost");
    assert!(is_tracked(lost) && lost["metadata"]["ownerReferences"][0]["name"] == "work", "{lost}");
    assert_eq!(active(&course), 1);
}

#[test]
fn step_of_the_clock_ends_and_removes_no_job() {
    let year = 365 * 86_400;
    let mut course = Course::new(1, sound);
    course.calm = true;
    course.model.turn_clock(1000 - course.model.clock().as_second());
    course.model.put(Kind::Job, job(json!({"activeDeadlineSeconds": 300, "ttlSecondsAfterFinished": 300})));
    course.step(1);
    course.model.turn_clock(56 * year);
    course.step(20);
    rest(&mut course);
    assert_eq!((active(&course), conditions(&course.model)), (1, vec![]), "it runs on");
    end_first(&mut course, "Succeeded", 0);
    course.model.turn_clock(year);
    course.step(20);
    assert_eq!(course.model.names(Kind::Job).len(), 1, "its logs stay");
    course.step(300);
    assert_eq!(course.model.names(Kind::Job).len(), 0);
}

#[test]
fn a_job_that_is_over_goes_after_its_time() {
    let mut course = course(json!({"ttlSecondsAfterFinished": 100}));
    end_first(&mut course, "Succeeded", 0);
    assert_eq!(conditions(&course.model).last().unwrap(), "Complete/CompletionsReached");
    course.step(90);
    assert_eq!(course.model.names(Kind::Job).len(), 1);
    course.step(10);
    assert_eq!(course.model.names(Kind::Job).len(), 0);
}
