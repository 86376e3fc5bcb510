//! `autoscaling/v1` of an object that is stored as `autoscaling/v2`: fields for the use of CPU, annotations for the rest
//! (pkg/apis/autoscaling/v1/conversion.go).

mod checked;
mod metrics;
mod rules;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition;
use sampan_json::SetField;
use serde_json::{Map, Value, json};

use super::metric::{cpu_utilization, is_cpu_utilization};
use apimachinery::json::{items, object_mut, present, remove, set_default};
use checked::typed;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// Annotations that represent fields, now or in earlier versions.
const ROUND_TRIP: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// From `v1` to the stored form. An annotation that cannot be read counts as none.
pub(super) fn to_stored(autoscaler: &mut Value) {
    let target = autoscaler.get_mut("spec").and_then(|spec| remove(spec, "targetCPUUtilizationPercentage"));
    let current = autoscaler.get_mut("status").and_then(|status| remove(status, "currentCPUUtilizationPercentage"));
    let mut taken: Map<String, Value> = ROUND_TRIP.iter().filter_map(|name| take(autoscaler, name)).collect();
    let mut read = |name: &str| -> Option<Value> { serde_json::from_str(taken.remove(name)?.as_str()?).ok() };

    let mut wanted = read(METRICS).and_then(|given| metrics::specs_to_stored(&given)).unwrap_or_default();
    wanted.extend(target.filter(|target| !target.is_null()).map(cpu_utilization));
    if !wanted.is_empty() {
        autoscaler.set_at(&["spec", "metrics"], wanted.into());
    }
    if let Some(behavior) = read(BEHAVIOR).and_then(|given| rules::to_stored(&given)) {
        autoscaler.set_at(&["spec", "behavior"], behavior);
    }
    let measured = read(CURRENT_METRICS).and_then(|given| metrics::statuses_to_stored(&given)).or_else(|| {
        let percent = current.filter(|current| !current.is_null())?;
        Some(vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}})])
    });
    if let Some(measured) = measured {
        autoscaler.set_at(&["status", "currentMetrics"], measured.into());
    }
    if let Some(conditions) = read(CONDITIONS).filter(typed::<Vec<HorizontalPodAutoscalerCondition>>) {
        autoscaler.set_at(&["status", "conditions"], conditions);
    }
}

/// Converts the stored form to `v1`.
pub(super) fn to_served(autoscaler: &mut Value) {
    for name in ROUND_TRIP {
        take(autoscaler, name);
    }
    let mut annotations: Vec<(&str, Value)> = Vec::new();
    if let Some(spec) = autoscaler.get_mut("spec") {
        let wanted = remove(spec, "metrics").unwrap_or_default();
        let wanted = wanted.as_array().map_or(&[][..], Vec::as_slice);
        if let Some(metric) = wanted.iter().find(|metric| is_cpu_utilization(metric)) {
            let percent = metric["resource"]["target"]["averageUtilization"].clone();
            spec.set("targetCPUUtilizationPercentage", percent);
        }
        let others: Vec<Value> =
            wanted.iter().filter(|metric| !is_cpu_utilization(metric)).map(metrics::spec_to_served).collect();
        if !others.is_empty() {
            annotations.push((METRICS, others.into()));
        }
        if let Some(behavior) = remove(spec, "behavior").filter(|behavior| !behavior.is_null()) {
            annotations.push((BEHAVIOR, rules::to_served(&behavior)));
        }
    }
    if let Some(status) = autoscaler.get_mut("status") {
        let measured = items(status, "currentMetrics");
        let cpu = measured.iter().filter(|metric| metric["resource"]["name"] == "cpu" && metric["type"] == "Resource");
        let percent =
            cpu.filter_map(|metric| present(&metric["resource"]["current"], "averageUtilization")).next_back();
        let (percent, measured) =
            (percent.cloned(), measured.iter().map(metrics::status_to_served).collect::<Vec<_>>());
        if !measured.is_empty() {
            annotations.push((CURRENT_METRICS, measured.into()));
        }
        if let Some(percent) = percent {
            status.set("currentCPUUtilizationPercentage", percent);
        }
        remove(status, "currentMetrics");
        if let Some(conditions) =
            remove(status, "conditions").filter(|all| all.as_array().is_some_and(|a| !a.is_empty()))
        {
            annotations.push((CONDITIONS, conditions));
        }
        set_default(status, "currentReplicas", 0);
        set_default(status, "desiredReplicas", 0);
    }
    for (name, value) in annotations {
        autoscaler.set_at(&["metadata", "annotations", name], value.to_string().into());
    }
}

/// Removes an annotation; the last one leaves no empty map.
fn take(autoscaler: &mut Value, name: &str) -> Option<(String, Value)> {
    let metadata = autoscaler.get_mut("metadata").filter(|metadata| metadata["annotations"].is_object())?;
    let annotations = object_mut(metadata, "annotations")?;
    let taken = annotations.remove(name)?;
    if annotations.is_empty() {
        remove(metadata, "annotations");
    }
    Some((name.to_owned(), taken))
}
