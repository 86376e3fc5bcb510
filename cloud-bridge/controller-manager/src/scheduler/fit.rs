//! Whether one pod fits on one node, and the reason if not, in kube-scheduler's words: only by the node and its pods.
//! Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::asleep::Hint;
use super::needs::{Amounts, HostPort, Needs, NonZero, add, amounts, subtract};
use super::pod::{Pod, PodKey};
use crate::placement::{self, tolerated};
use apimachinery::json::{flag, items, text};
use apimachinery::quantity::Quantity;

/// Why a pod cannot be on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Objection {
    pub(super) reasons: Vec<Cow<'static, str>>,
    /// It could be if other pods went (K8s `Unschedulable`, not `UnschedulableAndUnresolvable`).
    pub(super) resolvable: bool,
    /// It is about pods elsewhere, not about the node.
    pub(super) by_pods: bool,
}

impl Objection {
    pub(super) fn new(reason: impl Into<Cow<'static, str>>, resolvable: bool) -> Self {
        Self { reasons: vec![reason.into()], resolvable, by_pods: false }
    }
}

/// State of a node for the scheduler.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) labels: Value,
    taints: Vec<Value>,
    unschedulable: bool,
    ready: bool,
    pub(super) allocatable: Amounts,
    /// Amounts that the pods on the node use.
    pub(super) used: Amounts,
    pub(super) load: NonZero,
    pub(super) pods: BTreeMap<PodKey, Arc<Pod>>,
    ports: Vec<HostPort>,
}

impl Node {
    /// Updates the state from a Node object, and keeps the usage of its pods. False if nothing relevant changed.
    pub(super) fn update(&mut self, name: &str, labels: Value, node: &Value) -> bool {
        let taints = items(&node["spec"], "taints");
        let unschedulable = flag(&node["spec"], "unschedulable");
        let ready = items(&node["status"], "conditions")
            .iter()
            .any(|c| text(c, "type") == "Ready" && text(c, "status") == "True");
        let allocatable = amounts(&node["status"], "allocatable");
        let same = self.name == name
            && self.labels == labels
            && self.taints == taints
            && self.unschedulable == unschedulable
            && self.ready == ready
            && self.allocatable == allocatable;
        self.name = name.to_owned();
        self.labels = labels;
        self.taints = taints.to_vec();
        self.unschedulable = unschedulable;
        self.ready = ready;
        self.allocatable = allocatable;
        !same
    }

    /// A pod is on the node.
    pub(super) fn add(&mut self, pod: Arc<Pod>) {
        add(&mut self.used, &pod.needs.requests);
        self.load = self.load.plus(pod.needs.load);
        self.ports.extend(pod.needs.ports.iter().cloned());
        self.pods.insert(pod.key.clone(), pod);
    }

    /// A pod is no longer on the node.
    pub(super) fn remove(&mut self, key: &PodKey) -> Option<Arc<Pod>> {
        let pod = self.pods.remove(key)?;
        subtract(&mut self.used, &pod.needs.requests);
        self.load = self.load.minus(pod.needs.load);
        for port in &pod.needs.ports {
            if let Some(at) = self.ports.iter().position(|taken| taken == port) {
                self.ports.swap_remove(at);
            }
        }
        Some(pod)
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).and_then(Value::as_str)
    }

    /// Why the pod cannot be here. As in kube-scheduler, the first group of rules that objects has the last word.
    pub(super) fn objection(&self, spec: &Value, needs: &Needs) -> Option<Objection> {
        self.refusal(spec).map(|reason| Objection::new(reason, false)).or_else(|| self.lacks(needs))
    }

    /// Why a pod with this spec cannot be here, whichever pods are: as long as the Node object stays as it is.
    pub(super) fn refusal(&self, spec: &Value) -> Option<&'static str> {
        if self.is_cordoned(spec) {
            Some("node(s) were unschedulable")
        } else if self.is_tainted(spec) {
            Some("node(s) had untolerated taint(s)")
        } else if !self.is_selected(spec) {
            Some("node(s) didn't match Pod's node affinity/selector")
        } else {
            None
        }
    }

    /// The amounts of which the present pods leave too little.
    pub(super) fn lacks(&self, needs: &Needs) -> Option<Objection> {
        if needs.ports.iter().any(|port| self.ports.iter().any(|taken| taken.conflicts(port))) {
            return Some(Objection::new("node(s) didn't have free ports for the requested pod ports", true));
        }
        self.lacks_amounts(needs)
    }

    /// Whether a change of this node may give the pod a place on it.
    pub(super) fn hint(&self, pod: &Pod) -> Hint {
        match self.objection(&pod.spec, &pod.needs) {
            None if pod.looks_at_pods() => Hint::Perhaps,
            None => Hint::Likely,
            // In the place of others.
            Some(objection) if objection.resolvable && !pod.never_preempts => {
                let less = self.pods.values().any(|other| other.priority < pod.priority);
                if less { Hint::Perhaps } else { Hint::No }
            }
            Some(_) => Hint::No,
        }
    }

    fn is_cordoned(&self, spec: &Value) -> bool {
        let taint = || json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
        self.unschedulable && !tolerated(spec, &taint())
    }

    /// A node that is not ready counts as tainted, as the node lifecycle controller is about to taint it.
    pub(super) fn is_tainted(&self, spec: &Value) -> bool {
        let keeps_off =
            |taint: &Value| ["NoSchedule", "NoExecute"].contains(&text(taint, "effect")) && !tolerated(spec, taint);
        let not_ready = || json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        self.taints.iter().any(keeps_off) || !self.ready && keeps_off(&not_ready())
    }

    /// Taints that would rather have the pod elsewhere.
    pub(super) fn dislikes(&self, spec: &Value) -> usize {
        let counts = |taint: &&Value| text(taint, "effect") == "PreferNoSchedule" && !tolerated(spec, taint);
        self.taints.iter().filter(counts).count()
    }

    pub(super) fn is_selected(&self, spec: &Value) -> bool {
        placement::selected(spec, &self.name, &self.labels)
    }

    pub(super) fn matches_term(&self, term: &Value) -> bool {
        placement::matches_term(term, &self.name, &self.labels)
    }

    /// Amounts of which there is too little. No other pod can free what an empty node does not have.
    fn lacks_amounts(&self, needs: &Needs) -> Option<Objection> {
        let mut lacks = Objection { reasons: Vec::new(), resolvable: true, by_pods: false };
        let room = self.allocatable.get("pods").map_or(i64::MAX, |q| q.units());
        if i64::try_from(self.pods.len()).unwrap_or(i64::MAX) >= room {
            lacks.reasons.push("Too many pods".into());
        }
        for (name, wanted) in needs.requests.iter().filter(|(_, wanted)| !wanted.is_zero()) {
            let total = self.allocatable.get(name).copied().unwrap_or(Quantity::ZERO);
            let free = total.minus(self.used.get(name).copied().unwrap_or(Quantity::ZERO));
            if *wanted > free {
                lacks.reasons.push(format!("Insufficient {name}").into());
                lacks.resolvable &= *wanted <= total;
            }
        }
        (!lacks.reasons.is_empty()).then_some(lacks)
    }
}
