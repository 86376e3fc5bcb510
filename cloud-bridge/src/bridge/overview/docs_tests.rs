//! Holds `docs/reference/metrics.md` against the metrics of the bridge.

use sampan_floors::pages::{cell, code, hold};

use super::{NodeView, metrics};

const AGAIN: &str = "SAMPAN_UPDATE_DOCS=1 cargo test -p cloud-bridge --lib docs_tests";

/// Rows of a table, made from a text with one sample of each metric: its lines of help, type and sample.
fn rows(text: &str) -> String {
    let (mut help, mut kind) = ("", "");
    let mut rows = String::new();
    for line in text.lines() {
        if let Some((_, words)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help = words;
        } else if let Some((_, word)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind = word;
        } else {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let label = line.split_once('{').and_then(|(_, rest)| rest.split_once('=')).map(|(label, _)| code(label));
            let label = label.unwrap_or_default();
            rows.push_str(&format!("| {} | {kind} | {label} | {} |\n", code(name), cell(help.trim_end_matches('.'))));
        }
    }
    rows
}

#[test]
fn page_of_metrics_is_up_to_date() {
    let node = NodeView {
        node: "edge-1".to_owned(),
        connected: true,
        since: None,
        last_seen: Some("1970-01-01T00:01:00Z".to_owned()),
        epoch: 1,
        sequence: 1,
        acked: Some(1),
        objects: 1,
        queue_bytes: 0,
        report_bytes: 0,
        rtt_ms: Some(1),
        no_kubelet_port: false,
    };
    let text = metrics(&[node]);
    let rows = rows(&text);
    assert_eq!(rows.lines().count(), text.matches("# TYPE ").count(), "one sample of each: {text}");
    assert!(rows.contains("| `sampan_bridge_node_rtt_seconds` | gauge | `node` | "), "{rows}");
    let table = format!("| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}");
    hold("reference/metrics.md", "bridge", &table, AGAIN);
}
