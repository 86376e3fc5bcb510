//! Whether one pod fits on one node, and if not, why, in kube-scheduler's words. Pure.

use serde_json::Value;

use super::needs::{Amounts, HostPort, Needs, amounts};
use crate::placement::{self, tolerated};
use apimachinery::json::{flag, items, present, text};
use apimachinery::quantity::Quantity;

/// What the scheduler knows of a node.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) name: String,
    labels: Value,
    taints: Vec<Value>,
    unschedulable: bool,
    ready: bool,
    pub(super) allocatable: Amounts,
    /// Taken by the pods that are on the node.
    pub(super) used: Amounts,
    pub(super) pods: i64,
    pub(super) ports: Vec<HostPort>,
}

impl Node {
    /// Takes what matters from a Node object; what its pods take is kept.
    pub(super) fn update(&mut self, name: &str, labels: Value, node: &Value) {
        self.name = name.to_owned();
        self.labels = labels;
        self.taints = items(&node["spec"], "taints").to_vec();
        self.unschedulable = flag(&node["spec"], "unschedulable");
        self.ready = items(&node["status"], "conditions")
            .iter()
            .any(|c| text(c, "type") == "Ready" && text(c, "status") == "True");
        self.allocatable = amounts(&node["status"], "allocatable");
    }

    /// Why the pod cannot be here; empty when it can.
    pub(super) fn objections(&self, spec: &Value, needs: &Needs) -> Vec<String> {
        // As kube-scheduler does, the first group of rules that objects has the last word.
        let groups: [&dyn Fn() -> Vec<String>; 5] =
            [&|| self.cordon(spec), &|| self.taints(spec), &|| self.affinity(spec), &|| self.ports(needs), &|| {
                self.resources(needs)
            }];
        groups.iter().map(|group| group()).find(|objections| !objections.is_empty()).unwrap_or_default()
    }

    /// 0 to 100: the larger, the less of cpu and memory would be taken.
    pub(super) fn score(&self, needs: &Needs) -> i64 {
        let free = |name: &str| {
            let capacity = self.allocatable.get(name).map_or(0, |q| q.millis());
            let amount = |list: &Amounts| list.get(name).map_or(0, |q| q.millis());
            let requested = amount(&self.used).saturating_add(amount(&needs.requests));
            if capacity <= 0 || requested > capacity {
                return 0;
            }
            i64::try_from(i128::from(capacity - requested) * 100 / i128::from(capacity)).unwrap_or_default()
        };
        (free("cpu") + free("memory")) / 2
    }

    fn cordon(&self, spec: &Value) -> Vec<String> {
        let taint = serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
        if self.unschedulable && !tolerated(spec, &taint) {
            return vec!["node(s) were unschedulable".to_owned()];
        }
        Vec::new()
    }

    /// A node that is not ready counts as tainted, as the node controller of a full cluster would taint it.
    fn taints(&self, spec: &Value) -> Vec<String> {
        let not_ready = serde_json::json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let keeps_off =
            |taint: &Value| ["NoSchedule", "NoExecute"].contains(&text(taint, "effect")) && !tolerated(spec, taint);
        if self.taints.iter().any(keeps_off) || !self.ready && keeps_off(&not_ready) {
            return vec!["node(s) had untolerated taint(s)".to_owned()];
        }
        Vec::new()
    }

    fn affinity(&self, spec: &Value) -> Vec<String> {
        if placement::selected(spec, &self.name, &self.labels) {
            return Vec::new();
        }
        vec!["node(s) didn't match Pod's node affinity/selector".to_owned()]
    }

    pub(super) fn matches_term(&self, term: &Value) -> bool {
        placement::matches_term(term, &self.name, &self.labels)
    }

    fn ports(&self, needs: &Needs) -> Vec<String> {
        if needs.ports.iter().any(|port| self.ports.iter().any(|taken| taken.conflicts(port))) {
            return vec!["node(s) didn't have free ports for the requested pod ports".to_owned()];
        }
        Vec::new()
    }

    fn resources(&self, needs: &Needs) -> Vec<String> {
        let mut objections = Vec::new();
        let room = self.allocatable.get("pods").map_or(i64::MAX, |q| q.units());
        if self.pods + 1 > room {
            objections.push("Too many pods".to_owned());
        }
        for (name, wanted) in needs.requests.iter().filter(|(_, wanted)| !wanted.is_zero()) {
            let total = self.allocatable.get(name).copied().unwrap_or(Quantity::ZERO);
            let free = total.minus(self.used.get(name).copied().unwrap_or(Quantity::ZERO));
            if *wanted > free {
                objections.push(format!("Insufficient {name}"));
            }
        }
        objections
    }
}

/// Whether the pod is one that this scheduler places: unbound, not gated, not on its way out, asking for us.
pub(super) fn wants_a_node(spec: &Value) -> bool {
    text(spec, "nodeName").is_empty()
        && items(spec, "schedulingGates").is_empty()
        && present(spec, "schedulerName").is_none_or(|name| name == "default-scheduler")
}
