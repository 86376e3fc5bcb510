//! Says of nodes that fell silent that nothing is known of them: what the node lifecycle controller does on a
//! cluster, for the embedded API that has no controller manager. It sets no taints and evicts no pods.
//!
//! As that controller does, it measures with its own clock from when it saw a Lease change, so that neither a
//! wrong clock nor a restart takes a living node for dead.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::lease::LEASE;
use super::reports::BRIDGED_LABEL;
use super::requests::{Patch, Requests};
use super::slim::SlimNode;

/// A Lease may be this much over its time: together the 50 s of `--node-monitor-grace-period` (K8s
/// pkg/controller/nodelifecycle/config/v1alpha1). A node that is back 20 s after a cut has never been NotReady, even
/// when the last word before the cut was a heartbeat old and it took ten seconds to come back.
const SLACK: Duration = Duration::from_secs(10);

/// The longest that a node waits between two attempts to connect.
const RETURN: Duration = Duration::from_secs(60);

/// Runs until dropped.
pub async fn run(client: Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let nodes: Api<SlimNode> = Api::all(client.clone());
    let mut leases = pin!(watcher(leases, watcher::Config::default()).default_backoff());
    let bridged = watcher::Config::default().labels(BRIDGED_LABEL);
    let mut nodes = pin!(watcher(nodes, bridged).default_backoff());
    let requests = Requests::new(client);
    let start = Instant::now();
    let mut pulses = Pulses::default();
    loop {
        let deadline = pulses.deadline().map(|at| start + at);
        tokio::select! {
            Some(event) = leases.next() => match event {
                Ok(Event::InitApply(lease)) => {
                    let name = lease.metadata.name.unwrap_or_default();
                    pulses.found(&name);
                    pulses.renewed(&name, lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0), start.elapsed());
                }
                Ok(Event::Apply(lease)) => {
                    let renewed = lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
                    pulses.renewed(&lease.metadata.name.unwrap_or_default(), renewed, start.elapsed());
                }
                Ok(_) => {}
                Err(error) => log::warn!("watching leases: {error}"),
            },
            Some(event) = nodes.next() => match event {
                Ok(Event::InitApply(node)) => {
                    pulses.found(node.name());
                    pulses.node(node.name(), node.ready() != "Unknown", start.elapsed());
                }
                Ok(Event::Apply(node)) => {
                    pulses.node(node.name(), node.ready() != "Unknown", start.elapsed());
                }
                Ok(Event::Delete(node)) => pulses.forget(node.name()),
                Ok(_) => {}
                Err(error) => log::warn!("watching nodes: {error}"),
            },
            () = sleep_until(deadline) => {
                for name in pulses.silent(start.elapsed()) {
                    log::warn!("node {name}: its lease ran out");
                    let path = format!("/api/v1/nodes/{name}/status");
                    if let Err(error) = requests.patch(&path, Patch::Strategic, &unknown(Timestamp::now())).await {
                        log::warn!("node {name}: {error}");
                    }
                }
            }
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// When each node last gave a sign of life. Pure; times are of a monotonic clock.
#[derive(Debug, Default)]
struct Pulses {
    nodes: HashMap<String, Pulse>,
    /// Not later than the time of any node: looking at all nodes for each sign of life would cost more than the
    /// sign. Renewals move times only back, so at worst it is looked at too early.
    next: Option<Duration>,
}

#[derive(Debug, Default)]
struct Pulse {
    renewed: Option<Timestamp>,
    /// When the newest renewal was seen.
    seen: Duration,
    /// Silence does not count before this: the node was there before us, had nobody to talk to while we were away, and
    /// comes back when its wait is over.
    from: Duration,
    /// The API says something else than that nothing is known.
    believed: bool,
}

impl Pulse {
    /// When the node is silent for too long.
    fn deadline(&self) -> Duration {
        self.seen.max(self.from) + LEASE + SLACK
    }
}

impl Pulses {
    /// It is in a list. In the first one are the nodes of before our start.
    fn found(&mut self, name: &str) {
        self.nodes.entry(name.to_owned()).or_insert_with(|| Pulse { from: RETURN, ..Pulse::default() });
    }

    fn renewed(&mut self, name: &str, renewed: Option<Timestamp>, now: Duration) {
        let pulse = self.nodes.entry(name.to_owned()).or_insert_with(|| Pulse { seen: now, ..Pulse::default() });
        if renewed.is_some() && pulse.renewed != renewed {
            if pulse.renewed.is_some() {
                // It is back.
                pulse.from = Duration::ZERO;
            }
            pulse.renewed = renewed;
            pulse.seen = now;
        }
        self.hurry(now);
    }

    fn hurry(&mut self, now: Duration) {
        let at = now + LEASE + SLACK;
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn node(&mut self, name: &str, believed: bool, now: Duration) {
        let pulse = self.nodes.entry(name.to_owned()).or_insert_with(|| Pulse { seen: now, ..Pulse::default() });
        if believed && !pulse.believed {
            pulse.seen = now;
        }
        pulse.believed = believed;
        self.hurry(now);
    }

    fn forget(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// When to look for silent ones.
    fn deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Nodes whose time has run out. Each is named again only after a sign of life, or after another such time
    /// if the API did not take the news.
    fn silent(&mut self, now: Duration) -> Vec<String> {
        let mut silent = Vec::new();
        for (name, pulse) in &mut self.nodes {
            if pulse.believed && now >= pulse.deadline() {
                pulse.seen = now;
                silent.push(name.clone());
            }
        }
        self.next = self.nodes.values().filter(|pulse| pulse.believed).map(Pulse::deadline).min();
        silent
    }
}

/// The conditions that a kubelet sets, as the node lifecycle controller leaves them.
fn unknown(now: Timestamp) -> Value {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": time,
            "message": "Kubelet stopped posting node status.",
        })
    };
    let conditions = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map(condition);
    json!({"status": {"conditions": conditions}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn g16_a_node_is_silent_when_its_lease_was_not_renewed() {
        let mut pulses = Pulses::default();
        pulses.node("a", true, s(0));
        pulses.renewed("a", at(100), s(10));
        pulses.renewed("a", at(100), s(30));
        assert_eq!(pulses.deadline(), Some(s(50)), "too early at worst");
        assert!(pulses.silent(s(59)).is_empty());
        assert_eq!(pulses.deadline(), Some(s(60)));
        assert_eq!(pulses.silent(s(60)), ["a"]);
        assert!(pulses.silent(s(61)).is_empty());
        pulses.node("a", false, s(61));
        assert!(pulses.silent(s(111)).is_empty());
        assert_eq!(pulses.deadline(), None);
        pulses.node("a", true, s(200));
        assert_eq!(pulses.deadline(), Some(s(250)), "back");
    }

    #[test]
    fn nodes_of_before_the_start_have_time_to_come_back() {
        let mut pulses = Pulses::default();
        for name in ["back", "gone"] {
            pulses.found(name);
            pulses.node(name, true, s(1));
            pulses.renewed(name, at(100), s(2));
        }
        assert!(pulses.silent(s(55)).is_empty(), "all of them may still be waiting to connect");
        pulses.renewed("back", at(150), s(55));
        assert_eq!(pulses.silent(s(105)), ["back"], "seen since, and silent again");
        assert_eq!(pulses.silent(s(110)), ["gone"]);
    }

    #[test]
    fn an_old_lease_counts_from_when_it_was_first_seen() {
        let mut pulses = Pulses::default();
        pulses.renewed("a", at(0), s(1000));
        pulses.node("a", true, s(1001));
        assert!(pulses.silent(s(1040)).is_empty());
        pulses.forget("a");
        assert!(pulses.silent(s(1045)).is_empty());
        assert_eq!(pulses.deadline(), None);
    }
}
