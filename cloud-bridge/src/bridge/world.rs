//! Which node should hold what: pods of connected nodes, and the ConfigMaps and Secrets that those pods name. Pure:
//! watch events in, effects out.
//!
//! A node's list is complete when its pods have been listed and every object that they name was found or is known to be
//! missing. The node gets nothing before that, because it deletes what a complete list lacks. After that, a pod waits
//! for the objects it names, so that it does not start without a ConfigMap that is only late.
//!
//! A node whose last changes came from another bridge may hold newer states than this bridge has received. Its list is
//! incomplete again then, until its pods and their objects have been read again. Readings are counted in rounds: a
//! reading that started in a round is at least as new as the node's state before it.

mod admission;
mod effect;
mod interests;
mod jobs;
mod objects;
mod orders;
mod policies;
mod room;
mod services;
mod shared;
mod uses;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use edge_protocol::message::ObjectKey;
use edge_protocol::version::Wants;

use super::slim::BoundPod;
use super::told::groups::ServiceScope;
pub use super::told::{Group, Told};
pub use effect::Effect;
use interests::Interests;
use orders::Orders;
use room::Rooms;
use shared::Shared;

/// Maximum number of deleted pods of one node that are remembered by their uids.
const MAX_BURIED: usize = 1024;

/// Everything that the nodes of this bridge should hold.
#[derive(Debug, Default)]
pub struct World {
    nodes: HashMap<String, Node>,
    shared: HashMap<Arc<ObjectKey>, Shared>,
    rooms: Rooms,
    /// Number of the newest round of readings.
    round: u64,
    service_scope: ServiceScope,
    /// Whether the site of every node is known.
    located: bool,
    orders: Orders,
    /// Whether lists are withheld: none is sent as complete.
    withheld: bool,
}

#[derive(Debug, Default)]
struct Node {
    /// By uid. In boxes: most nodes have few, and a leaf of the map has room for eleven.
    pods: BTreeMap<String, Box<Pod>>,
    /// Session of the connection that must get everything.
    session: u64,
    /// Objects that it asks for in addition to its pods.
    wants: Wants,
    /// Whether it takes orders of jobs.
    takes_orders: bool,
    /// Its site, if it asks for routes.
    site: Option<Box<str>>,
    interests: Interests,
    /// Groups that it receives because of both, in order.
    own: Box<[Arc<ObjectKey>]>,
    /// Groups of its devices and rules, if it asks for them, in order.
    behind: Box<[Arc<ObjectKey>]>,
    /// Data older than this round may be older than what the node holds.
    round: u64,
    /// Whether its pods have been read in that round or later.
    seeded: bool,
    /// Resource version of the list with which they were read. Pods that the watch delivers from before it may be
    /// deleted since.
    seeded_at: Option<u64>,
    listed: bool,
    /// Pods that were deleted since their list was requested: the list may still show them.
    gone: HashSet<String>,
    /// Pods that are deleted according to a request by name, though the watch may still deliver older states of them.
    /// At most [`MAX_BURIED`], because a node may ask about invented names. The value says whether the list of all
    /// pods has yet to name the pod.
    buried: HashMap<String, bool>,
    /// Pods that are being requested by name; the list is not complete before it is known which pod has the name.
    asked: HashSet<String>,
}

#[derive(Debug)]
struct Pod {
    key: ObjectKey,
    /// In order. Pods that name the same objects share the text.
    refs: Box<[Arc<ObjectKey>]>,
    generation: i64,
    version: Option<u64>,
    terminating: bool,
    falsely_unready: bool,
    /// Whether the list of all pods has yet to name it.
    unlisted: bool,
    /// Not sent yet, because an object that it names is not known.
    held: Option<Arc<Told>>,
}

impl World {
    pub fn new(service_scope: ServiceScope) -> Self {
        Self { service_scope, ..Self::default() }
    }

    /// Sets whether lists are withheld: while true, no list is sent as complete.
    pub fn withhold_lists(&mut self, withheld: bool) {
        self.withheld = withheld;
    }

    pub fn is_ours(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Starts to keep this node's pods. Follow with [`refresh`](Self::refresh).
    pub fn add_node(&mut self, node: &str) {
        self.nodes.entry(node.to_owned()).or_default();
    }

    /// Removes a node and everything that only it used.
    pub fn drop_node(&mut self, node: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        let view = self.nodes.remove(node).unwrap_or_default();
        view.pods.values().flat_map(|pod| &pod.refs).for_each(|key| self.rooms.leave(node, key));
        for refs in view.pods.into_values().map(|pod| pod.refs).chain([view.own, view.behind]) {
            self.release(node, &refs, &mut effects);
        }
        // What it gives back may be for other nodes.
        effects.retain(
            |effect| !matches!(effect, Effect::Set { node: to, .. } | Effect::Withdraw { node: to, .. } if to == node),
        );
        effects
    }

    /// The node has said hello in this session, and comes from another bridge: it gets nothing before everything has
    /// been read again. Follow with a [`round`](Self::round) of readings and [`seed`](Self::seed).
    pub fn refresh(&mut self, node: &str, session: u64) {
        if let Some(view) = self.nodes.get_mut(node) {
            (view.session, view.round) = (session, self.round + 1);
            (view.seeded, view.listed) = (false, false);
            view.asked.clear();
        }
    }

    /// Number of the newest round of readings.
    pub fn present_round(&self) -> u64 {
        self.round
    }

    /// Starts a round for requests about nodes; the number belongs to the answer.
    pub fn round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// The pods of a node, from a list of version `at` that was requested in this round. The watch may be ahead of that
    /// list or behind.
    pub fn seed(&mut self, node: &str, round: u64, pods: Vec<BoundPod>, at: Option<u64>) -> Vec<Effect> {
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

    /// Names of all nodes. The beginning and end of a list of all pods are handled node by node: all at once takes too
    /// long.
    pub fn nodes(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
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
        let old = old.map(|old| old.refs.clone()).unwrap_or_default();
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
        let entered = Pod { key: key.clone(), refs, generation, version, terminating, falsely_unready, unlisted, held };
        let restore = falsely_unready.then(|| entered.restore_ready(&node, &uid));
        view.pods.insert(uid.clone(), Box::new(entered));
        let grows = !added.is_empty();
        for name in added {
            self.need(&node, name, effects);
        }
        self.release(&node, &removed, effects);
        // A node that is new in the namespace adds to its room.
        if grows {
            self.refill(&key.namespace, effects);
        }
        effects.extend(restore);
        if terminating && mirror_of.is_some() {
            effects.push(Effect::FinishMirror { node, key, uid, failures: 0 });
        }
    }

    /// Sends the pods that need not wait any longer, and marks the list as complete if it is; until then it requests
    /// what the list waits for.
    fn settle(&mut self, node: &str, effects: &mut Vec<Effect>) {
        self.freshen(node, effects);
        let Some(view) = self.nodes.get_mut(node) else { return };
        let shared = &self.shared;
        let pending = |key: &ObjectKey| shared.get(key).is_some_and(|s| s.is_pending_for(node));
        let late = |key: &ObjectKey| shared.get(key).is_some_and(|s| s.is_late_for(node, view.round));
        let placed = self.located || !view.wants.routes;
        let told = !view.own.iter().chain(&view.behind).any(|name| late(name));
        let ordered = !view.takes_orders || self.orders.are_of(view.round);
        let mut complete = !self.withheld && view.seeded && view.asked.is_empty() && placed && told && ordered;
        for pod in view.pods.values_mut() {
            if !view.listed && pod.refs.iter().any(|name| late(name)) {
                complete = false;
            }
            if pod.held.is_some() && (pod.terminating || !pod.refs.iter().any(|name| pending(name))) {
                let object = pod.held.take();
                effects.extend(object.map(|object| Effect::Set { node: node.to_owned(), object }));
            }
        }
        if complete && !view.listed {
            view.listed = true;
            effects.push(Effect::Listed { node: node.to_owned(), session: view.session });
        }
    }
}

impl Pod {
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

/// Names in `one` but not in `other`; both are sorted.
fn without(one: &[Arc<ObjectKey>], other: &[Arc<ObjectKey>]) -> Vec<Arc<ObjectKey>> {
    one.iter().filter(|name| other.binary_search(name).is_err()).cloned().collect()
}

/// The effect that requests a pod by name, unless the request is under way.
fn ask(asked: &mut HashSet<String>, node: &str, key: &ObjectKey, uid: &str) -> Option<Effect> {
    let first = asked.insert(uid.to_owned());
    first.then(|| Effect::Ask { node: node.to_owned(), key: key.clone(), uid: uid.to_owned() })
}

#[cfg(test)]
mod tests;
