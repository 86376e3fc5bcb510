//! Pods start while thirty loops in other pods ask the local API without a pause. The times are printed: a strict bound
//! needs a quiet host.

use std::io::Write;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{can_run, until};
use serde_json::json;

use crate::everyday::PYTHON;
use crate::site::Site;

/// Pods that flood; each has as many threads as it may have requests, less two.
const PODS: usize = 5;
const THREADS: usize = 6;
const STARTS: usize = 5;

/// Times from `kubectl apply` of a pod until it is shown as Running, shortest first.
fn starts(site: &Site, prefix: &str) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..STARTS)
        .map(|number| {
            let name = format!("{prefix}-{number}");
            let start = Instant::now();
            site.kubectl().apply_all(&[pod(&name, &site.node.name, json!([shell("c", "exec sleep 1000")]))]);
            let _ = site.kubectl().wait_phase(&name, "Running");
            start.elapsed()
        })
        .collect();
    times.sort();
    times
}

/// Lists that a pod got so far.
fn answered(said: &str) -> u64 {
    let counts = said.lines().filter_map(|line| line.strip_prefix("answered ")?.parse().ok());
    counts.max().unwrap_or_default()
}

#[test]
fn l6_flood_of_requests_lets_pods_start() {
    if !can_run() {
        return;
    }
    let site = Site::start("api-flood");
    let quiet = starts(&site, "quiet");
    let names: [String; PODS] = std::array::from_fn(|number| format!("flood-{number}"));
    site.kubectl().apply_all(&names.each_ref().map(|name| site.pod(name, &format!("{PYTHON} flood {THREADS}"))));
    let total = || names.iter().map(|name| answered(&site.said(name))).sum::<u64>();
    for name in &names {
        until(Duration::from_secs(60), &format!("{name} gets answers"), || {
            let said = site.said(name);
            if answered(&said) > 0 { Ok(()) } else { Err(said + &site.errors(name)) }
        });
    }
    let before = total();
    let flooded = starts(&site, "flooded");
    assert!(total() > before, "they flood until the end");
    // Shows the reader both times.
    let _ = writeln!(
        std::io::stderr(),
        "apply to Running, shortest first: quiet {quiet:.2?}, beside {} lists {flooded:.2?}",
        total() - before
    );
}
