//! `/metrics/resource`: measurements in Prometheus' text format, with the names and labels of a kubelet
//! (K8s pkg/kubelet/metrics/collectors/resource_metrics.go). Pure.

use std::fmt::Write;

use jiff::Timestamp;
use serde_json::Value;

/// What a metric is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Container,
    Node,
    Pod,
}

/// One metric of a summary: its name, help and type, where its value is, and under which key the time of that.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    scope: Scope,
    value: fn(&Value) -> Option<f64>,
    time: Option<&'static str>,
}

const fn counter(scope: Scope, name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: "counter", scope, value: cpu_seconds, time: Some("cpu") }
}

const fn gauge(
    scope: Scope,
    name: &'static str,
    help: &'static str,
    value: fn(&Value) -> Option<f64>,
    time: &'static str,
) -> Family {
    Family { name, help, kind: "gauge", scope, value, time: Some(time) }
}

/// Families in the order of a kubelet.
const FAMILIES: &[Family] = &[
    counter(
        Scope::Container,
        "container_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
    ),
    gauge(
        Scope::Container,
        "container_memory_working_set_bytes",
        "[STABLE] Current working set of the container in bytes",
        working_set,
        "memory",
    ),
    Family {
        name: "container_start_time_seconds",
        help: "[STABLE] Start time of the container since unix epoch in seconds",
        kind: "gauge",
        scope: Scope::Container,
        value: started,
        time: None,
    },
    gauge(
        Scope::Container,
        "container_swap_usage_bytes",
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        swap,
        "swap",
    ),
    counter(
        Scope::Node,
        "node_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
    ),
    gauge(
        Scope::Node,
        "node_memory_working_set_bytes",
        "[STABLE] Current working set of the node in bytes",
        working_set,
        "memory",
    ),
    gauge(
        Scope::Node,
        "node_swap_usage_bytes",
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        swap,
        "swap",
    ),
    counter(
        Scope::Pod,
        "pod_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
    ),
    gauge(
        Scope::Pod,
        "pod_memory_working_set_bytes",
        "[STABLE] Current working set of the pod in bytes",
        working_set,
        "memory",
    ),
    gauge(
        Scope::Pod,
        "pod_swap_usage_bytes",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        swap,
        "swap",
    ),
];

/// Whether measuring failed, as newer and as older clients look for it.
const FAILED: [(&str, &str); 2] = [
    ("resource_scrape_error", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise"),
    (
        "scrape_error",
        "[ALPHA] (Deprecated since 1.29.0) 1 if there was an error while getting container metrics, 0 otherwise",
    ),
];

fn cpu_seconds(stats: &Value) -> Option<f64> {
    stats["cpu"]["usageCoreNanoSeconds"].as_f64().map(|nanos| nanos / 1e9)
}

fn working_set(stats: &Value) -> Option<f64> {
    stats["memory"]["workingSetBytes"].as_f64()
}

fn swap(stats: &Value) -> Option<f64> {
    stats["swap"]["swapUsageBytes"].as_f64()
}

fn started(stats: &Value) -> Option<f64> {
    let started = stats["startTime"].as_str()?.parse::<Timestamp>().ok()?.as_second();
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 have 31 bits")]
    (started > 0).then_some(started as f64)
}

/// Formats a float like Go: plain digits up to about 2^53, above it with an exponent.
fn number(value: f64) -> String {
    if value != 0.0 && (value.abs() >= 1e21 || value.abs() < 1e-6) { format!("{value:e}") } else { format!("{value}") }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The document. Without measurements it only reports the error.
pub(crate) fn resource(summary: Option<&Value>) -> String {
    let failed = u8::from(summary.is_none());
    let subjects = summary.map(subjects).unwrap_or_default();
    let mut text = String::new();
    // Writing to a string does not fail.
    for Family { name, help, kind, scope, value, time } in FAMILIES {
        let mut headed = false;
        for (_, labels, stats) in subjects.iter().filter(|(of, ..)| of == scope) {
            let Some(value) = value(stats) else { continue };
            if !std::mem::replace(&mut headed, true) {
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            }
            let _ = write!(text, "{name}{labels} {}", number(value));
            let at = time.and_then(|key| stats[key]["time"].as_str()).and_then(|time| time.parse::<Timestamp>().ok());
            if let Some(at) = at {
                let _ = write!(text, " {}", at.as_millisecond());
            }
            text.push('\n');
        }
    }
    for (name, help) in FAILED {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {failed}\n");
    }
    text
}

/// All that is measured, with its labels.
fn subjects(summary: &Value) -> Vec<(Scope, String, &Value)> {
    let mut all = vec![(Scope::Node, String::new(), &summary["node"])];
    for pod in summary["pods"].as_array().into_iter().flatten() {
        let text = |value: &Value| escape(value.as_str().unwrap_or_default());
        let of_pod =
            format!("namespace=\"{}\",pod=\"{}\"", text(&pod["podRef"]["namespace"]), text(&pod["podRef"]["name"]));
        for container in pod["containers"].as_array().into_iter().flatten() {
            all.push((Scope::Container, format!("{{container=\"{}\",{of_pod}}}", text(&container["name"])), container));
        }
        all.push((Scope::Pod, format!("{{{of_pod}}}"), pod));
    }
    all
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
