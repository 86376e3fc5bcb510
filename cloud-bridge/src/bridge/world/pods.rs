//! Pods of nodes: from lists, from the watch, and by name. Pure.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::{Effect, Pod, Round, World, without};
use crate::bridge::slim::BoundPod;
use crate::bridge::told::kinds::Kind;

/// Maximum number of deleted pods of one node that are remembered by their uids.
pub(super) const MAX_BURIED: usize = 1024;

impl World {
    /// The pods of a node, from a list of version `at` that was requested in this round. The watch may be ahead of that
    /// list or behind.
    pub fn seed(&mut self, node: &str, round: Round, pods: Vec<BoundPod>, at: Option<u64>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(view) = self.nodes.get_mut(node).filter(|view| round >= view.round) else { return effects };
        let shown: HashSet<&str> = pods.iter().map(BoundPod::uid).collect();
        let old = |pod: &Pod| at.zip(pod.version).is_none_or(|(at, version)| version <= at);
        let lost = view.pods.iter().filter(|(uid, pod)| !shown.contains(&***uid) && old(pod));
        effects.extend(lost.filter_map(|(uid, pod)| ask(&mut view.asked, node, &pod.key, uid)));
        let gone = std::mem::take(&mut view.gone);
        (view.seeded, view.seeded_at) = (true, at);
        for pod in pods {
            if pod.node == node && !gone.contains(pod.uid()) {
                self.enter(pod, &mut effects);
            }
        }
        self.settle(node, &mut effects);
        effects
    }

    /// A new list of all pods begins. It counts as newer than every earlier one, whatever its version: the API may have
    /// been restored.
    pub fn relisted(&mut self, node: &str) {
        let Some(view) = self.nodes.get_mut(node) else { return };
        view.seeded_at = None;
        for pod in view.pods.values_mut() {
            (pod.version, pod.unlisted) = (None, true);
        }
        view.buried.values_mut().for_each(|unlisted| *unlisted = true);
    }

    /// The list names this pod, which has been applied.
    pub fn listed(&mut self, node: &str, uid: &str) {
        let Some(view) = self.nodes.get_mut(node) else { return };
        if let Some(pod) = view.pods.get_mut(uid) {
            pod.unlisted = false;
        }
        if let Some(unlisted) = view.buried.get_mut(uid) {
            *unlisted = false;
        }
    }

    /// The watch has delivered an added or changed pod.
    pub fn pod_applied(&mut self, pod: BoundPod) -> Vec<Effect> {
        self.doubt(&pod).unwrap_or_else(|| self.pod_found(pod))
    }

    /// A pod from before the list that lacks it: it is requested by name before it is used.
    fn doubt(&mut self, pod: &BoundPod) -> Option<Vec<Effect>> {
        let view = self.nodes.get_mut(&pod.node)?;
        let old = pod.version? <= view.seeded_at?;
        if !old || view.pods.contains_key(pod.uid()) || view.buried.contains_key(pod.uid()) {
            return None;
        }
        Some(ask(&mut view.asked, &pod.node, &pod.object.digest.key, pod.uid()).into_iter().collect())
    }

    /// The API has the pod that was requested by name.
    pub fn pod_found(&mut self, pod: BoundPod) -> Vec<Effect> {
        let mut effects = Vec::new();
        let node = pod.node.clone();
        if self.is_ours(&node) {
            self.enter(pod, &mut effects);
            self.settle(&node, &mut effects);
        }
        effects
    }

    /// A pod was deleted.
    pub fn pod_deleted(&mut self, node: &str, key: &ObjectKey, uid: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(view) = self.nodes.get_mut(node) else { return effects };
        view.buried.remove(uid);
        if !view.seeded {
            view.gone.insert(uid.to_owned());
        }
        let asked = view.asked.remove(uid);
        let pod = view.pods.remove(uid);
        effects.push(Effect::Remove { node: node.to_owned(), key: key.clone(), uid: uid.to_owned() });
        if let Some(pod) = &pod {
            self.release(node, &pod.refs, &mut effects);
            self.release(node, &pod.volumes, &mut effects);
        }
        if pod.is_some() || asked {
            self.settle(node, &mut effects);
        }
        effects
    }

    /// The API does not have the pod that was requested by name. Later events of the watch about it are outdated.
    pub fn pod_gone(&mut self, node: &str, key: &ObjectKey, uid: &str) -> Vec<Effect> {
        let pod = self.nodes.get(node).and_then(|view| view.pods.get(uid));
        let unlisted = pod.is_some_and(|pod| pod.unlisted);
        let effects = self.pod_deleted(node, key, uid);
        if let Some(view) = self.nodes.get_mut(node) {
            // Beyond the limit the tombstones of the node's state prevent its return.
            if view.buried.len() < MAX_BURIED {
                view.buried.insert(uid.to_owned(), unlisted);
            }
        }
        effects
    }

    /// Called after a complete new list: key and uid of the node's pods that are not in it. Each must be looked up
    /// before it counts as deleted.
    pub fn missing(&mut self, node: &str) -> Vec<(ObjectKey, String)> {
        let Some(view) = self.nodes.get_mut(node) else { return Vec::new() };
        // The watch delivers nothing more about pods that are not in the list.
        view.buried.retain(|_, unlisted| !*unlisted);
        let missing = view.pods.iter().filter(|(_, pod)| pod.unlisted);
        missing.map(|(uid, pod)| (pod.key.clone(), uid.clone())).collect()
    }

    /// The node has connected: undoes what was written about its pods while it was silent.
    pub fn connected(&self, node: &str) -> Vec<Effect> {
        let pods = self.nodes.get(node).into_iter().flat_map(|view| &view.pods);
        pods.filter(|(_, pod)| pod.falsely_unready).map(|(uid, pod)| pod.restore_ready(node, uid)).collect()
    }

    /// Returns this effect if its pod is still in the state that needs it: it could not be carried out. A pod that has
    /// changed since got an effect of its own.
    pub fn still_needed(&self, effect: Effect) -> Option<Effect> {
        let pod = |node: &str, uid: &str| self.nodes.get(node).and_then(|view| view.pods.get(uid));
        let needed = match &effect {
            Effect::RestoreReady { node, uid, version, .. } => {
                pod(node, uid).is_some_and(|pod| pod.falsely_unready && pod.version == *version)
            }
            Effect::FinishMirror { node, uid, .. } => pod(node, uid).is_some_and(|pod| pod.terminating),
            _ => false,
        };
        needed.then_some(effect)
    }

    fn enter(&mut self, pod: BoundPod, effects: &mut Vec<Effect>) {
        let BoundPod { node, object, refs, generation, version, terminating, mirror_of, falsely_unready } = pod;
        let Some(view) = self.nodes.get_mut(&node) else { return };
        let (key, uid) = (object.digest.key.clone(), object.digest.uid.clone());
        if view.buried.contains_key(&uid) {
            return;
        }
        // A watch delivers a deletion before its successor. So a pod with a name in use is either older or newer than
        // the present one: applying it directly would lose one of them permanently.
        let taken = view.pods.iter().find(|(other, pod)| **other != uid && pod.key == key);
        if let Some((other, _)) = taken {
            effects.extend(ask(&mut view.asked, &node, &key, other));
            return;
        }
        view.asked.remove(&uid);
        let old = view.pods.get(&uid);
        // A list may have shown a newer state than the watch has delivered, or vice versa.
        if old.is_some_and(|old| old.is_newer(generation, version, terminating)) {
            return;
        }
        let unlisted = old.is_none_or(|old| old.unlisted);
        let (old, volumes) = old.map(|old| (old.refs.clone(), old.volumes.clone())).unwrap_or_default();
        let (drivers, refs): (BTreeSet<_>, BTreeSet<_>) = refs.into_iter().partition(|name| Kind::CsiDriver.is(name));
        let drivers = drivers.into_iter().map(Arc::new).collect();
        let refs: BTreeSet<ObjectKey> = refs
            .into_iter()
            .chain(view.groups(&key.namespace, self.service_scope))
            .chain(view.policies(&key.namespace, self.service_scope))
            .collect();
        let known = |name: &ObjectKey| self.shared.get_key_value(name).map(|(known, _)| Arc::clone(known));
        let refs: Box<[_]> = refs.into_iter().map(|name| known(&name).unwrap_or_else(|| Arc::new(name))).collect();
        let held = Some(object);
        let added = without(&refs, &old);
        let removed = without(&old, &refs);
        let entered = Pod {
            key: key.clone(),
            refs,
            drivers,
            volumes,
            generation,
            version,
            terminating,
            falsely_unready,
            unlisted,
            held,
        };
        let restore = falsely_unready.then(|| entered.restore_ready(&node, &uid));
        view.pods.insert(uid.clone(), Box::new(entered));
        let grows = !added.is_empty();
        for name in added {
            self.need(&node, name, effects);
        }
        self.release(&node, &removed, effects);
        self.choose_volumes_of_pod(&node, &uid, effects);
        // A node that is new in the namespace adds to its room.
        if grows {
            self.refill(&key.namespace, effects);
        }
        effects.extend(restore);
        if terminating && mirror_of.is_some() {
            effects.push(Effect::FinishMirror { node, key, uid, failures: 0 });
        }
    }
}

impl Pod {
    /// Everything shared that it needs.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.refs.iter().chain(&self.volumes)
    }

    fn restore_ready(&self, node: &str, uid: &str) -> Effect {
        let (node, key, uid) = (node.to_owned(), self.key.clone(), uid.to_owned());
        Effect::RestoreReady { node, key, uid, version: self.version, failures: 0 }
    }

    /// Whether this is a newer state of the pod than one with these. A change without a new generation, such as a
    /// label, still changes the version.
    fn is_newer(&self, generation: i64, version: Option<u64>, terminating: bool) -> bool {
        let later = self.version.zip(version).is_some_and(|(ours, theirs)| ours > theirs);
        generation < self.generation || (self.terminating && !terminating) || (generation == self.generation && later)
    }
}

/// The effect that requests a pod by name, unless the request is under way.
fn ask(asked: &mut HashSet<String>, node: &str, key: &ObjectKey, uid: &str) -> Option<Effect> {
    let first = asked.insert(uid.to_owned());
    first.then(|| Effect::Ask { node: node.to_owned(), key: key.clone(), uid: uid.to_owned() })
}
