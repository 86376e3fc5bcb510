//! Usage between two measurements of a node: from counters to rates. Pure.
//!
//! Measurements are the objects of a kubelet's `/stats/summary`; rates are in billionths of a core.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

/// Use of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Billionths of a core.
    pub cpu: u64,
    /// Bytes of the working set; none where the kernel does not count memory (a Raspberry Pi's has that controller off).
    pub memory: Option<u64>,
}

/// Use of one pod: its containers by name, in the order of the measurement.
pub(crate) type PodUsage = Vec<(String, Usage)>;

/// Use of the node, if it was measured both times.
pub(crate) fn node(before: &Value, now: &Value, between: Duration) -> Option<Usage> {
    rate(&before["node"], &now["node"], between)
}

/// Usage of the pods, by uid. A pod with a container without data is omitted, as in metrics-server: a part would look
/// like the whole.
pub(crate) fn pods(before: &Value, now: &Value, between: Duration) -> HashMap<String, PodUsage> {
    let list = |summary: &Value| summary["pods"].as_array().cloned().unwrap_or_default();
    let before: HashMap<String, Value> =
        list(before).into_iter().map(|pod| (text(&pod["podRef"]["uid"]).to_owned(), pod)).collect();
    let mut found = HashMap::new();
    for pod in list(now) {
        let uid = text(&pod["podRef"]["uid"]);
        let old = before.get(uid).unwrap_or(&Value::Null);
        let containers = pod["containers"].as_array().into_iter().flatten();
        let usage: Option<PodUsage> = containers
            .map(|container| {
                let name = text(&container["name"]);
                let old = old["containers"].as_array().into_iter().flatten().find(|old| text(&old["name"]) == name)?;
                // One that was started again counts from nothing.
                let same = old["startTime"] == container["startTime"];
                rate(if same { old } else { &Value::Null }, container, between).map(|usage| (name.to_owned(), usage))
            })
            .collect();
        if let Some(usage) = usage.filter(|usage| !usage.is_empty()) {
            found.insert(uid.to_owned(), usage);
        }
    }
    found
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn rate(before: &Value, now: &Value, between: Duration) -> Option<Usage> {
    let memory = now["memory"]["workingSetBytes"].as_u64();
    let total = |stats: &Value| stats["cpu"]["usageCoreNanoSeconds"].as_u64();
    let used = total(now)?.checked_sub(total(before)?)?;
    let nanos = between.as_nanos().max(1);
    let cpu = u128::from(used) * 1_000_000_000 / nanos;
    Some(Usage { cpu: u64::try_from(cpu).unwrap_or(u64::MAX), memory })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(nanos: u64, started: &str) -> Value {
        let stats = json!({"usageCoreNanoSeconds": nanos});
        let container = json!({"name": "c", "startTime": started, "cpu": stats, "memory": {"workingSetBytes": 4096}});
        json!({
            "node": {"cpu": stats, "memory": {"workingSetBytes": 1 << 20}},
            "pods": [{"podRef": {"uid": "u"}, "containers": [container]}],
        })
    }

    #[test]
    fn a_counter_becomes_a_rate() {
        let (before, now) = (summary(1_000_000_000, "t"), summary(1_500_000_000, "t"));
        let between = Duration::from_secs(2);
        let expected = Usage { cpu: 250_000_000, memory: Some(4096) };
        assert_eq!(node(&before, &now, between), Some(Usage { memory: Some(1 << 20), ..expected }));
        assert_eq!(pods(&before, &now, between)["u"], [("c".to_owned(), expected)]);
    }

    #[test]
    fn cpu_is_told_without_memory() {
        let without = |mut summary: Value| {
            summary["pods"][0]["containers"][0]["memory"] = json!({});
            summary
        };
        let (before, now) = (summary(0, "t"), summary(500_000_000, "t"));
        let found = pods(&without(before), &without(now), Duration::from_secs(1));
        assert_eq!(found["u"], [("c".to_owned(), Usage { cpu: 500_000_000, memory: None })]);
    }

    #[test]
    fn what_cannot_be_told_is_left_out() {
        let between = Duration::from_secs(1);
        let restarted = pods(&summary(9, "t"), &summary(1, "later"), between);
        assert!(restarted.is_empty());
        assert!(pods(&json!({}), &summary(1, "t"), between).is_empty());
        assert_eq!(node(&summary(9, "t"), &summary(1, "t"), between), None, "a board that booted again");
        assert_eq!(node(&json!({}), &json!({}), Duration::ZERO), None);
    }
}
