//! State of the scheduler: nodes, the pods on them, namespaces, volumes. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::affinity::{Namespaces, Scope};
use super::budgets::Budgets;
use super::cache::Cache;
use super::fit::Node;
use super::kin::{Kin, Kins};
use super::pod::{Pod, PodKey};
use super::volumes::Volumes;

#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) nodes: BTreeMap<String, Node>,
    /// Pods that have a node, known or not: its name is in the first place.
    placed: BTreeMap<PodKey, (Arc<str>, Arc<Pod>)>,
    /// Those of them whose node is not known, by its name.
    strays: HashMap<String, BTreeSet<PodKey>>,
    /// Groups with affinity or anti-affinity terms about other pods, and groups without.
    affine: Kins,
    others: Kins,
    pub(super) namespaces: Namespaces,
    pub(super) volumes: Volumes,
    pub(super) budgets: Budgets,
    /// Kept up with what changes here.
    pub(super) cache: Cache,
}

impl Picture {
    /// Adds or changes a node; returns what that may change for a pod.
    pub(super) fn node(&mut self, name: &str, labels: Value, node: &Value) -> NodeNews {
        let new = !self.nodes.contains_key(name);
        if new {
            let mut fresh = Node::default();
            // Pods bound to a node before it was seen count as well.
            let here = self.strays.remove(name).unwrap_or_default();
            here.iter().filter_map(|key| self.placed.get(key)).for_each(|(_, pod)| fresh.add(Arc::clone(pod)));
            self.nodes.insert(name.to_owned(), fresh);
        }
        let Some(known) = self.nodes.get_mut(name) else { return NodeNews::None };
        let relabelled = new || known.labels != labels;
        if !known.update(name, labels, node) {
            return NodeNews::None;
        }
        self.cache.forget_screens();
        if relabelled && !known.pods.is_empty() {
            self.cache.forget_counts();
        }
        if relabelled { NodeNews::Relabelled } else { NodeNews::Other }
    }

    /// A node went; false if it was not known.
    pub(super) fn node_gone(&mut self, name: &str) -> bool {
        let Some(node) = self.nodes.remove(name) else { return false };
        self.cache.forget_screens();
        if !node.pods.is_empty() {
            self.cache.forget_counts();
            self.strays.insert(name.to_owned(), node.pods.into_keys().collect());
        }
        true
    }

    /// The pod is on the node.
    pub(super) fn place(&mut self, node: &str, pod: Arc<Pod>) {
        self.leave(&pod.key);
        let node = Arc::from(node);
        self.kins(&pod).insert(&node, &pod);
        if let Some(known) = self.nodes.get_mut(&*node) {
            known.add(Arc::clone(&pod));
            self.cache.count(&pod, &known.labels, 1, &self.namespaces);
        } else {
            self.strays.entry(node.to_string()).or_default().insert(pod.key.clone());
        }
        self.placed.insert(pod.key.clone(), (node, pod));
    }

    /// Removes a pod from its node; returns its state.
    pub(super) fn leave(&mut self, key: &PodKey) -> Option<(Arc<str>, Arc<Pod>)> {
        let (node, pod) = self.placed.remove(key)?;
        self.kins(&pod).remove(&node, &pod);
        if let Some(known) = self.nodes.get_mut(&*node) {
            known.remove(key);
            self.cache.count(&pod, &known.labels, -1, &self.namespaces);
        } else if let Some(strays) = self.strays.get_mut(&*node) {
            strays.remove(key);
            if strays.is_empty() {
                self.strays.remove(&*node);
            }
        }
        Some((node, pod))
    }

    /// Adds or changes a namespace; false if its labels are unchanged.
    pub(super) fn namespace(&mut self, name: String, labels: Value) -> bool {
        let new = self.namespaces.get(&name) != Some(&labels);
        if new {
            self.namespaces.insert(name, labels);
            self.cache.forget_counts();
        }
        new
    }

    pub(super) fn namespace_gone(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.cache.forget_counts();
    }

    fn kins(&mut self, pod: &Pod) -> &mut Kins {
        if pod.affinity.is_empty() { &mut self.others } else { &mut self.affine }
    }

    pub(super) fn placed(&self, key: &PodKey) -> Option<&(Arc<str>, Arc<Pod>)> {
        self.placed.get(key)
    }

    pub(super) fn placed_keys(&self) -> impl Iterator<Item = &PodKey> {
        self.placed.keys()
    }

    /// The pods with terms about other pods.
    pub(super) fn affine(&self) -> impl Iterator<Item = Kin<'_>> + Send {
        self.affine.all()
    }

    /// The pods of these namespaces.
    pub(super) fn kin_of<'a>(&'a self, scope: &Scope<'a>) -> impl Iterator<Item = Kin<'a>> + Send + use<'a> {
        self.affine.of(scope).chain(self.others.of(scope))
    }

    /// The pods of a namespace.
    pub(super) fn kin_in<'a>(&'a self, namespace: &str) -> impl Iterator<Item = Kin<'a>> + Send + use<'a> {
        self.affine.of_namespace(namespace).chain(self.others.of_namespace(namespace))
    }

    /// The known nodes that some of them are on, with these.
    pub(super) fn located<'a>(
        &'a self,
        kin: &Kin<'a>,
    ) -> impl Iterator<Item = (&'a [Arc<Pod>], &'a Node)> + Send + use<'a> {
        kin.nodes().filter_map(|(node, pods)| Some((pods, self.nodes.get(node)?)))
    }
}

/// News of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeNews {
    /// Nothing that matters.
    None,
    /// It is new, or has other labels: pods on it count elsewhere.
    Relabelled,
    Other,
}
