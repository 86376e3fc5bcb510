//! Pods evenly over domains: topology spread constraints (K8s pkg/scheduler/framework/plugins/podtopologyspread). Pure.

use std::collections::BTreeMap;

use serde_json::json;

use super::constraint::Constraint;
use super::fit::Node;
use super::pod::Pod;
use super::selector::{is_empty, selects_some};

impl Constraint {
    /// What pods of a controller prefer that say nothing themselves (K8s `systemDefaultConstraints`). There pods of a Service
    /// count together, too; here the controller alone.
    fn defaults(pod: &Pod) -> Vec<Self> {
        if pod.owner.is_empty() {
            return Vec::new();
        }
        let constraint = |topology_key: &str, max_skew| Self {
            required: false,
            max_skew,
            topology_key: topology_key.to_owned(),
            selector: json!({}),
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
            owner: Some(pod.owner.clone()),
        };
        vec![constraint("kubernetes.io/hostname", 3), constraint("topology.kubernetes.io/zone", 5)]
    }

    /// Whether a pod that is there counts for one in this namespace.
    fn counts(&self, namespace: &str, other: &Pod) -> bool {
        if other.deleting || other.key.0 != namespace {
            return false;
        }
        match &self.owner {
            Some(owner) => other.owner == *owner,
            None => !is_empty(&self.selector) && selects_some(&self.selector, &other.labels),
        }
    }

    /// Whether the node is one of those that the pods are to be spread over.
    fn includes(&self, pod: &Pod, node: &Node) -> bool {
        (!self.honor_affinity || node.is_selected(&pod.spec)) && (!self.honor_taints || !node.is_tainted(&pod.spec))
    }
}

/// How many pods there are in each domain, for each constraint.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    constraints: Vec<Constraint>,
    counts: Vec<BTreeMap<String, i64>>,
    least: Vec<i64>,
}

impl State {
    /// What keeps the pod off nodes.
    pub(super) fn required<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a Node>) -> Self {
        let constraints: Vec<Constraint> = pod.spread.iter().filter(|one| one.required).cloned().collect();
        Self::over(constraints, pod, nodes, true)
    }

    /// What is better for the pod. The second value is whether a node must have all of the labels to count.
    pub(super) fn preferred<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a Node>) -> (Self, bool) {
        let defaults = pod.spread.is_empty();
        let constraints = if defaults {
            Constraint::defaults(pod)
        } else {
            pod.spread.iter().filter(|one| !one.required).cloned().collect()
        };
        (Self::over(constraints, pod, nodes, !defaults), !defaults)
    }

    fn over<'a>(constraints: Vec<Constraint>, pod: &Pod, nodes: impl Iterator<Item = &'a Node>, all: bool) -> Self {
        let mut state = Self { counts: vec![BTreeMap::new(); constraints.len()], least: Vec::new(), constraints };
        if state.constraints.is_empty() {
            return state;
        }
        for node in nodes.filter(|node| !all || state.is_labelled(node)).collect::<Vec<_>>() {
            for (constraint, counts) in state.constraints.iter().zip(&mut state.counts) {
                let Some(value) = node.label(&constraint.topology_key) else { continue };
                if constraint.includes(pod, node) {
                    let here = node.pods.values().filter(|other| constraint.counts(&pod.key.0, other)).count();
                    let sum = counts.entry(value.to_owned()).or_default();
                    *sum = sum.saturating_add(i64::try_from(here).unwrap_or(i64::MAX));
                }
            }
        }
        state.measure();
        state
    }

    pub(super) fn is_empty(&self) -> bool {
        self.constraints.is_empty()
    }

    /// Whether the node has a value for the key of each constraint.
    pub(super) fn is_labelled(&self, node: &Node) -> bool {
        self.constraints.iter().all(|one| node.label(&one.topology_key).is_some())
    }

    fn measure(&mut self) {
        let least = |(constraint, counts): (&Constraint, &BTreeMap<String, i64>)| {
            let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
            if domains < constraint.min_domains { 0 } else { counts.values().min().copied().unwrap_or_default() }
        };
        self.least = self.constraints.iter().zip(&self.counts).map(least).collect();
    }

    /// `other` is on the node (`by` is 1), or no longer (-1).
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, node: &Node, by: i64) {
        if self.constraints.is_empty() || !self.is_labelled(node) {
            return;
        }
        for (constraint, counts) in self.constraints.iter().zip(&mut self.counts) {
            if constraint.counts(&pod.key.0, other)
                && constraint.includes(pod, node)
                && let Some(value) = node.label(&constraint.topology_key)
            {
                let sum = counts.entry(value.to_owned()).or_default();
                *sum = sum.saturating_add(by);
            }
        }
        self.measure();
    }

    /// Why the pod cannot be on the node, and whether it could if others went.
    pub(super) fn objection(&self, pod: &Pod, node: &Node) -> Option<(&'static str, bool)> {
        for ((constraint, counts), least) in self.constraints.iter().zip(&self.counts).zip(&self.least) {
            let Some(value) = node.label(&constraint.topology_key) else {
                return Some(("node(s) didn't match pod topology spread constraints (missing required label)", false));
            };
            let own = i64::from(selects_some(&constraint.selector, &pod.labels));
            let here = counts.get(value).copied().unwrap_or_default();
            if here.saturating_add(own).saturating_sub(*least) > constraint.max_skew {
                return Some(("node(s) didn't match pod topology spread constraints", true));
            }
        }
        None
    }

    /// The more, the fuller the node's domains are.
    #[expect(clippy::cast_precision_loss, reason = "counts of pods and domains, for a comparison")]
    pub(super) fn load(&self, node: &Node) -> f64 {
        let of = |(constraint, counts): (&Constraint, &BTreeMap<String, i64>)| {
            let here = counts.get(node.label(&constraint.topology_key)?).copied().unwrap_or_default();
            // Few domains are not to count for less than many (K8s `topologyNormalizingWeight`).
            let weight = ((counts.len() + 2) as f64).ln();
            Some(here as f64 * weight + (constraint.max_skew - 1) as f64)
        };
        self.constraints.iter().zip(&self.counts).filter_map(of).sum()
    }
}
