//! Lengths of the steps of the bridge's thread, from the file of a bridge that was built with `--cfg tokio_unstable`
//! (`cloud-bridge/src/steps.rs`).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

/// Maximum wait until the file includes the steps up to now.
const LATE: Duration = Duration::from_millis(2500);
/// Limits, in microseconds: of 99.9 % of the steps, and of each.
const USUAL: u64 = 5_000;
const LONGEST: u64 = 20_000;
/// Number of the longest steps, and of places, that are reported.
const TOLD: usize = 8;

#[derive(Debug, Clone, Default, Deserialize)]
struct Counts {
    passed: Vec<u64>,
    cpu: Vec<u64>,
    #[serde(rename = "cpuSeconds")]
    cpu_seconds: f64,
}

impl Counts {
    fn since(&self, before: &Self) -> Self {
        let then = |then: &[u64], at: usize| then.get(at).copied().unwrap_or_default();
        let less = |now: &[u64], before: &[u64]| {
            now.iter().enumerate().map(|(at, now)| now.saturating_sub(then(before, at))).collect()
        };
        Self {
            passed: less(&self.passed, &before.passed),
            cpu: less(&self.cpu, &before.cpu),
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
        }
    }
}

/// Content of the file.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Steps {
    ends: Vec<u64>,
    all: Counts,
    places: BTreeMap<String, Counts>,
    numbers: u64,
    /// Number, place, passed time and CPU time.
    long: Vec<(u64, String, u64, u64)>,
}

impl Steps {
    pub(crate) async fn read(file: &Path) -> anyhow::Result<Self> {
        tokio::time::sleep(LATE).await;
        let what = || format!("{}: was the bridge built with --cfg tokio_unstable?", file.display());
        let text = std::fs::read_to_string(file).with_context(what)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// One line for each figure of the time since `before`.
    pub(crate) fn since(&self, before: &Self) -> Vec<String> {
        let all = self.all.since(&before.all);
        let mut lines = Vec::new();
        for (what, counts) in [("CPU time", &all.cpu), ("passed time", &all.passed)] {
            let sum: u64 = counts.iter().sum();
            let over = |bound: u64| {
                let longer =
                    counts.iter().enumerate().filter(|(at, _)| self.ends.get(*at).is_none_or(|end| *end > bound));
                longer.map(|(_, count)| *count).sum::<u64>()
            };
            let usual = 100.0 * (sum - over(USUAL)) as f64 / sum.max(1) as f64;
            lines.push(format!(
                "{what}: {sum} steps, {usual:.4} % within 5 ms, {} over 5 ms, {} over 20 ms; {}",
                over(USUAL),
                over(LONGEST),
                self.histogram(counts)
            ));
        }
        let mut long: Vec<_> = self.long.iter().filter(|one| one.0 > before.numbers).collect();
        long.sort_by_key(|one| std::cmp::Reverse(one.3));
        let told = long.iter().take(TOLD).map(|(_, place, passed, cpu)| {
            format!("{place} {:.1} ms ({:.1} ms passed)", *cpu as f64 / 1000.0, *passed as f64 / 1000.0)
        });
        lines.push(format!("longest by CPU time: {}", told.collect::<Vec<_>>().join(", ")));
        let nothing = Counts::default();
        let since = |(place, now): (&'_ String, &Counts)| {
            (place.clone(), now.since(before.places.get(place).unwrap_or(&nothing)))
        };
        let mut places: Vec<(String, Counts)> = self.places.iter().map(since).collect();
        places.sort_by(|one, other| other.1.cpu_seconds.total_cmp(&one.1.cpu_seconds));
        let told = places.iter().take(TOLD).map(|(place, counts)| format!("{place} {:.2} s", counts.cpu_seconds));
        lines.push(format!("most CPU time: {}", told.collect::<Vec<_>>().join(", ")));
        lines
    }

    fn histogram(&self, counts: &[u64]) -> String {
        let told = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| {
            let end = self.ends.get(at).map_or("more".to_owned(), |end| format!("<={} ms", *end as f64 / 1000.0));
            format!("{end}: {count}")
        });
        told.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(cpu: &str, numbers: u64) -> Steps {
        let counts = format!(r#"{{"passed": {cpu}, "cpu": {cpu}, "cpuSeconds": 1.0}}"#);
        let long = r#"[[1, "a", 9000, 8000], [2, "b", 31000, 30000]]"#;
        let text = format!(
            r#"{{"ends": [5000, 20000], "all": {counts}, "places": {{}}, "numbers": {numbers}, "long": {long}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_was_before_is_not_counted() {
        let lines = steps("[1009, 2, 1]", 2).since(&steps("[10, 2, 0]", 1));
        let first = "CPU time: 1000 steps, 99.9000 % within 5 ms, 1 over 5 ms, 1 over 20 ms; <=5 ms: 999, more: 1";
        assert_eq!(lines.first().map(String::as_str), Some(first));
        assert_eq!(lines.get(2).map(String::as_str), Some("longest by CPU time: b 30.0 ms (31.0 ms passed)"));
    }
}
