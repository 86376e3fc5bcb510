//! A DaemonSet with its nodes and its pods, as input of all steps of a plan.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSetSpec;
use serde_json::Value;

use super::fit::{self, Fit};
use crate::workloads::annotations;
use crate::workloads::history::HASH_LABEL;
use crate::workloads::node::Node;
use crate::workloads::now::Now;
use crate::workloads::plan::{Plan, Teller, WRITES};
use crate::workloads::pod::Pod;
use crate::workloads::template::Template;
use crate::workloads::templated::DaemonSet;
use crate::workloads::world::{Kind, World};

const COMPONENT: &str = "daemonset-controller";
/// The label with the number of the template.
pub(super) const GENERATION_LABEL: &str = "pod-template-generation";

/// A DaemonSet, and the input of its plan.
pub(super) struct Context<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) spec: &'a DaemonSetSpec,
    /// The part of the spec of its pods by which nodes are chosen, with all that they tolerate.
    pub(super) on_nodes: Value,
    /// The template, once it is read.
    pub(super) template: Option<&'a Template>,
    /// The nodes by name, and whether a pod belongs there.
    pub(super) nodes: BTreeMap<&'a str, (&'a Node, Fit)>,
    /// The pods by the node where they are or will be, the one that counts first.
    pub(super) pods: BTreeMap<&'a str, Vec<&'a Pod>>,
    /// The hash of the template as it is now.
    pub(super) hash: &'a str,
    pub(super) generation: Option<i64>,
    pub(super) now: Now,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        world: &'a World,
        set: &'a DaemonSet,
        spec: &'a DaemonSetSpec,
        claimed: &[&'a Pod],
        hash: &'a str,
        now: Now,
    ) -> Self {
        let on_nodes = set.on_nodes();
        let template = world.template(Kind::DaemonSet, &set.metadata);
        let nodes = world.nodes.all().map(|node| (node.name(), (node, fit::fit(&on_nodes, node)))).collect();
        let mut pods: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        // Terminated pods that are being deleted are removed by another component.
        for pod in claimed.iter().filter(|pod| !(pod.is_terminal() && pod.is_deleting())) {
            if let Some(node) = pod.target_node() {
                pods.entry(node).or_default().push(pod);
            }
        }
        pods.values_mut().for_each(|here| here.sort_by_key(|pod| order(pod)));
        Self { set, spec, on_nodes, template, nodes, pods, hash, generation: generation(set), now }
    }

    pub(super) fn teller(&self) -> Teller {
        Teller::new(COMPONENT, Kind::DaemonSet, &self.set.metadata)
    }

    pub(super) fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or_default()
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.min_ready_seconds(), self.now)
    }

    /// The pods on a node, or on their way there.
    pub(super) fn on(&self, node: &str) -> &[&'a Pod] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn has_hash(&self, pod: &Pod) -> bool {
        label(pod, HASH_LABEL) == Some(self.hash)
    }

    /// The pod is of the template as it is now (K8s `IsPodUpdated`).
    pub(super) fn is_updated(&self, pod: &Pod) -> bool {
        let generation = self.generation.map(|number| number.to_string());
        self.has_hash(pod) || generation.is_some() && label(pod, GENERATION_LABEL) == generation.as_deref()
    }

    pub(super) fn delete(&self, pods: &[&Pod]) -> Plan {
        let teller = self.teller();
        Plan::all_at_once(pods.iter().take(WRITES).map(|pod| teller.delete_pod(&pod.metadata)).collect())
    }
}

pub(super) fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// What sets the pod first that counts where there are two: one that is bound, then the oldest.
fn order(pod: &Pod) -> (bool, Option<Timestamp>, Option<&str>) {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (pod.spec.node_name.as_deref().unwrap_or_default().is_empty(), created, pod.metadata.name.as_deref())
}

/// The number of the template, if the API counts it.
fn generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(annotations::GENERATION)?.parse().ok()
}
