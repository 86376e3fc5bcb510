//! The scheduler's picture of nodes and pods, and its decisions. Pure: objects and outcomes come in, decisions
//! go out.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::fit::{Node, wants_a_node};
use super::needs::{Needs, add, subtract};
use super::volumes::Volumes;
use apimachinery::json::text;

/// Namespace and name.
pub(super) type PodKey = (String, String);

/// A pod as far as placing it goes.
#[derive(Debug)]
struct Placed {
    node: String,
    needs: Needs,
}

/// A pod without a node.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) uid: String,
    spec: Value,
    /// What was last said about why it has no node.
    told: Option<String>,
}

/// What to do for one pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Bind it to this node. The pod counts as placed from now on.
    Bind { pod: PodKey, uid: String, node: String },
    /// Tell why it has no node: not said yet in these words.
    Tell { pod: PodKey, uid: String, message: String },
}

/// Everything known.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    nodes: BTreeMap<String, Node>,
    placed: HashMap<PodKey, Placed>,
    pending: BTreeMap<PodKey, Pending>,
    pub(super) volumes: Volumes,
    /// Something changed that may give a pending pod a node.
    stirred: bool,
}

impl Cluster {
    /// A node came or changed.
    pub(super) fn node(&mut self, name: &str, labels: Value, node: &Value) {
        // Pods bound to a node before it was seen count as well.
        if !self.nodes.contains_key(name) {
            let mut fresh = Node::default();
            for pod in self.placed.values().filter(|p| p.node == name) {
                occupy(&mut fresh, &pod.needs);
            }
            self.nodes.insert(name.to_owned(), fresh);
        }
        if let Some(known) = self.nodes.get_mut(name) {
            known.update(name, labels, node);
        }
        self.stirred = true;
    }

    /// A node went.
    pub(super) fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
        self.stirred = true;
    }

    /// A pod came or changed.
    pub(super) fn pod(&mut self, key: PodKey, uid: &str, deleting: bool, pod: &Value) {
        let spec = &pod["spec"];
        let node = text(spec, "nodeName");
        let ended = ["Succeeded", "Failed"].contains(&text(&pod["status"], "phase"));
        if ended || node.is_empty() && (deleting || !wants_a_node(spec)) {
            self.pod_gone(&key);
            return;
        }
        if !node.is_empty() {
            self.pending.remove(&key);
            if self.placed.get(&key).is_none_or(|placed| placed.node != node) {
                self.leave(&key);
                self.place(key, node.to_owned(), Needs::of(spec));
            }
            return;
        }
        // Placed a moment ago, and this is older news.
        if self.placed.contains_key(&key) {
            return;
        }
        let told = self.pending.remove(&key).filter(|old| old.uid == uid).and_then(|old| old.told);
        self.pending.insert(key, Pending { uid: uid.to_owned(), spec: spec.clone(), told });
        self.stirred = true;
    }

    /// A pod went, or will not run again.
    pub(super) fn pod_gone(&mut self, key: &PodKey) {
        self.pending.remove(key);
        self.leave(key);
    }

    /// A binding failed: the pod has no node after all, and will be looked at again when its object says so.
    pub(super) fn binding_failed(&mut self, key: &PodKey) {
        self.leave(key);
    }

    /// Forgets what a fresh list does not contain.
    pub(super) fn retain_pods(&mut self, listed: &std::collections::HashSet<PodKey>) {
        let gone: Vec<PodKey> =
            self.placed.keys().chain(self.pending.keys()).filter(|k| !listed.contains(*k)).cloned().collect();
        gone.iter().for_each(|key| self.pod_gone(key));
    }

    /// Forgets nodes that a fresh list does not contain.
    pub(super) fn retain_nodes(&mut self, listed: &std::collections::HashSet<String>) {
        self.nodes.retain(|name, _| listed.contains(name));
        self.stirred = true;
    }

    /// A claim or a volume changed.
    pub(super) fn stir(&mut self) {
        self.stirred = true;
    }

    /// What to do now: for each pending pod in order of namespace and name, a node or a reason.
    pub(super) fn decide(&mut self) -> Vec<Decision> {
        if !std::mem::take(&mut self.stirred) {
            return Vec::new();
        }
        let mut decisions = Vec::new();
        for (pod, mut pending) in std::mem::take(&mut self.pending) {
            let needs = Needs::of(&pending.spec);
            match choose(&self.nodes, &self.volumes, &pod.0, &pending.spec, &needs) {
                Ok(node) => {
                    self.place(pod.clone(), node.clone(), needs);
                    decisions.push(Decision::Bind { pod, uid: pending.uid, node });
                }
                Err(message) => {
                    if pending.told.as_deref() != Some(message.as_str()) {
                        let uid = pending.uid.clone();
                        decisions.push(Decision::Tell { pod: pod.clone(), uid, message: message.clone() });
                        pending.told = Some(message);
                    }
                    self.pending.insert(pod, pending);
                }
            }
        }
        decisions
    }

    fn place(&mut self, key: PodKey, node: String, needs: Needs) {
        if let Some(known) = self.nodes.get_mut(&node) {
            occupy(known, &needs);
        }
        self.placed.insert(key, Placed { node, needs });
    }

    fn leave(&mut self, key: &PodKey) {
        let Some(placed) = self.placed.remove(key) else { return };
        self.stirred = true;
        if let Some(node) = self.nodes.get_mut(&placed.node) {
            subtract(&mut node.used, &placed.needs.requests);
            node.pods -= 1;
            for port in &placed.needs.ports {
                if let Some(at) = node.ports.iter().position(|taken| taken == port) {
                    node.ports.swap_remove(at);
                }
            }
        }
    }
}

fn occupy(node: &mut Node, needs: &Needs) {
    add(&mut node.used, &needs.requests);
    node.pods += 1;
    node.ports.extend(needs.ports.iter().cloned());
}

/// The fitting node of which the least would be taken (then the one with fewer pods, then by name), or why there
/// is none.
fn choose(
    nodes: &BTreeMap<String, Node>,
    volumes: &Volumes,
    namespace: &str,
    spec: &Value,
    needs: &Needs,
) -> Result<String, String> {
    if nodes.is_empty() {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let required =
        volumes.of_pod(namespace, spec).map_err(|why| format!("0/{} nodes are available: {why}.", nodes.len()))?;
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(&Node, i64)> = None;
    for node in nodes.values() {
        let mut objections = node.objections(spec, needs);
        if objections.is_empty() && !node.reaches(&required) {
            objections.push("node(s) had volume node affinity conflict".to_owned());
        }
        if objections.is_empty() {
            let score = node.score(needs);
            let better = |(other, least): (&Node, i64)| score > least || score == least && node.pods < other.pods;
            if best.is_none_or(better) {
                best = Some((node, score));
            }
        }
        for reason in objections {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    if let Some((node, _)) = best {
        return Ok(node.name.clone());
    }
    let mut texts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    texts.sort();
    Err(format!("0/{} nodes are available: {}.", nodes.len(), texts.join(", ")))
}

/// The condition that says why a pod has no node, as a strategic merge patch of its status.
pub(super) fn unschedulable_patch(message: &str, now: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastProbeTime": null, "lastTransitionTime": now,
    }]}})
}
