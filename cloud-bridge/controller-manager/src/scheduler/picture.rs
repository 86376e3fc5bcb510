//! What the scheduler knows: nodes, the pods on them, namespaces, volumes. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::affinity::Namespaces;
use super::budgets::Budgets;
use super::fit::Node;
use super::pod::{Pod, PodKey};
use super::volumes::Volumes;

#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) nodes: BTreeMap<String, Node>,
    /// Pods that have a node, known or not: its name is in the first place.
    placed: HashMap<PodKey, (String, Arc<Pod>)>,
    /// Those of them that say which pods are to be near them or apart.
    affine: BTreeSet<PodKey>,
    pub(super) namespaces: Namespaces,
    pub(super) volumes: Volumes,
    pub(super) budgets: Budgets,
}

impl Picture {
    /// A node came or changed; true if that may give a pod a node.
    pub(super) fn node(&mut self, name: &str, labels: Value, node: &Value) -> bool {
        // Pods bound to a node before it was seen count as well.
        if !self.nodes.contains_key(name) {
            let mut fresh = Node::default();
            let here = self.placed.values().filter(|(node, _)| node == name);
            here.for_each(|(_, pod)| fresh.add(Arc::clone(pod)));
            self.nodes.insert(name.to_owned(), fresh);
        }
        self.nodes.get_mut(name).is_some_and(|known| known.update(name, labels, node))
    }

    /// The pod is on the node.
    pub(super) fn place(&mut self, node: String, pod: Arc<Pod>) {
        self.leave(&pod.key);
        if !pod.affinity.is_empty() {
            self.affine.insert(pod.key.clone());
        }
        if let Some(known) = self.nodes.get_mut(&node) {
            known.add(Arc::clone(&pod));
        }
        self.placed.insert(pod.key.clone(), (node, pod));
    }

    /// The pod is on no node; what was known of it.
    pub(super) fn leave(&mut self, key: &PodKey) -> Option<(String, Arc<Pod>)> {
        let (node, pod) = self.placed.remove(key)?;
        self.affine.remove(key);
        if let Some(known) = self.nodes.get_mut(&node) {
            known.remove(key);
        }
        Some((node, pod))
    }

    pub(super) fn placed(&self, key: &PodKey) -> Option<&(String, Arc<Pod>)> {
        self.placed.get(key)
    }

    pub(super) fn placed_keys(&self) -> impl Iterator<Item = &PodKey> {
        self.placed.keys()
    }

    /// The pods on known nodes: all, or those that say something about other pods.
    pub(super) fn placed_pods(&self, all: bool) -> Box<dyn Iterator<Item = (&Pod, &Node)> + '_> {
        if all {
            return Box::new(self.nodes.values().flat_map(|node| node.pods.values().map(move |pod| (&**pod, node))));
        }
        Box::new(self.affine.iter().filter_map(|key| {
            let (node, pod) = self.placed.get(key)?;
            Some((&**pod, self.nodes.get(node)?))
        }))
    }
}
