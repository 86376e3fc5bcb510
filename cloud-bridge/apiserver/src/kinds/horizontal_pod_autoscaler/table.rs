//! The row of a HorizontalPodAutoscaler.

use jiff::Timestamp;
use serde_json::Value;

use super::metric::SOURCES;
use crate::kinds::columns::{AGE, NAME, Table, age, name};
use apimachinery::json::{integer, items, present, text};

/// Metrics shown before `+ N more...`.
const SHOWN: usize = 2;

/// Table of HorizontalPodAutoscalers.
pub(super) const TABLE: Table<7> = Table {
    columns: [
        NAME,
        ("Reference", "string", 0, "What is scaled."),
        ("Targets", "string", 0, "The metrics that it is scaled by: as they are, and as they are wanted."),
        ("MinPods", "string", 0, "The least number of replicas."),
        ("MaxPods", "string", 0, "The greatest number of replicas."),
        ("Replicas", "string", 0, "How many replicas there were when it was last looked."),
        AGE,
    ],
    row,
};

/// The cells of one HorizontalPodAutoscaler.
fn row(autoscaler: &Value, now: Timestamp) -> [Value; 7] {
    let (spec, status) = (&autoscaler["spec"], &autoscaler["status"]);
    let target = &spec["scaleTargetRef"];
    let number = |holder: &Value, field: &str| Value::from(integer(holder, field).unwrap_or_default());
    [
        name(autoscaler),
        format!("{}/{}", text(target, "kind"), text(target, "name")).into(),
        metrics(items(spec, "metrics"), items(status, "currentMetrics")).into(),
        integer(spec, "minReplicas").map_or_else(|| "<unset>".to_owned(), |min| min.to_string()).into(),
        number(spec, "maxReplicas"),
        number(status, "currentReplicas"),
        age(autoscaler, now),
    ]
}

fn metrics(wanted: &[Value], current: &[Value]) -> String {
    if wanted.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> =
        wanted.iter().take(SHOWN).enumerate().map(|(index, metric)| one(metric, current.get(index))).collect();
    let shown = shown.join(", ");
    if wanted.len() > SHOWN { format!("{shown} + {} more...", wanted.len() - SHOWN) } else { shown }
}

/// Present and wanted value of a metric; `status` is that of the metric at the same place.
fn one(metric: &Value, status: Option<&Value>) -> String {
    let kind = text(metric, "type");
    let Some((_, field)) = SOURCES.iter().find(|(name, _)| *name == kind) else { return "<unknown type>".to_owned() };
    let (source, target) = (&metric[*field], &metric[*field]["target"]);
    let current = status.and_then(|status| present(status, field)).map(|status| &status["current"]);
    let amount = |holder: Option<&Value>, field: &str, missing: &str| {
        let value = holder.and_then(|holder| present(holder, field));
        value
            .map_or_else(|| missing.to_owned(), |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let percent = |holder: Option<&Value>, missing: &str| {
        let value = holder.and_then(|holder| integer(holder, "averageUtilization"));
        value.map_or_else(|| missing.to_owned(), |value| format!("{value}%"))
    };
    const UNKNOWN: &str = "<unknown>";
    let average = present(target, "averageValue").is_some() || kind == "Pods";
    let pair = match (kind, average) {
        ("Resource" | "ContainerResource", false) => {
            format!("{}/{}", percent(current, UNKNOWN), percent(Some(target), "<auto>"))
        }
        (_, true) => {
            format!("{}/{}", amount(current, "averageValue", UNKNOWN), amount(Some(target), "averageValue", "0"))
        }
        (_, false) => format!("{}/{}", amount(current, "value", UNKNOWN), amount(Some(target), "value", "0")),
    };
    match (kind, average) {
        ("Resource" | "ContainerResource", _) => format!("{}: {pair}", text(source, "name")),
        ("Object" | "External", true) => format!("{pair} (avg)"),
        _ => pair,
    }
}
