//! Measurements of pods, in the format of `metrics.k8s.io` (K8s pkg/controller/podautoscaler/metrics/client.go). Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use apimachinery::json::{items, text};
use apimachinery::quantity::Quantity;

/// The use of a resource by a pod, or by one of its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Value in thousandths.
    pub(crate) value: i64,
    pub(crate) timestamp: Timestamp,
    /// Length of the measurement, which ends at the timestamp.
    pub(crate) window: Duration,
}

/// The use of a resource by each of these pods, by name: of one container where one is named. A pod of which a part is
/// missing is left out.
pub(crate) fn samples(pods: &[Value], resource: &str, container: &str) -> Result<BTreeMap<String, Sample>, String> {
    if pods.is_empty() {
        return Err("no metrics returned from resource metrics API".to_owned());
    }
    let sample = |pod: &Value| {
        let used = |one: &Value| Quantity::from_value(&one["usage"][resource]).map(Quantity::millis);
        let containers = items(pod, "containers");
        let value = if container.is_empty() {
            let parts: Option<Vec<i64>> = containers.iter().map(used).collect();
            parts.filter(|parts| !parts.is_empty())?.into_iter().fold(0, i64::saturating_add)
        } else {
            used(containers.iter().find(|one| text(one, "name") == container)?)?
        };
        let timestamp = text(pod, "timestamp").parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let window = duration(text(pod, "window")).unwrap_or_default();
        Some((text(&pod["metadata"], "name").to_owned(), Sample { value, timestamp, window }))
    };
    Ok(pods.iter().filter_map(sample).collect())
}

/// A time as Go writes it: `1m30s`, `15.066s`, `1000ms`.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        (sum, rest) = (sum.checked_add(part)?, after);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_read_as_go_writes_them() {
        for (text, millis) in
            [("1000ms", 1000), ("1m30s", 90_000), ("15.066s", 15_066), ("0s", 0), ("2h0m0s", 7_200_000)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["1", "s", "1x", "-1s", "1..2s", "1e400s", "99999999999999999999999h"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_pod_of_which_a_part_is_missing_is_left_out() {
        let pod = |name: &str, containers: Value| {
            json!({"metadata": {"name": name}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
                "containers": containers})
        };
        let used = |name: &str, cpu: &str| json!({"name": name, "usage": {"cpu": cpu}});
        let all = [
            pod("a", json!([used("x", "1500000n"), used("y", "2m")])),
            pod("b", json!([used("x", "1m"), {"name": "y", "usage": {"memory": "1Ki"}}])),
            pod("c", json!([])),
            json!({"containers": 1}),
        ];
        let values = |container: &str| -> Vec<(String, i64)> {
            let samples = samples(&all, "cpu", container).unwrap();
            samples.into_iter().map(|(name, sample)| (name, sample.value)).collect()
        };
        assert_eq!(values(""), [("a".to_owned(), 4)]);
        assert_eq!(values("x"), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        assert!(samples(&[], "cpu", "").is_err());
    }
}
