//! Common parts of the metrics of a spec and a status: their sources and amounts.

use serde_json::{Value, json};

use apimachinery::quantity;

/// Default target of CPU usage, in percent.
pub(super) const DEFAULT_CPU_UTILIZATION: i64 = 80;

/// The types of metrics, each with its field.
pub(super) const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// CPU usage, in percent of the request.
pub(super) fn cpu_utilization(percent: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// Whether a metric of a spec is one that `autoscaling/v1` has a field for.
pub(super) fn is_cpu_utilization(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && !metric["resource"]["target"]["averageUtilization"].is_null()
}

/// Calls `change` for each amount of a metric, of a spec or of a status.
pub(super) fn amounts<E>(metric: &mut Value, change: fn(&mut Value) -> Result<(), E>) -> Result<(), E> {
    for (_, source) in SOURCES {
        for holder in ["target", "current"] {
            let Some(holder) = metric.get_mut(source).and_then(|source| source.get_mut(holder)) else { continue };
            for field in ["value", "averageValue"] {
                holder.get_mut(field).map_or(Ok(()), change)?;
            }
        }
    }
    Ok(())
}

/// Brings the amounts of a metric to their canonical form.
pub(super) fn canonical(metric: &mut Value) {
    let _ = amounts(metric, |amount| {
        quantity::canonicalize(amount);
        Ok::<(), ()>(())
    });
}
