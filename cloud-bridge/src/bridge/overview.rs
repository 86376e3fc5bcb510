//! How every node that this bridge knows is: for people (`cloud-bridge nodes`), and as metrics in the text format of
//! Prometheus. Reads only; decides nothing.

#[cfg(test)]
mod docs_tests;

use std::fmt::Write;
use std::time::SystemTime;

use apimachinery::meta::rfc3339;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::node::Node;
use super::{Bridge, counters, process, refused_ports};

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    pub node: String,
    pub connected: bool,
    /// RFC 3339: when the present connection began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// RFC 3339: when the last frame arrived at this bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    /// Fencing number of the newest connection to any bridge.
    pub epoch: u64,
    /// Number of the newest change that the node should have.
    pub sequence: u64,
    /// Number of the last change that it has committed on this connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked: Option<u64>,
    /// Objects that it should hold.
    pub objects: usize,
    /// Bytes of changes sent and not acknowledged.
    pub queue_bytes: usize,
    /// Bytes of reports that are not in the API yet.
    pub report_bytes: usize,
    /// Round trip as the node last measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<u32>,
    /// No port was free for its kubelet API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_kubelet_port: bool,
}

/// How a node is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkView {
    /// When the present connection to this bridge began.
    pub since: Option<SystemTime>,
    /// When the last frame arrived here.
    pub last_seen: Option<SystemTime>,
    /// Another bridge has connected it after this one.
    pub elsewhere: bool,
}

impl Bridge {
    /// All nodes that this bridge knows, by name. Ones of other bridges are not among them.
    pub fn overview(&self) -> Vec<NodeView> {
        let mut nodes = self.shared.nodes.all();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.iter().map(|node| view(node)).collect()
    }

    /// One of them.
    pub fn node_view(&self, name: &str) -> Option<NodeView> {
        self.shared.nodes.get(name).map(|node| view(&node))
    }

    /// The links of all of them, in no order: cheap enough to be asked twice a second.
    pub fn each_link(&self, mut each: impl FnMut(&str, LinkView)) {
        for node in self.shared.nodes.all() {
            let (since, last_seen, elsewhere) = node.glance();
            each(&node.name, LinkView { since, last_seen, elsewhere });
        }
    }
}

fn view(node: &Node) -> NodeView {
    let (epoch, since, link_stats) = node.look();
    let last_seen = node.last_seen();
    let state = node.state();
    NodeView {
        node: node.name.clone(),
        connected: since.is_some(),
        since: since.and_then(time),
        last_seen: last_seen.and_then(time),
        epoch,
        sequence: state.seq(),
        acked: link_stats.acked,
        objects: state.len(),
        queue_bytes: link_stats.down_bytes,
        report_bytes: link_stats.up_bytes,
        rtt_ms: link_stats.rtt_ms,
        no_kubelet_port: since.is_some() && refused_ports::has(&node.name),
    }
}

fn time(at: SystemTime) -> Option<String> {
    Timestamp::try_from(at).ok().map(rfc3339)
}

/// The same as metrics. Names of nodes are DNS names: nothing in them needs escaping.
pub fn metrics(nodes: &[NodeView]) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(Option<&str>, f64)>| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "# HELP sampan_bridge_{name} {help}\n# TYPE sampan_bridge_{name} {kind}");
        for (node, value) in samples {
            let _ = match node {
                Some(node) => writeln!(text, "sampan_bridge_{name}{{node=\"{node}\"}} {value}"),
                None => writeln!(text, "sampan_bridge_{name} {value}"),
            };
        }
    };
    let each = |value: fn(&NodeView) -> Option<f64>| -> Vec<(Option<&str>, f64)> {
        nodes.iter().filter_map(|node| Some((Some(node.node.as_str()), value(node)?))).collect()
    };
    let connected = nodes.iter().filter(|node| node.connected).count();
    family("nodes", "gauge", "Nodes that this bridge knows.", vec![(None, nodes.len() as f64)]);
    family("nodes_connected", "gauge", "Nodes that are connected to this bridge.", vec![(None, connected as f64)]);
    let help = "Panics of this bridge, each of which has ended one connection or request.";
    family("panics_total", "counter", help, vec![(None, apimachinery::panics::count() as f64)]);
    let help = "Sessions of nodes that have begun.";
    family("sessions_total", "counter", help, vec![(None, counters::SESSIONS.get() as f64)]);
    for (name, help, counter) in [
        ("reports_written_total", "Reports of nodes that were written into the API.", &counters::REPORTS_WRITTEN),
        ("reports_refused_total", "Reports of nodes that will never be written.", &counters::REPORTS_REFUSED),
        ("reports_retried_total", "Attempts to write a report that are made again.", &counters::REPORTS_AGAIN),
        ("api_requests_total", "Requests to the API, without watches.", &counters::API_REQUESTS),
        (
            "api_client_errors_total",
            "Requests that the API answered with 4xx, conflicts included.",
            &counters::API_CLIENT_ERRORS,
        ),
        ("api_server_errors_total", "Requests that the API answered with 5xx.", &counters::API_SERVER_ERRORS),
        ("api_unreached_total", "Requests that the API did not answer.", &counters::API_UNREACHED),
        ("pod_requests_total", "Requests of pods to the API through their node's link.", &counters::POD_REQUESTS),
        (
            "pod_requests_refused_total",
            "Requests of pods that the bridge refused or could not pass on.",
            &counters::POD_REQUESTS_REFUSED,
        ),
        (
            "kubelet_requests_total",
            "Requests at kubelet ports for nodes of this bridge, those that other bridges forward included.",
            &counters::KUBELET_REQUESTS,
        ),
        (
            "kubelet_requests_forwarded_total",
            "Requests at kubelet ports for nodes of other bridges.",
            &counters::KUBELET_FORWARDED,
        ),
        (
            "kubelet_requests_unanswered_total",
            "Forwarded requests that no other bridge has answered.",
            &counters::KUBELET_UNANSWERED,
        ),
    ] {
        family(name, "counter", help, vec![(None, counter.get() as f64)]);
    }
    let help = "Requests of pods to the API that are under way, watches included.";
    family("pod_requests_open", "gauge", help, vec![(None, counters::POD_REQUESTS_OPEN.get() as f64)]);
    let help = "Requests that are forwarded to other bridges and under way, streams included.";
    let open = counters::KUBELET_FORWARDED_OPEN.get() as f64;
    family("kubelet_requests_forwarded_open", "gauge", help, vec![(None, open)]);
    let help = "Whether the node is connected to this bridge.";
    family("node_connected", "gauge", help, each(|node| Some(f64::from(u8::from(node.connected)))));
    let help = "When the last frame of the node arrived, in seconds since 1970.";
    family("node_last_seen_seconds", "gauge", help, each(|node| seconds(node.last_seen.as_deref()?)));
    family("node_epoch", "gauge", "Fencing number of the newest connection.", each(|node| Some(node.epoch as f64)));
    let help = "Number of the newest change that the node should have.";
    family("node_sequence", "gauge", help, each(|node| Some(node.sequence as f64)));
    let help = "Number of the last change that the node has committed.";
    family("node_acked_sequence", "gauge", help, each(|node| Some(node.acked? as f64)));
    let help = "Bytes of changes sent and not acknowledged.";
    family("node_queue_bytes", "gauge", help, each(|node| Some(node.queue_bytes as f64)));
    let help = "Bytes of reports that are not in the API yet.";
    family("node_report_bytes", "gauge", help, each(|node| Some(node.report_bytes as f64)));
    let help = "Round trip between node and bridge as the node last measured it, in seconds.";
    family("node_rtt_seconds", "gauge", help, each(|node| Some(f64::from(node.rtt_ms?) / 1000.0)));
    let version = env!("CARGO_PKG_VERSION");
    let help = "# HELP sampan_bridge_info The version of the program.\n# TYPE sampan_bridge_info gauge";
    let _ = writeln!(text, "{help}\nsampan_bridge_info{{version=\"{version}\"}} 1");
    for (name, kind, help, value) in process::samples() {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    text
}

fn seconds(time: &str) -> Option<f64> {
    Some(time.parse::<Timestamp>().ok()?.as_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g30_metrics_name_every_node() {
        let node = NodeView {
            node: "edge-1".into(),
            connected: true,
            since: Some("2026-03-01T10:00:00Z".into()),
            last_seen: Some("1970-01-01T00:01:00Z".into()),
            epoch: 7,
            sequence: 9,
            acked: Some(8),
            objects: 3,
            queue_bytes: 100,
            report_bytes: 0,
            rtt_ms: Some(250),
            no_kubelet_port: false,
        };
        let gone = NodeView { node: "edge-2".into(), connected: false, acked: None, rtt_ms: None, ..node.clone() };
        let text = metrics(&[node, gone]);
        for line in [
            "sampan_bridge_nodes 2",
            "sampan_bridge_nodes_connected 1",
            "# TYPE sampan_bridge_panics_total counter",
            "sampan_bridge_node_connected{node=\"edge-2\"} 0",
            "sampan_bridge_node_last_seen_seconds{node=\"edge-1\"} 60",
            "sampan_bridge_node_epoch{node=\"edge-1\"} 7",
            "sampan_bridge_node_acked_sequence{node=\"edge-1\"} 8",
            "sampan_bridge_node_queue_bytes{node=\"edge-1\"} 100",
            "sampan_bridge_node_rtt_seconds{node=\"edge-1\"} 0.25",
            "# TYPE sampan_bridge_node_rtt_seconds gauge",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("acked_sequence{node=\"edge-2\"}"), "what is not known is left out");
    }
}
