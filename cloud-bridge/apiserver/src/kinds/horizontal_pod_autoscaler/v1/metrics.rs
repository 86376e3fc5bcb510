//! Metrics in annotations of `autoscaling/v1`: the same facts under other names.

use k8s_openapi::api::autoscaling::v2;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::checked::{amount, typed};
use crate::kinds::horizontal_pod_autoscaler::metric::{self, SOURCES};
use apimachinery::json::{present, set_default};
use apimachinery::quantity::Quantity;

/// Where a field of a source is: in the annotation, and as stored.
type Names = &'static [(&'static str, &'static [&'static str])];

const VALUE: &[&str] = &["target", "value"];
const AVERAGE: &[&str] = &["target", "averageValue"];
const UTILIZATION: &[&str] = &["target", "averageUtilization"];
const METRIC: &[&str] = &["metric", "name"];
const SELECTOR: &[&str] = &["metric", "selector"];
const NOW: &[&str] = &["current", "value"];
const AVERAGE_NOW: &[&str] = &["current", "averageValue"];
const UTILIZATION_NOW: &[&str] = &["current", "averageUtilization"];

/// The fields of a source in a spec.
fn wanted(source: &str) -> Names {
    match source {
        "object" => &[
            ("target", &["describedObject"]),
            ("metricName", METRIC),
            ("targetValue", VALUE),
            ("selector", SELECTOR),
            ("averageValue", AVERAGE),
        ],
        "pods" => &[("metricName", METRIC), ("targetAverageValue", AVERAGE), ("selector", SELECTOR)],
        "resource" => {
            &[("name", &["name"]), ("targetAverageUtilization", UTILIZATION), ("targetAverageValue", AVERAGE)]
        }
        "containerResource" => &[
            ("name", &["name"]),
            ("targetAverageUtilization", UTILIZATION),
            ("targetAverageValue", AVERAGE),
            ("container", &["container"]),
        ],
        _ => &[
            ("metricName", METRIC),
            ("metricSelector", SELECTOR),
            ("targetValue", VALUE),
            ("targetAverageValue", AVERAGE),
        ],
    }
}

/// The fields of a source in a status.
fn measured(source: &str) -> Names {
    match source {
        "object" => &[
            ("target", &["describedObject"]),
            ("metricName", METRIC),
            ("currentValue", NOW),
            ("selector", SELECTOR),
            ("averageValue", AVERAGE_NOW),
        ],
        "pods" => &[("metricName", METRIC), ("currentAverageValue", AVERAGE_NOW), ("selector", SELECTOR)],
        "resource" => {
            &[("name", &["name"]), ("currentAverageUtilization", UTILIZATION_NOW), ("currentAverageValue", AVERAGE_NOW)]
        }
        "containerResource" => &[
            ("name", &["name"]),
            ("currentAverageUtilization", UTILIZATION_NOW),
            ("currentAverageValue", AVERAGE_NOW),
            ("container", &["container"]),
        ],
        _ => &[
            ("metricName", METRIC),
            ("metricSelector", SELECTOR),
            ("currentValue", NOW),
            ("currentAverageValue", AVERAGE_NOW),
        ],
    }
}

/// Amounts that `autoscaling/v1` cannot leave out: none is zero.
const ALWAYS: [(&str, &str); 6] = [
    ("object", "targetValue"),
    ("object", "currentValue"),
    ("pods", "targetAverageValue"),
    ("pods", "currentAverageValue"),
    ("resource", "currentAverageValue"),
    ("containerResource", "currentAverageValue"),
];

/// Converts the metrics of an annotation to those of the spec; `None` if they are malformed.
pub(super) fn specs_to_stored(given: &Value) -> Option<Vec<Value>> {
    let mut metrics = given.as_array()?.iter().map(|metric| stored(metric, wanted)).collect::<Option<Vec<_>>>()?;
    metrics.iter_mut().for_each(target_types);
    typed::<Vec<v2::MetricSpec>>(&Value::from(metrics.clone())).then_some(metrics)
}

/// Converts the metrics of an annotation to those of the status; `None` if they are malformed.
pub(super) fn statuses_to_stored(given: &Value) -> Option<Vec<Value>> {
    let metrics = given.as_array()?.iter().map(|metric| stored(metric, measured)).collect::<Option<Vec<_>>>()?;
    typed::<Vec<v2::MetricStatus>>(&Value::from(metrics.clone())).then_some(metrics)
}

/// A metric of the spec as the annotation has it.
pub(super) fn spec_to_served(metric: &Value) -> Value {
    served(metric, wanted, "target")
}

/// A metric of the status as the annotation has it.
pub(super) fn status_to_served(metric: &Value) -> Value {
    served(metric, measured, "current")
}

fn stored(given: &Value, names: fn(&str) -> Names) -> Option<Value> {
    let mut metric = json!({"type": given.as_object()?.get("type").cloned().unwrap_or_else(|| "".into())});
    for (_, source) in SOURCES {
        let Some(old) = present(given, source) else { continue };
        old.as_object()?;
        metric.set(source, json!({}));
        for (name, path) in names(source) {
            if let Some(value) = present(old, name) {
                let path: Vec<&str> = [source].into_iter().chain(path.iter().copied()).collect();
                metric.set_at(&path, value.clone());
            } else if ALWAYS.contains(&(source, name)) && path.first() == Some(&"current") {
                let path: Vec<&str> = [source].into_iter().chain(path.iter().copied()).collect();
                metric.set_at(&path, "0".into());
            }
        }
    }
    metric::amounts(&mut metric, |one| if amount(one) { Ok(()) } else { Err(()) }).ok()?;
    Some(metric)
}

/// The type of a target follows from the value that it has.
fn target_types(metric: &mut Value) {
    for (_, source) in SOURCES {
        let Some(source_of) = metric.get_mut(source).filter(|source| source.is_object()) else { continue };
        let has = |field: &str| present(&source_of["target"], field).is_some();
        let kind = match source {
            "resource" | "containerResource" if has("averageUtilization") => "Utilization",
            "object" if !has("averageValue") => "Value",
            "external" if has("value") => "Value",
            _ => "AverageValue",
        };
        let zero = Quantity::from_value(&source_of["target"]["value"]).is_some_and(Quantity::is_zero);
        if source == "object" && kind == "AverageValue" && zero {
            source_of.set_at(&["target", "value"], Value::Null);
        }
        source_of.set_at(&["target", "type"], kind.into());
    }
}

fn served(metric: &Value, names: fn(&str) -> Names, holder: &str) -> Value {
    let mut out = json!({ "type": metric["type"] });
    for (_, source) in SOURCES {
        let Some(new) = present(metric, source) else { continue };
        out.set(source, json!({}));
        let Some(old) = out.get_mut(source) else { continue };
        for (name, path) in names(source) {
            let value = path.iter().try_fold(new, |value, part| present(value, part));
            if let Some(value) = value {
                old.set(name, value.clone());
            } else if ALWAYS.contains(&(source, name)) && path.first() == Some(&holder) {
                set_default(old, name, "0");
            }
        }
    }
    out
}
