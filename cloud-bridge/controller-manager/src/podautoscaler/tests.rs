mod limits;

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::selector::{LabelSelector, SIZE_MAX};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus};
use serde_json::{Value, json};

use super::decide::{Decision, Now, decide};
use super::memory::Memory;
use super::options::Options;
use super::pods::{Pod, by_labels};
use super::seen::{Scale, Seen};

/// A target with its autoscaler, and a clock.
struct Case {
    autoscaler: HorizontalPodAutoscaler,
    scale: Result<Scale, String>,
    pods: Vec<Value>,
    metrics: Vec<Value>,
    others: Vec<(String, LabelSelector)>,
    memory: Memory,
    options: Options,
    now: Now,
}

fn start() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> String {
    (start() - SignedDuration::from_secs(seconds)).to_string()
}

/// A pod that has been ready for an hour and asks for one core.
fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": "Running", "startTime": ago(3600),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(3590)}]},
    })
}

fn used(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name}, "timestamp": ago(0), "window": "15s",
        "containers": [{"name": "c", "usage": {"cpu": cpu, "memory": "512Mi"}}]})
}

impl Case {
    /// One pod per entry; pods without a usage report no metrics.
    fn new(spec: Value, uses: &[Option<&str>]) -> Self {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        let mut whole = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}]});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let autoscaler = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": whole});
        let mut case = Self {
            autoscaler: serde_json::from_value(autoscaler).unwrap(),
            scale: Ok(Scale::default()),
            pods: Vec::new(),
            metrics: Vec::new(),
            others: Vec::new(),
            memory: Memory::default(),
            options: Options::default(),
            now: Now { passed: Duration::from_secs(1000), clock: start() },
        };
        case.scaled_to(i64::try_from(uses.len()).unwrap());
        case.uses(uses);
        case
    }

    fn uses(&mut self, uses: &[Option<&str>]) {
        let names = || (0..uses.len()).map(|at| format!("p{at}"));
        self.pods = names().map(|name| pod(&name)).collect();
        self.metrics = names().zip(uses).filter_map(|(name, cpu)| Some(used(&name, (*cpu)?))).collect();
    }

    fn scaled_to(&mut self, replicas: i64) {
        let object = json!({"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=w"}});
        self.scale = Ok(Scale { url: String::new(), object });
    }

    fn passes(&mut self, seconds: u64) {
        self.now.passed += Duration::from_secs(seconds);
    }

    fn decide(&mut self) -> Decision {
        let seen = Seen {
            namespace: "n".to_owned(),
            scale: self.scale.clone(),
            pods: Ok(self.pods.iter().cloned().map(Pod::new).collect()),
            metrics: Ok(self.metrics.clone()),
        };
        decide(&self.autoscaler, &seen, &self.others, &mut self.memory, &self.options, self.now)
    }

    /// Decides, and does it. The replicas after that.
    fn turn(&mut self) -> i32 {
        let mut decision = self.decide();
        let has_behavior = self.autoscaler.spec.behavior.is_some();
        decision.rescaled(Ok(()), has_behavior, &mut self.memory, self.now);
        if let Some(rescale) = &decision.rescale {
            self.scaled_to(rescale.to.into());
        }
        if let Some(status) = decision.status(&self.autoscaler, self.now) {
            self.autoscaler.status = Some(status);
        }
        self.scale.as_ref().unwrap().replicas()
    }

    fn status(&self) -> HorizontalPodAutoscalerStatus {
        self.autoscaler.status.clone().unwrap_or_default()
    }

    /// The status and the reason of each condition.
    fn conditions(&self) -> BTreeMap<String, String> {
        let all = self.status().conditions.unwrap_or_default().into_iter();
        all.map(|one| (one.type_, format!("{} {}", one.status, one.reason.unwrap_or_default()))).collect()
    }
}

fn wanted(case: &mut Case) -> i32 {
    let current = case.scale.as_ref().unwrap().replicas();
    case.decide().rescale.map_or(current, |rescale| rescale.to)
}

/// Scaling down is not held up.
const NOW: &str = r#"{"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies":
    [{"type": "Percent", "value": 1000, "periodSeconds": 15}]}, "scaleDown": {"stabilizationWindowSeconds": 0,
    "selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}}"#;

fn at_once() -> Value {
    json!({"behavior": serde_json::from_str::<Value>(NOW).unwrap()})
}

#[test]
fn as_many_replicas_as_the_use_asks_for() {
    for (uses, replicas) in [
        (vec![Some("500m")], 1),
        // Within the tolerance.
        (vec![Some("550m"), Some("550m")], 2),
        (vec![Some("450m"), Some("450m")], 2),
        (vec![Some("560m"), Some("560m")], 3),
        (vec![Some("1"), Some("1")], 4),
        (vec![Some("100m"), Some("100m"), Some("100m"), Some("100m")], 1),
        (vec![Some("0"), Some("0")], 1),
        (vec![Some("9"), Some("9")], 10),
    ] {
        assert_eq!(wanted(&mut Case::new(at_once(), &uses)), replicas, "{uses:?}");
    }
}

#[test]
fn silence_scales_nobody() {
    // All are silent: nothing is known.
    let mut case = Case::new(at_once(), &[None, None]);
    assert_eq!(case.turn(), 2);
    assert_eq!(case.conditions()["ScalingActive"], "False FailedGetResourceMetric");
    for (uses, replicas) in [
        // The rest would go down: the silent use all that they ask for.
        (vec![Some("100m"), None], 2),
        (vec![Some("100m"), Some("100m"), Some("100m"), None], 3),
        (vec![Some("0"), None, None, None], 4),
        // The rest would go up: the silent use nothing.
        (vec![Some("1"), None], 2),
        (vec![Some("2"), None], 4),
        (vec![Some("600m"), None, None], 3),
    ] {
        assert_eq!(wanted(&mut Case::new(at_once(), &uses)), replicas, "{uses:?}");
    }
}

#[test]
fn pods_that_start_or_end_do_not_count() {
    let mut case = Case::new(at_once(), &[Some("1"), Some("1"), Some("1")]);
    case.pods[1]["status"] = json!({"phase": "Pending"});
    case.pods[2]["metadata"]["deletionTimestamp"] = json!(ago(1));
    // All of what one asks for, and nothing of the other: as wanted.
    assert_eq!(wanted(&mut case), 3);
    // Unready since its start.
    let mut case = Case::new(at_once(), &[Some("1"), Some("9")]);
    case.pods[1]["status"]["conditions"][0] =
        json!({"type": "Ready", "status": "False", "lastTransitionTime": ago(3595)});
    assert_eq!(wanted(&mut case), 2);
    // It was ready once: its use counts.
    case.pods[1]["status"]["conditions"][0]["lastTransitionTime"] = json!(ago(100));
    assert_eq!(wanted(&mut case), 10);
    // It starts, and was measured while it did.
    case.pods[1]["status"]["startTime"] = json!(ago(20));
    case.pods[1]["status"]["conditions"][0] = json!({"type": "Ready", "status": "True", "lastTransitionTime": ago(10)});
    assert_eq!(wanted(&mut case), 2);
    case.pods[1]["status"]["conditions"][0]["lastTransitionTime"] = json!(ago(16));
    assert_eq!(wanted(&mut case), 10);
    // None counts.
    case.pods.iter_mut().for_each(|pod| pod["status"] = json!({"phase": "Pending"}));
    assert_eq!(case.turn(), 2);
    assert_eq!(case.conditions()["ScalingActive"], "False FailedGetResourceMetric");
}

#[test]
fn a_clock_that_is_ahead_counts_from_when_it_was_seen() {
    let mut case = Case::new(at_once(), &[Some("1"), Some("1")]);
    for pod in &mut case.pods {
        pod["status"]["startTime"] = json!("2126-01-01T00:00:00Z");
        pod["status"]["conditions"][0]["lastTransitionTime"] = json!("2126-01-01T00:00:01Z");
    }
    assert_eq!(wanted(&mut case), 2);
    case.now.clock += SignedDuration::from_secs(16);
    for metric in &mut case.metrics {
        metric["timestamp"] = json!(case.now.clock.to_string());
    }
    assert_eq!(wanted(&mut case), 4);
}

#[test]
fn bounds_hold_without_metrics_and_zero_is_left_alone() {
    let mut case = Case::new(json!({"minReplicas": 3}), &[None]);
    assert_eq!(case.turn(), 3);
    let told = case.status();
    assert_eq!((told.current_replicas, told.desired_replicas), (Some(1), 3));
    let mut case = Case::new(json!({"maxReplicas": 2}), &[None, None, None]);
    let told = case.decide();
    assert_eq!(told.rescale.unwrap().reason, "Current number of replicas above Spec.MaxReplicas");
    let mut case = Case::new(json!({}), &[]);
    assert_eq!(case.turn(), 0);
    assert_eq!(case.conditions()["ScalingActive"], "False ScalingDisabled");
}

#[test]
fn what_is_not_known_is_told_and_changes_nothing() {
    let mut case = Case::new(json!({}), &[Some("9")]);
    case.scale = Err("deployments.apps \"d\" not found".to_owned());
    let decision = case.decide();
    assert!(decision.rescale.is_none());
    assert_eq!(decision.told[0].reason, "FailedGetScale");
    let status = decision.status(&case.autoscaler, case.now).unwrap();
    let condition = &status.conditions.unwrap()[0];
    assert_eq!(
        condition.message.as_deref(),
        Some("the HPA controller was unable to get the target's current scale: deployments.apps \"d\" not found")
    );
    // A container asks for nothing.
    let mut case = Case::new(json!({}), &[Some("9"), Some("9")]);
    case.pods[1]["spec"]["containers"][0]["resources"] = json!({});
    assert_eq!(case.turn(), 2);
    let told = case.status().conditions.unwrap().iter().find(|one| one.type_ == "ScalingActive").cloned().unwrap();
    assert_eq!(
        told.message.as_deref(),
        Some(
            "the HPA was unable to compute the replica count: failed to get cpu utilization: missing request for cpu \
             in container c of Pod p1"
        )
    );
    let mut case = Case::new(json!({}), &[Some("9")]);
    case.scale.as_mut().unwrap().object["status"]["selector"] = json!("");
    assert_eq!(case.turn(), 1);
    assert_eq!(case.conditions()["ScalingActive"], "False InvalidSelector");
    // The scale of a custom resource has whatever text its controller wrote (K8s apiextensions-apiserver
    // pkg/registry/customresource/etcd.go, `scaleFromCustomResource`).
    let mut case = Case::new(json!({}), &[Some("9")]);
    let large: Vec<String> = (0..=SIZE_MAX).map(|at| format!("!k{at}")).collect();
    case.scale.as_mut().unwrap().object["status"]["selector"] = large.join(",").into();
    assert_eq!(case.turn(), 1, "it stays as it is");
    assert_eq!(case.conditions()["ScalingActive"], "False InvalidSelector");
    let mut case = Case::new(json!({}), &[Some("9")]);
    case.others.push(("b".to_owned(), LabelSelector::parse("app").unwrap()));
    let told = case.decide().told;
    assert_eq!(told[0].message, "pods by selector app=w are controlled by multiple HPAs: [{a n} {b n}]");
}

#[test]
fn metrics_that_nobody_serves_hold_back_scaling_down_alone() {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m"},
        "target": {"type": "AverageValue", "averageValue": "1"}}});
    let with =
        |uses: &[Option<&str>]| Case::new(json!({"metrics": [pods, cpu], "behavior": at_once()["behavior"]}), uses);
    let mut up = with(&[Some("1"), Some("1")]);
    assert_eq!(up.turn(), 4);
    assert_eq!(up.conditions()["ScalingActive"], "True ValidMetricFound");
    let mut down = with(&[Some("0"), Some("0")]);
    assert_eq!(down.turn(), 2);
    assert_eq!(down.conditions()["ScalingActive"], "False FailedGetPodsMetric");
    for (kind, field, source, reason) in [
        (
            "Object",
            "object",
            json!({"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "m"},
            "target": {"type": "Value", "value": "1"}}),
            "FailedGetObjectMetric",
        ),
        (
            "External",
            "external",
            json!({"metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "Value", "value": "1"}}),
            "FailedGetExternalMetric",
        ),
    ] {
        let mut case = Case::new(json!({"metrics": [{"type": kind, field: source}]}), &[Some("9")]);
        assert_eq!(case.turn(), 1);
        assert_eq!(case.conditions()["ScalingActive"], format!("False {reason}"));
        assert_eq!(case.status().current_metrics.map(|all| all.len()), Some(1));
    }
}

#[test]
fn use_is_told_as_it_is() {
    let metrics = json!([
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 100}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    ]);
    let mut case = Case::new(json!({"metrics": metrics}), &[Some("900m"), Some("1100m")]);
    assert_eq!(case.turn(), 2);
    let told = serde_json::to_value(case.status().current_metrics).unwrap();
    assert_eq!(
        told,
        json!([
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                "current": {"averageUtilization": 100, "averageValue": "1"}}},
            {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "512Mi"}}},
        ])
    );
    assert!(case.decide().status(&case.autoscaler, case.now).is_none(), "nothing has changed");
}

#[test]
fn pods_with_the_same_labels_are_held_against_selectors_once() {
    let mut other = pod("c");
    other["metadata"]["labels"]["canary"] = json!("true");
    let pods = [pod("a"), pod("b"), other].map(Pod::new);
    let mut names: Vec<&str> = by_labels(&pods).into_iter().map(Pod::name).collect();
    names.sort_unstable();
    assert_eq!(names, ["b", "c"]);
}
