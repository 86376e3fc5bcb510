//! The node lifecycle: marks silent nodes as Unknown, taints nodes by their conditions, and evicts pods from tainted
//! nodes (K8s pkg/controller/nodelifecycle and pkg/controller/tainteviction).

mod cidr_set;
mod eviction;
mod evictor;
mod health;
mod ipam;
mod node;
mod own_clock;
mod taints;
mod zones;

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};

use crate::events::{Recorder, event};
use crate::watch;
use apimachinery::meta::rfc3339;
use apimachinery::pace::in_slices;
use apimachinery::pace::sleep_until;
use evictor::Evictors;
use health::NodeHealthMap;
pub use ipam::{MaskSizes, NodeIpam};
use node::SlimNode;
use own_clock::OwnClock;
use taints::{Evict, is_to_be_evicted, no_execute};
use zones::Zones;

/// What could not be written is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
/// A range that is used up is looked at again after this.
const NO_SUBNET_RETRY: Duration = Duration::from_secs(60);

/// Settings of the node lifecycle.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Pods go from nodes that are silent or not ready, too.
    pub evicts: bool,
    /// Gives nodes their subnets.
    pub ipam: Option<NodeIpam>,
}

/// Runs until dropped. Checks the Leases of nodes with this label, and maintains the taints and subnets of all nodes.
pub async fn run(client: Client, label: &str, settings: Settings) {
    let leases = Api::namespaced_with(client.clone(), "kube-node-lease", &ApiResource::erase::<Lease>(&()));
    let mut leases = pin!(in_slices(watch::watch(leases, watch::typed::<Lease>)));
    let mut nodes = pin!(watch::all::<SlimNode>(&client));
    let mut lifecycle = Lifecycle {
        api: Api::all(client.clone()),
        label,
        settings,
        events: Recorder::new(client.clone()),
        start: Instant::now(),
        clock: OwnClock::default(),
        evictors: Evictors::new(client),
        health: NodeHealthMap::default(),
        nodes: BTreeMap::new(),
        listed: None,
        known: false,
        zones: Zones::default(),
        all_away: false,
        retry: None,
    };
    let mut ticks = tokio::time::interval(own_clock::TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        lifecycle.now();
        let deadline = lifecycle.deadline();
        tokio::select! {
            Some(event) = leases.next() => match event {
                Ok(event) => lifecycle.lease(event),
                Err(error) => log::warn!("watching leases: {error}"),
            },
            Some(event) = nodes.next() => match event {
                Ok(event) => lifecycle.node(event).await,
                Err(error) => log::warn!("watching nodes: {error}"),
            },
            () = sleep_until(deadline) => lifecycle.turn().await,
            _ = ticks.tick() => {}
            () = lifecycle.evictors.panicked() => {}
            () = lifecycle.events.write_next(), if !lifecycle.events.is_empty() => {}
        }
    }
}

struct Lifecycle<'a> {
    api: Api<SlimNode>,
    label: &'a str,
    settings: Settings,
    events: Recorder,
    start: Instant,
    clock: OwnClock,
    evictors: Evictors,
    health: NodeHealthMap,
    nodes: BTreeMap<String, SlimNode>,
    /// Names in the list that is being read.
    listed: Option<HashSet<String>>,
    /// A list has ended. Until then the number of absent nodes is unknown.
    known: bool,
    zones: Zones,
    /// No node of any zone is ready: none has a taint that evicts.
    all_away: bool,
    retry: Option<Instant>,
}

impl Lifecycle<'_> {
    fn deadline(&self) -> Option<Instant> {
        let silent = self.health.deadline().map(|at| self.clock.elapsed_at(at));
        let evicted = self.zones.deadline().filter(|_| self.known && !self.all_away);
        let due = silent.into_iter().chain(evicted).min().and_then(|at| self.start.checked_add(at));
        due.into_iter().chain(self.retry).min()
    }

    /// The time by the clock that stops while this task is late.
    fn now(&mut self) -> Duration {
        self.clock.now(self.start.elapsed())
    }

    fn lease(&mut self, event: Event<Lease>) {
        let now = self.now();
        let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        match event {
            Event::InitApply(lease) => {
                let renewed = renewed(&lease);
                let name = lease.metadata.name.unwrap_or_default();
                self.health.found(&name);
                self.health.renewed(&name, renewed, now);
            }
            Event::Apply(lease) => {
                let renewed = renewed(&lease);
                self.health.renewed(&lease.metadata.name.unwrap_or_default(), renewed, now);
            }
            Event::Init | Event::InitDone | Event::Delete(_) => {}
        }
    }

    async fn node(&mut self, event: Event<SlimNode>) {
        match event {
            Event::Init => self.listed = Some(HashSet::new()),
            Event::InitApply(node) => {
                if node.has_label(self.label) {
                    self.health.found(node.name());
                }
                self.listed.get_or_insert_default().insert(node.name().to_owned());
                self.put(node);
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<String> = self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.forget(name));
                self.known = true;
                self.all_away = self.zones.all_away();
                self.write_all().await;
            }
            Event::Apply(node) => {
                let name = node.name().to_owned();
                // Own writes are known from their answers: the watch may deliver older versions later.
                if self.nodes.get(&name).is_some_and(|known| node.is_before(known)) {
                    return;
                }
                self.put(node);
                self.write(&name).await;
                self.look_around().await;
            }
            Event::Delete(node) => {
                self.forget(node.name());
                // Another node may get its subnet.
                for name in self.without_subnets() {
                    self.write_subnets(&name).await;
                }
                self.look_around().await;
            }
        }
    }

    fn put(&mut self, node: SlimNode) {
        let (ours, ready) = (node.has_label(self.label), node.ready());
        // A node that never reported does not belong to another controller.
        if ours || ready.is_empty() {
            let now = self.now();
            self.health.node(node.name(), node.is_believed(), now);
        } else {
            self.health.forget(node.name());
        }
        self.zones.node(node.name(), node.zone(), ready == "True", ours);
        if let Some(ipam) = &mut self.settings.ipam {
            ipam.node(node.name(), &node.spec.pod_cidrs);
        }
        self.evictors.node(node.name(), no_execute(&node, self.settings.evicts));
        self.nodes.insert(node.name().to_owned(), node);
    }

    fn forget(&mut self, name: &str) {
        self.health.forget(name);
        self.evictors.forget(name);
        self.zones.forget(name);
        if let Some(ipam) = &mut self.settings.ipam {
            ipam.gone(name);
        }
        self.nodes.remove(name);
    }

    /// Time has passed: nodes are silent, or what failed is tried again.
    async fn turn(&mut self) {
        let now = self.now();
        for name in self.health.silent(now) {
            let Some(node) = self.nodes.get(&name) else { continue };
            log::warn!("node {name}: its lease ran out");
            let patch = Patch::Strategic(unknown(node, Timestamp::now()));
            if let Err(error) = self.api.patch_status(&name, &PatchParams::default(), &patch).await {
                log::warn!("node {name}: {error}");
            }
        }
        if self.retry.is_some_and(|at| at <= Instant::now()) {
            self.retry = None;
            self.write_all().await;
        }
        while let Some(name) = self.next_to_evict() {
            log::info!("node {name}: it is away, and its pods are to go");
            self.write_taints(&name, Evict::Yes).await;
        }
    }

    fn next_to_evict(&mut self) -> Option<String> {
        if self.all_away { None } else { self.zones.next(self.start.elapsed()) }
    }

    /// Writes what follows from how a node is.
    async fn write(&mut self, name: &str) {
        self.write_subnets(name).await;
        let Some(node) = self.nodes.get(name).filter(|_| self.known) else { return };
        if is_to_be_evicted(node) {
            self.zones.enqueue(name);
        } else {
            self.zones.dequeue(name);
        }
        let evict = if self.all_away { Evict::No } else { Evict::Held };
        self.write_taints(name, evict).await;
    }

    /// Checks whether all nodes are offline. If that changed, checks all of them.
    async fn look_around(&mut self) {
        let all_away = self.zones.all_away();
        if self.known && all_away != self.all_away {
            log::info!("nodes: {}", if all_away { "none is ready any more" } else { "some are ready again" });
            self.all_away = all_away;
            self.write_all().await;
        }
    }

    async fn write_all(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            self.write(&name).await;
        }
    }

    /// Nodes that are to have subnets and have none.
    fn without_subnets(&self) -> Vec<String> {
        let nodes =
            self.nodes.iter().filter(|(_, node)| self.settings.ipam.is_some() && node.spec.pod_cidrs.is_empty());
        nodes.map(|(name, _)| name.clone()).collect()
    }

    async fn write_taints(&mut self, name: &str, evict: Evict) {
        let Some(node) = self.nodes.get(name).filter(|_| self.known) else { return };
        let Some(taints) = taints::wanted(node, evict, &rfc3339(Timestamp::now())) else { return };
        // On the version that was read: an administrator may change the taints meanwhile.
        let patch = changed(node, json!({ "taints": taints }));
        self.patch(name, patch).await;
    }

    /// Assigns subnets to a node without any.
    async fn write_subnets(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name).filter(|_| self.known) else { return };
        if !node.spec.pod_cidrs.is_empty() || node.metadata.deletion_timestamp.is_some() {
            return;
        }
        let Some(ipam) = &mut self.settings.ipam else { return };
        let Some(cidrs) = ipam.next() else {
            log::warn!("node {name}: there are no subnets left for it");
            self.events.record(no_subnet(node));
            self.retry_after(NO_SUBNET_RETRY);
            return;
        };
        let patch = changed(node, json!({"podCIDR": cidrs.first(), "podCIDRs": cidrs}));
        self.patch(name, patch).await;
    }

    async fn patch(&mut self, name: &str, patch: Value) {
        match self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(node) => self.put(node),
            // The watch is about to deliver the present state.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            Err(error) => {
                log::warn!("node {name}: {error}");
                self.retry_after(RETRY);
            }
        }
    }

    /// Writes what follows from all nodes again after this time, or earlier.
    fn retry_after(&mut self, pause: Duration) {
        let at = Instant::now().checked_add(pause);
        self.retry = self.retry.into_iter().chain(at).min();
    }
}

/// A change of the spec, if the node is unchanged.
fn changed(node: &SlimNode, spec: Value) -> Value {
    let meta = &node.metadata;
    json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "spec": spec})
}

/// K8s pkg/controller/util/node, `RecordNodeStatusChange`.
fn no_subnet(node: &SlimNode) -> event::Event {
    event::Event {
        about: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: node.metadata.name.clone(),
            uid: node.metadata.uid.clone(),
            ..ObjectReference::default()
        },
        kind: "Normal",
        reason: "CIDRNotAvailable",
        message: format!("Node {} status is now: CIDRNotAvailable", node.name()),
        component: "cidrAllocator",
        action: None,
    }
}

/// The conditions that a kubelet sets, as the node lifecycle controller leaves them (K8s
/// pkg/controller/nodelifecycle/node_lifecycle_controller.go, `tryUpdateNodeHealth`).
fn unknown(node: &SlimNode, now: Timestamp) -> Value {
    let time = rfc3339(now);
    let born = node.metadata.creation_timestamp.as_ref().map(|time| rfc3339(time.0));
    let condition = |kind: &str| match node.status.conditions.iter().find(|one| one.kind == kind) {
        Some(known) if known.status == "Unknown" => None,
        Some(_) => Some(json!({
            "type": kind, "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": time,
            "message": "Kubelet stopped posting node status.",
        })),
        None => Some(json!({
            "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated", "lastTransitionTime": time,
            "lastHeartbeatTime": born, "message": "Kubelet never posted node status.",
        })),
    };
    let kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    json!({"status": {"conditions": kinds.into_iter().filter_map(condition).collect::<Vec<Value>>()}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_that_never_reported_is_told_from_one_that_stopped() {
        let node: SlimNode = serde_json::from_value(json!({
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "Unknown"}]},
        }))
        .unwrap();
        let patch = unknown(&node, Timestamp::UNIX_EPOCH);
        let all = patch["status"]["conditions"].as_array().unwrap();
        let told: Vec<&Value> = all.iter().map(|one| &one["reason"]).collect();
        assert_eq!(told, ["NodeStatusUnknown", "NodeStatusNeverUpdated", "NodeStatusNeverUpdated"]);
        assert_eq!(
            (&all[1]["lastHeartbeatTime"], &all[1]["status"]),
            (&json!("2026-01-01T00:00:00Z"), &json!("Unknown"))
        );
    }
}
