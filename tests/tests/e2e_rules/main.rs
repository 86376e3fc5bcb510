//! Rules: messages of a node's broker and requests of programs on it at an HTTP server, requests over HTTPS at a node's broker and at a server on it. With a
//! real broker and its clients, and the real programs. Guarantees are D1 to D15 (docs/devices.md).

#[path = "../e2e_devices/broker.rs"]
mod broker;
#[path = "../e2e_bad_disk/disk.rs"]
#[allow(dead_code, reason = "the part of it that is used here")]
mod disk;
mod down;
mod faults;
mod local;
mod target;
mod up;

use std::net::SocketAddr;
use std::time::Duration;

use sampan_tests::faults::FaultProxy;
use sampan_tests::ports::free_address;
use sampan_tests::wait::until;
use sampan_tests::{Cluster, EdgeNode, Kubectl};
use serde_json::{Value, json};

use broker::Broker;
use disk::{Away, Disk};

/// Maximum delay without faults.
const SOON: Duration = Duration::from_secs(10);

/// A cluster that knows rules and takes requests for them, with one node that has a broker, behind a line that can be cut.
struct Site {
    /// Before the node goes: nothing can be removed from a disk that refuses.
    _away: Option<Away>,
    node: EdgeNode,
    broker: Broker,
    line: FaultProxy,
    rules: SocketAddr,
    /// Disk of the node's state, if it has a separate one.
    disk: Option<Disk>,
    cluster: Cluster,
}

impl Site {
    fn start(test: &str) -> Self {
        Self::start_with(test, "")
    }

    /// Starts with more keys for `device-twin`: `, KEY: VALUE`.
    fn start_with(test: &str, more: &str) -> Self {
        Self::begin(test, more, |_| None)
    }

    /// Starts with a disk of this many megabytes for the node's state. `None` without loop devices.
    fn start_on_disk(test: &str, megabytes: u64) -> Option<Self> {
        let disk =
            |cluster: &Cluster| Disk::mount(cluster.folder(), &cluster.folder().join("edge").join("var"), megabytes);
        Some(Self::begin(test, "", disk)).filter(|site| site.disk.is_some())
    }

    fn begin(test: &str, more: &str, disk: impl FnOnce(&Cluster) -> Option<Disk>) -> Self {
        let rules = free_address();
        let cluster = Cluster::start_with(test, &["--rules-listen", &rules.to_string()]);
        let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/bridge/rules/crds.yaml");
        let _ = cluster.kubectl.ok(&["apply", "-f", definitions]);
        let names = ["rules", "ruleendpoints"].map(|name| format!("crd/{name}.rules.kubeedge.io"));
        let wait = ["wait", "--for=condition=Established", "--timeout=30s"];
        let _ = cluster.kubectl.ok(&wait.into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>());
        let broker = Broker::start(cluster.folder());
        let line = FaultProxy::start(cluster.listen.ip(), cluster.listen);
        let disk = disk(&cluster);
        let node = EdgeNode::prepare_behind(&cluster, "edge", &line.url(), None);
        let _away = disk.as_ref().map(Disk::away_on_failure);
        let mut site = Self { _away, node, broker, line, rules, disk, cluster };
        site.configure(more);
        site.node.start();
        site.node.wait_ready();
        site.kubectl().apply_all(&[end("my-rest", "rest", &json!({})), end("my-bus", "eventbus", &json!({}))]);
        site
    }

    fn configure(&self, more: &str) {
        let broker = self.broker.address();
        self.node.configure(&format!("device-twin: {{mqtt: {{broker: 'tcp://{broker}'}}{more}}}\n"));
    }

    fn kubectl(&self) -> &Kubectl {
        &self.cluster.kubectl
    }

    /// A topic of the test's namespace.
    fn topic(&self, topic: &str) -> String {
        format!("{}/{topic}", self.kubectl().namespace)
    }

    /// Has messages on a topic go to a URL, and waits until they do.
    fn lead_up(&self, name: &str, topic: &str, url: &str) {
        let from = json!({"topic": topic, "node_name": self.node.name});
        self.kubectl().apply(&rule(name, ("my-bus", &from), ("my-rest", &json!({"resource": url}))).to_string());
    }

    /// Waits until the node subscribes to messages of rules: earlier messages are lost.
    fn wait_subscribed(&self, topic: &str) {
        let filter = self.topic(topic);
        until(SOON, &format!("the node subscribes to {filter}"), || {
            let log = std::fs::read_to_string(self.cluster.folder().join("mosquitto.log")).unwrap_or_default();
            if log.contains(&filter) { Ok(()) } else { Err("it has not".to_owned()) }
        });
    }
}

fn end(name: &str, kind: &str, properties: &Value) -> Value {
    json!({"apiVersion": "rules.kubeedge.io/v1", "kind": "RuleEndpoint", "metadata": {"name": name},
        "spec": {"ruleEndpointType": kind, "properties": properties}})
}

fn rule(name: &str, (source, from): (&str, &Value), (target, to): (&str, &Value)) -> Value {
    json!({"apiVersion": "rules.kubeedge.io/v1", "kind": "Rule", "metadata": {"name": name},
        "spec": {"source": source, "sourceResource": from, "target": target, "targetResource": to}})
}
