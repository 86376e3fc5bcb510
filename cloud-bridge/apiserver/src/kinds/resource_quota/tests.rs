//! Refusals of ResourceQuotas, and the usage by objects.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::usage::{in_scope, pod_counts, takes, usage};
use super::{default, validate, warnings};

fn complaints(spec: Value) -> Vec<String> {
    let mut quota = json!({ "spec": spec });
    default(&mut quota);
    validate::create(&quota).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

fn shown(resource: &str, object: &Value) -> Vec<String> {
    let used = usage(resource, object, Timestamp::UNIX_EPOCH);
    used.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
}

#[test]
fn names_and_scopes_are_known() {
    let none: [&str; 0] = [];
    let hard =
        json!({"pods": 5, "count/deployments.apps": "2", "requests.example.com/gpu": "1", "limits.memory": "1Gi"});
    assert_eq!(complaints(json!({ "hard": hard })), none);
    let gold = json!({"hard": {"gold.storageclass.storage.k8s.io/requests.storage": "5Gi"}});
    assert_eq!(complaints(gold), none);
    assert_eq!(
        complaints(json!({"hard": {"storage": "1"}})),
        ["spec.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota"]
    );
    assert_eq!(
        complaints(json!({"hard": {"pods": "-1"}})),
        ["spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0"]
    );
    let scoped = complaints(json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort", "NotBestEffort", "Other"]}));
    let path = "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\",\"Other\"]";
    assert_eq!(
        scoped,
        [
            format!("{path}: unsupported scope applied to resource"),
            format!("{path}: unsupported scope"),
            format!("{path}: conflicting scopes"),
        ]
    );
    let one = |operator: &str, values: Value| {
        let all = json!([{"scopeName": "PriorityClass", "operator": operator, "values": values}]);
        complaints(json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": all}}))
    };
    assert_eq!(one("In", json!(["high"])), none);
    assert!(one("In", json!([]))[0].starts_with("spec.scopeSelector.matchExpressions.values: Required value"));
    assert!(one("Exists", json!(["a"]))[0].contains("must be no value when `operator` is 'Exist'"));
    assert!(one("Is", json!([]))[0].ends_with("not a valid selector operator"));
    let (old, new) = (json!({"spec": {"scopes": ["BestEffort"]}}), json!({"spec": {}}));
    assert_eq!(validate::update(&new, &old)[0].field, "spec.scopes");
    assert_eq!(validate::status(&json!({"status": {"used": {"pods": "1500m"}}}), &old)[0].field, "status.used[pods]");
}

#[test]
fn more_requests_than_limits_are_warned_of() {
    let told = warnings(
        &json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1", "requests.memory": "1", "limits.memory": "1"}}}),
    );
    assert_eq!(told, ["ResourceQuota cpu (2) should be less than limits.cpu (1)"]);
}

#[test]
fn what_objects_take() {
    assert_eq!(shown("deployments.apps", &json!({})), ["count/deployments.apps=1"]);
    assert_eq!(shown("secrets", &json!({})), ["count/secrets=1", "secrets=1"]);
    let resources =
        json!({"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"memory": "1Gi", "example.com/gpu": "1"}});
    let pod = json!({"spec": {"containers": [{"resources": resources}], "overhead": {"cpu": "100m", "memory": "1Mi"}}});
    assert_eq!(
        shown("pods", &pod),
        [
            "count/pods=1",
            "cpu=1100m",
            "limits.memory=1025Mi",
            "memory=1Mi",
            "pods=1",
            "requests.cpu=1100m",
            "requests.example.com/gpu=1",
            "requests.memory=1Mi",
        ]
    );
    let balancer = json!({"spec": {"type": "LoadBalancer", "ports": [{"nodePort": 1}, {}], "allocateLoadBalancerNodePorts": false}});
    assert_eq!(
        shown("services", &balancer),
        ["count/services=1", "services=1", "services.loadbalancers=1", "services.nodeports=1"]
    );
    let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1500m"}}}});
    assert_eq!(
        shown("persistentvolumeclaims", &claim),
        [
            "count/persistentvolumeclaims=1",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1",
            "gold.storageclass.storage.k8s.io/requests.storage=2",
            "persistentvolumeclaims=1",
            "requests.storage=2",
        ]
    );
    for (resource, name, right) in [
        ("pods", "requests.example.com/gpu", true),
        ("pods", "example.com/gpu", false),
        ("pods", "limits.hugepages-2Mi", false),
        ("pods", "services", false),
        ("persistentvolumeclaims", "gold.storageclass.storage.k8s.io/requests.storage", true),
        ("deployments.apps", "count/deployments.apps", true),
        ("deployments.apps", "count/deployments", false),
    ] {
        assert_eq!(takes(resource, name), right, "{resource} {name}");
    }
}

#[test]
fn pods_that_have_ended_take_nothing() {
    let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    let dying = |at: &str| json!({"metadata": {"deletionTimestamp": at, "deletionGracePeriodSeconds": 30}});
    assert!(pod_counts(&json!({"status": {"phase": "Running"}}), now));
    assert!(!pod_counts(&json!({"status": {"phase": "Succeeded"}}), now));
    assert!(pod_counts(&dying("2026-01-01T00:00:30Z"), now));
    assert!(!pod_counts(&dying("2026-01-01T00:00:29Z"), now));
    assert_eq!(shown("pods", &json!({"status": {"phase": "Failed"}})), ["count/pods=1"]);
}

#[test]
fn scopes_choose_pods() {
    let pod = json!({"spec": {"priorityClassName": "high", "activeDeadlineSeconds": 5, "containers": [{}],
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"podAffinityTerm": {"namespaces": ["other"]}}]}}}});
    let of = |scope: &str| in_scope("pods", &json!({"spec": {"scopes": [scope]}}), &pod);
    for scope in ["Terminating", "BestEffort", "PriorityClass", "CrossNamespacePodAffinity"] {
        assert!(of(scope), "{scope}");
        assert!(!in_scope("services", &json!({"spec": {"scopes": [scope]}}), &pod));
    }
    assert!(!of("NotTerminating") && !of("NotBestEffort"));
    let chosen = |operator: &str, class: &str| {
        let one = json!({"scopeName": "PriorityClass", "operator": operator, "values": [class]});
        in_scope("pods", &json!({"spec": {"scopeSelector": {"matchExpressions": [one]}}}), &pod)
    };
    assert!(chosen("In", "high") && !chosen("In", "low") && chosen("NotIn", "low"));
}
