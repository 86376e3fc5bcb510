//! `/metrics/resource`: measurements in Prometheus' text format, with the names and labels of a kubelet
//! (K8s pkg/kubelet/metrics/collectors/resource_metrics.go). Pure.

use std::fmt::Write;

use jiff::Timestamp;
use serde_json::Value;

/// One metric: its name, help and type, and its lines.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    lines: String,
}

impl Family {
    fn new(name: &'static str, help: &'static str, kind: &'static str) -> Self {
        Self { name, help, kind, lines: String::new() }
    }

    fn add(&mut self, labels: &str, value: Option<f64>, time: Option<&Value>) {
        let Some(value) = value else { return };
        // Writing to a string does not fail.
        let _ = write!(self.lines, "{}{labels} {}", self.name, number(value));
        let millis = time.and_then(Value::as_str).and_then(|time| time.parse::<Timestamp>().ok());
        if let Some(time) = millis {
            let _ = write!(self.lines, " {}", time.as_millisecond());
        }
        self.lines.push('\n');
    }
}

/// As Go writes a float: in plain digits up to 2^53 or so, else with an exponent.
fn number(value: f64) -> String {
    if value != 0.0 && (value.abs() >= 1e21 || value.abs() < 1e-6) { format!("{value:e}") } else { format!("{value}") }
}

fn nanoseconds(stats: &Value) -> Option<f64> {
    stats["cpu"]["usageCoreNanoSeconds"].as_f64().map(|nanos| nanos / 1e9)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The document. Without measurements, only that there are none.
pub(crate) fn resource(summary: Option<&Value>) -> String {
    let mut container_cpu = Family::new(
        "container_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        "counter",
    );
    let mut container_memory = Family::new(
        "container_memory_working_set_bytes",
        "[STABLE] Current working set of the container in bytes",
        "gauge",
    );
    let mut container_start = Family::new(
        "container_start_time_seconds",
        "[STABLE] Start time of the container since unix epoch in seconds",
        "gauge",
    );
    let mut container_swap = Family::new(
        "container_swap_usage_bytes",
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        "gauge",
    );
    let mut node_cpu = Family::new(
        "node_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        "counter",
    );
    let mut node_memory =
        Family::new("node_memory_working_set_bytes", "[STABLE] Current working set of the node in bytes", "gauge");
    let mut node_swap = Family::new(
        "node_swap_usage_bytes",
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        "gauge",
    );
    let mut pod_cpu = Family::new(
        "pod_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        "counter",
    );
    let mut pod_memory =
        Family::new("pod_memory_working_set_bytes", "[STABLE] Current working set of the pod in bytes", "gauge");
    let mut pod_swap = Family::new(
        "pod_swap_usage_bytes",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        "gauge",
    );
    let failed = if summary.is_some() { 0.0 } else { 1.0 };
    let mut old_error = Family::new(
        "scrape_error",
        "[ALPHA] (Deprecated since 1.29.0) 1 if there was an error while getting container metrics, 0 otherwise",
        "gauge",
    );
    old_error.add("", Some(failed), None);
    let mut error = Family::new(
        "resource_scrape_error",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        "gauge",
    );
    error.add("", Some(failed), None);

    let summary = summary.unwrap_or(&Value::Null);
    let node = &summary["node"];
    node_cpu.add("", nanoseconds(node), Some(&node["cpu"]["time"]));
    node_memory.add("", node["memory"]["workingSetBytes"].as_f64(), Some(&node["memory"]["time"]));
    node_swap.add("", node["swap"]["swapUsageBytes"].as_f64(), Some(&node["swap"]["time"]));
    for pod in summary["pods"].as_array().into_iter().flatten() {
        let text = |value: &Value| escape(value.as_str().unwrap_or_default());
        let of_pod =
            format!("namespace=\"{}\",pod=\"{}\"", text(&pod["podRef"]["namespace"]), text(&pod["podRef"]["name"]));
        for container in pod["containers"].as_array().into_iter().flatten() {
            let labels = format!("{{container=\"{}\",{of_pod}}}", text(&container["name"]));
            let started = container["startTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
            let started = started.map(Timestamp::as_second).filter(|seconds| *seconds > 0);
            #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 have 31 bits")]
            container_start.add(&labels, started.map(|seconds| seconds as f64), None);
            container_cpu.add(&labels, nanoseconds(container), Some(&container["cpu"]["time"]));
            let memory = &container["memory"];
            container_memory.add(&labels, memory["workingSetBytes"].as_f64(), Some(&memory["time"]));
            container_swap.add(&labels, container["swap"]["swapUsageBytes"].as_f64(), Some(&container["swap"]["time"]));
        }
        let labels = format!("{{{of_pod}}}");
        pod_cpu.add(&labels, nanoseconds(pod), Some(&pod["cpu"]["time"]));
        pod_memory.add(&labels, pod["memory"]["workingSetBytes"].as_f64(), Some(&pod["memory"]["time"]));
        pod_swap.add(&labels, pod["swap"]["swapUsageBytes"].as_f64(), Some(&pod["swap"]["time"]));
    }

    let mut text = String::new();
    let families = [
        container_cpu,
        container_memory,
        container_start,
        container_swap,
        node_cpu,
        node_memory,
        node_swap,
        pod_cpu,
        pod_memory,
        pod_swap,
        error,
        old_error,
    ];
    for Family { name, help, kind, lines } in families.into_iter().filter(|family| !family.lines.is_empty()) {
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
    }
    text
}

/// What `only_cpu_and_memory=true` leaves of a summary.
pub(crate) fn only_cpu_and_memory(summary: &mut Value) {
    fn keep(stats: &mut Value, also: &[&str]) {
        if let Some(stats) = stats.as_object_mut() {
            stats.retain(|key, _| {
                matches!(key.as_str(), "startTime" | "cpu" | "memory") || also.contains(&key.as_str())
            });
        }
    }
    fn items<'a>(stats: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
        stats.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
    }
    if let Some(node) = summary.get_mut("node") {
        keep(node, &["nodeName", "systemContainers"]);
    }
    for pod in items(summary, "pods") {
        keep(pod, &["podRef", "containers"]);
        for container in items(pod, "containers") {
            keep(container, &["name"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary() -> Value {
        let stats = |nanos: u64, bytes: u64| {
            json!({
                "cpu": {"time": "2026-03-01T10:00:00Z", "usageNanoCores": 5, "usageCoreNanoSeconds": nanos},
                "memory": {"time": "2026-03-01T10:00:00Z", "workingSetBytes": bytes, "usageBytes": bytes + 1},
            })
        };
        let mut container = stats(1_500_000_000, 4096);
        container["name"] = "c".into();
        container["startTime"] = "2026-03-01T09:00:00Z".into();
        container["rootfs"] = json!({"usedBytes": 1});
        let mut pod = stats(2_000_000_000, 8192);
        pod["podRef"] = json!({"name": "p", "namespace": "ns", "uid": "u"});
        pod["containers"] = json!([container]);
        let mut node = stats(12_345_678_901_234, 1 << 30);
        node["nodeName"] = "n".into();
        json!({"node": node, "pods": [pod]})
    }

    #[test]
    fn metrics_are_those_of_a_kubelet() {
        let text = resource(Some(&summary()));
        for line in [
            "# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds",
            "# TYPE node_cpu_usage_seconds_total counter",
            "node_cpu_usage_seconds_total 12345.678901234 1772359200000",
            "node_memory_working_set_bytes 1073741824 1772359200000",
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\",pod=\"p\"} 1.5 1772359200000",
            "container_start_time_seconds{container=\"c\",namespace=\"ns\",pod=\"p\"} 1772355600",
            "pod_cpu_usage_seconds_total{namespace=\"ns\",pod=\"p\"} 2 1772359200000",
            "pod_memory_working_set_bytes{namespace=\"ns\",pod=\"p\"} 8192 1772359200000",
            "scrape_error 0",
            "resource_scrape_error 0",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(!text.contains("swap"), "{text}");
        assert!(resource(None).contains("\nresource_scrape_error 1\n"));
    }

    #[test]
    fn nonsense_of_a_node_is_cut_down_to_nonsense() {
        for text in
            ["[]", "1", "null", "\"x\"", r#"{"pods":[1,[],null,{"containers":[1,[]]}]}"#, r#"{"node":[],"pods":{}}"#]
        {
            let mut summary: Value = serde_json::from_str(text).unwrap();
            let before = summary.clone();
            only_cpu_and_memory(&mut summary);
            assert_eq!(summary, before, "{text}");
            assert!(resource(Some(&summary)).contains("resource_scrape_error 0"), "{text}");
        }
    }

    #[test]
    fn a_summary_is_cut_down() {
        let mut summary = summary();
        only_cpu_and_memory(&mut summary);
        let container = &summary["pods"][0]["containers"][0];
        assert!(container["rootfs"].is_null() && container["name"] == "c" && container["cpu"].is_object());
        assert_eq!(summary["node"]["nodeName"], "n");
    }
}
