//! Budgets in the model of the API.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::{PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::{still_disrupted, strangers};
use crate::workloads::pod::Pod;
use crate::workloads::selector::ASKED;
use crate::workloads::simulation::{Course, Model, key};
use crate::workloads::world::Kind;

fn course(budget: &Value) -> Course {
    let mut course = Course::new(1, |_, _| {});
    course.model.put(Kind::Deployment, json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "x"}]}},
        },
    }));
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
    spec.as_object_mut().unwrap().extend(budget.as_object().unwrap().clone());
    course.model.put(Kind::PodDisruptionBudget, json!({"metadata": {"name": "web"}, "spec": spec}));
    course.settle();
    course
}

fn numbers(model: &Model) -> [i64; 4] {
    let status = &model.get(Kind::PodDisruptionBudget, "web")["status"];
    ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
        .map(|name| status[name].as_i64().unwrap_or(-1))
}

fn condition(model: &Model) -> &Value {
    &model.get(Kind::PodDisruptionBudget, "web")["status"]["conditions"][0]
}

#[test]
fn budget_reads_the_scale_of_a_custom_controller() {
    let mut course = course(&json!({"maxUnavailable": 1}));
    course.model.put(
        Kind::PodDisruptionBudget,
        json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "own"}}}}),
    );
    let owner = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "roll", "uid": "r", "controller": true});
    for number in 0..3 {
        let metadata = json!({"name": format!("own-{number}"), "labels": {"app": "own"}, "ownerReferences": [owner]});
        course.model.put(Kind::Pod, json!({"metadata": metadata, "spec": {"containers": []}}));
    }
    course.settle();
    assert_eq!(condition(&course.model)["reason"], "SyncFailed", "it has none");
    course.model.scales.insert("roll".to_owned(), 3);
    for _ in 0..40 {
        course.step(1);
    }
    course.settle();
    assert_eq!(numbers(&course.model), [3, 2, 3, 1]);
}

#[test]
fn a_budget_counts_what_its_controllers_want_and_what_is_healthy() {
    for (budget, wanted) in [
        (json!({"minAvailable": 3}), [4, 3, 4, 1]),
        (json!({"minAvailable": "50%"}), [4, 2, 4, 2]),
        (json!({"minAvailable": "30%"}), [4, 2, 4, 2]),
        (json!({"minAvailable": 9}), [4, 9, 4, 0]),
        (json!({"maxUnavailable": 1}), [4, 3, 4, 1]),
        (json!({"maxUnavailable": "100%"}), [4, 0, 4, 4]),
    ] {
        assert_eq!(numbers(&course(&budget).model), wanted, "{budget}");
    }
}

#[test]
fn a_pod_that_is_not_ready_takes_from_the_budget_and_says_so() {
    let mut course = course(&json!({"maxUnavailable": 1}));
    assert_eq!(condition(&course.model)["reason"], "SufficientPods");
    let pod = course.model.names(Kind::Pod)[0].clone();
    course.model.change(Kind::Pod, &pod, |pod| pod["status"] = json!({"phase": "Running"}));
    course.step(1);
    assert_eq!(numbers(&course.model), [4, 3, 3, 0]);
    assert_eq!(
        (&condition(&course.model)["reason"], &condition(&course.model)["status"]),
        (&json!("InsufficientPods"), &json!("False"))
    );
}

#[test]
fn allowed_eviction_counts_until_pod_is_gone_or_for_two_minutes() {
    let mut course = course(&json!({"maxUnavailable": 1}));
    let pod = course.model.names(Kind::Pod)[0].clone();
    let time = course.model.clock().to_string();
    course.model.change(Kind::PodDisruptionBudget, &key("web"), |budget| {
        budget["status"]["disruptedPods"] = json!({pod.name.clone(): time});
        budget["status"]["disruptionsAllowed"] = 0.into();
    });
    course.step(1);
    assert_eq!(numbers(&course.model), [4, 3, 3, 0]);
    course.step(60);
    assert_eq!(numbers(&course.model), [4, 3, 3, 0]);
    course.step(65);
    assert_eq!(numbers(&course.model), [4, 3, 4, 1], "it was not evicted after all");
}

#[test]
fn pods_of_nobody_known_stop_a_budget_of_shares() {
    let mut course = course(&json!({"maxUnavailable": 1}));
    let owner = json!([{"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": "u", "controller": true}]);
    course.model.put(
        Kind::Pod,
        json!({
            "metadata": {"name": "odd", "labels": {"app": "web"}, "ownerReferences": owner}, "spec": {"containers": []},
        }),
    );
    course.step(1);
    assert_eq!(numbers(&course.model)[3], 0);
    assert_eq!(condition(&course.model)["reason"], "SyncFailed");
    assert_eq!(condition(&course.model)["message"], "found no controllers for pod \"odd\": the server has none");
}

#[test]
fn a_pod_that_loses_its_labels_is_no_longer_counted() {
    let mut course = course(&json!({"minAvailable": 3}));
    let pod = course.model.names(Kind::Pod)[0].clone();
    course.model.change(Kind::Deployment, &key("web"), |web| web["spec"]["paused"] = true.into());
    course.model.change(Kind::Pod, &pod, |pod| pod["metadata"]["labels"] = json!({}));
    course.step(1);
    assert_eq!(numbers(&course.model), [4, 3, 3, 0], "one was made for it, which is not ready");
}

/// With many workloads in one namespace, each evaluation reads only its own pods.
#[test]
fn fifty_workloads_in_a_namespace_do_not_look_at_each_others_pods() {
    let mut course = Course::new(1, |_, _| {});
    for number in 0..50 {
        let labels = json!({"app": format!("web{number}"), "tier": "front"});
        let metadata = json!({"name": format!("web{number}")});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
        let spec = json!({"replicas": 10, "selector": {"matchLabels": labels}, "template": template});
        course.model.put(Kind::ReplicaSet, json!({"metadata": metadata, "spec": spec}));
        let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": labels}});
        course.model.put(Kind::PodDisruptionBudget, json!({"metadata": metadata, "spec": spec}));
        let spec = json!({"suspend": true, "selector": {"matchLabels": {"job": format!("{number}")}}, "template": {}});
        course.model.put(Kind::Job, json!({"metadata": metadata, "spec": spec}));
    }
    course.calm = true;
    for _ in 0..4 {
        course.nodes();
        course.step(5);
    }
    assert_eq!(course.model.names(Kind::Pod).len(), 500);
    ASKED.set(0);
    for number in 0..50 {
        course
            .model
            .change(Kind::Job, &key(&format!("web{number}")), |job| job["metadata"]["annotations"] = json!({"a": "b"}));
    }
    for pod in course.model.names(Kind::Pod) {
        course.model.change(Kind::Pod, &pod, |pod| pod["status"]["phase"] = "Pending".into());
    }
    course.step(5);
    // Each pod looks for its budget among fifty; each set and each budget then reads its ten pods.
    assert!(ASKED.get() < 30_000, "asked {} times", ASKED.get());
}

/// Time of the processor that this thread has had.
fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn pods_and_their_controllers_are_looked_up() {
    const MANY: usize = 10_000;
    let now = Timestamp::UNIX_EPOCH;
    let pods: Vec<Pod> = (0..MANY)
        .map(|n| {
            let owner =
                json!([{"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": format!("u{n}"), "controller": true}]);
            let metadata = json!({"name": format!("p{n}"), "namespace": "a", "ownerReferences": owner});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap()
        })
        .collect();
    let pods: Vec<&Pod> = pods.iter().collect();
    let disrupted = (0..2000).map(|n| (format!("p{}", MANY - 1 - n), Time(now))).collect();
    let status = PodDisruptionBudgetStatus { disrupted_pods: Some(disrupted), ..PodDisruptionBudgetStatus::default() };
    let spec =
        PodDisruptionBudgetSpec { max_unavailable: Some(IntOrString::Int(1)), ..PodDisruptionBudgetSpec::default() };
    let before = spent();
    assert_eq!(strangers(&spec, &pods).len(), MANY);
    assert_eq!(still_disrupted(&status, &pods, now).len(), 2000);
    let took = spent() - before;
    assert!(took < Duration::from_secs(1), "{took:?}");
}
