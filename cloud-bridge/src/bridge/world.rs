//! Which node should hold what: pods of our nodes, and the ConfigMaps and Secrets those pods name. Pure: watch
//! events in, effects out.
//!
//! A node's list is not complete before its pods have been listed and every object they name was found or found
//! missing; until then the node is told nothing, because what is absent from a complete list is deleted there.
//! After that, a pod waits for the objects it names, so that it never starts towards a missing ConfigMap that is
//! only late.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use edge_protocol::message::{Object, ObjectKey};

use super::watched::BoundPod;

/// What must be done after an event, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The node should hold this.
    Set { node: String, object: Arc<Object> },
    /// The object was deleted.
    Remove { node: String, key: ObjectKey, uid: String },
    /// The object lives on, but this node has no use for it any more.
    Withdraw { node: String, key: ObjectKey, uid: String },
    /// Everything this node should hold has been said.
    Listed { node: String },
    /// Begin to follow a ConfigMap or Secret, in the name of this node; ends an earlier watch of the same key.
    Watch { key: ObjectKey, node: String },
    /// Two pods of one name: a list and a watch have seen the API at different times. Ask for this one by name, and take
    /// what is found; until then the other is not believed.
    Ask { node: String, key: ObjectKey, uid: String },
    /// Nobody needs it any more.
    Unwatch { key: ObjectKey },
    /// A controller that had not heard of the node wrote that this pod is not ready. If the node lives, undo it.
    RestoreReady { node: String, key: ObjectKey, uid: String },
    /// Somebody deleted the API's copy of a static pod: nothing has to be stopped for it, so finish the deletion.
    FinishMirror { node: String, key: ObjectKey, uid: String },
}

/// Everything our nodes should hold.
#[derive(Debug, Default)]
pub struct World {
    nodes: HashMap<String, Node>,
    shared: HashMap<ObjectKey, Shared>,
}

#[derive(Debug, Default)]
struct Node {
    /// By uid.
    pods: BTreeMap<String, Pod>,
    /// The pods this node had when it became ours have been read.
    seeded: bool,
    /// Resource version of the list they were read by. What the watch still tells from before it may be gone by it.
    seeded_at: Option<u64>,
    listed: bool,
    /// Deleted before the seed was read: the seed may still show them.
    gone: HashSet<String>,
    /// The API said of these, asked by name, that they are gone: the watch may still tell of them, from before.
    buried: HashSet<String>,
    /// Asked for by name; the list is not complete before it is known which pod has the name.
    asked: HashSet<String>,
}

#[derive(Debug)]
struct Pod {
    key: ObjectKey,
    refs: BTreeSet<ObjectKey>,
    generation: i64,
    version: Option<u64>,
    terminating: bool,
    falsely_unready: bool,
    /// Not said yet, because an object it names is not known yet.
    held: Option<Arc<Object>>,
}

#[derive(Debug)]
struct Shared {
    value: Value,
    /// Nodes with the number of their pods that name it.
    users: BTreeMap<String, usize>,
    /// In whose name it is watched.
    reader: String,
}

#[derive(Debug)]
enum Value {
    Pending,
    /// The API does not tell. Pods no longer wait for it; a list stays incomplete.
    Failed,
    Absent,
    Present(Arc<Object>),
}

impl World {
    pub fn is_ours(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// From now on this node's pods are kept. Follow with [`seed`](Self::seed).
    pub fn add_node(&mut self, node: &str) {
        self.nodes.entry(node.to_owned()).or_default();
    }

    /// Forgets a node and all it used.
    pub fn drop_node(&mut self, node: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for pod in self.nodes.remove(node).unwrap_or_default().pods.into_values() {
            self.release(node, &pod.refs, &mut effects);
        }
        effects.retain(|effect| matches!(effect, Effect::Watch { .. } | Effect::Unwatch { .. }));
        effects
    }

    /// The pods a node had when it became ours, by a list of version `at`. The watch may be ahead of that list or behind.
    pub fn seed(&mut self, node: &str, pods: Vec<BoundPod>, at: Option<u64>) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(view) = self.nodes.get_mut(node) {
            let shown: HashSet<&str> = pods.iter().map(BoundPod::uid).collect();
            let old = |pod: &Pod| at.zip(pod.version).is_some_and(|(at, version)| version <= at);
            let lost = view.pods.iter().filter(|(uid, pod)| !shown.contains(&***uid) && old(pod));
            effects.extend(lost.filter_map(|(uid, pod)| ask(&mut view.asked, node, &pod.key, uid)));
        }
        for pod in pods {
            let Some(view) = self.nodes.get(node) else { return effects };
            if pod.node == node && !view.gone.contains(pod.uid()) && !view.pods.contains_key(pod.uid()) {
                self.enter(pod, &mut effects);
            }
        }
        if let Some(view) = self.nodes.get_mut(node) {
            (view.seeded, view.seeded_at) = (true, at);
            view.gone = HashSet::new();
        }
        self.settle(node, &mut effects);
        effects
    }

    /// A new list of all pods begins, newer than every one before.
    pub fn relisted(&mut self) {
        self.nodes.values_mut().for_each(|view| view.seeded_at = None);
    }

    /// The watch says that a pod was added or changed.
    pub fn pod_applied(&mut self, pod: BoundPod) -> Vec<Effect> {
        self.doubt(&pod).unwrap_or_else(|| self.pod_found(pod))
    }

    /// What the watch tells from before the list that did not show it: asked for by name before it is believed.
    fn doubt(&mut self, pod: &BoundPod) -> Option<Vec<Effect>> {
        let view = self.nodes.get_mut(&pod.node)?;
        let old = pod.version? <= view.seeded_at?;
        if !old || view.pods.contains_key(pod.uid()) || view.buried.contains(pod.uid()) {
            return None;
        }
        Some(ask(&mut view.asked, &pod.node, &pod.object.digest.key, pod.uid()).into_iter().collect())
    }

    /// The API, asked for a pod by name, has it.
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

    /// The API, asked for a pod by name, has it no more. What the watch has still to tell of it is old.
    pub fn pod_gone(&mut self, node: &str, key: &ObjectKey, uid: &str) -> Vec<Effect> {
        let effects = self.pod_deleted(node, key, uid);
        if let Some(view) = self.nodes.get_mut(node) {
            view.buried.insert(uid.to_owned());
        }
        effects
    }

    /// After a complete new list: pods that are known here and not in it. Each is to be looked up before it is
    /// believed to be gone.
    pub fn missing(&mut self, listed: &HashSet<String>) -> Vec<(String, ObjectKey, String)> {
        // Of what is not in the list the watch has nothing more to tell.
        self.nodes.values_mut().for_each(|view| view.buried.retain(|uid| listed.contains(uid)));
        let of_node = |(node, view): (&String, &Node)| {
            let node = node.clone();
            let missing: Vec<_> = view.pods.iter().filter(|(uid, _)| !listed.contains(*uid)).collect();
            missing.into_iter().map(|(uid, pod)| (node.clone(), pod.key.clone(), uid.clone())).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// The node has connected: what was written about its pods while it was silent.
    pub fn connected(&self, node: &str) -> Vec<Effect> {
        let pods = self.nodes.get(node).into_iter().flat_map(|view| &view.pods);
        let restore = |(uid, pod): (&String, &Pod)| Effect::RestoreReady {
            node: node.to_owned(),
            key: pod.key.clone(),
            uid: uid.clone(),
        };
        pods.filter(|(_, pod)| pod.falsely_unready).map(restore).collect()
    }

    /// Whether a pod of this node names the object.
    pub fn uses(&self, node: &str, key: &ObjectKey) -> bool {
        self.shared.get(key).is_some_and(|shared| shared.users.contains_key(node))
    }

    /// A ConfigMap or Secret was read.
    pub fn object_present(&mut self, object: Object) -> Vec<Effect> {
        let object = Arc::new(object);
        let key = object.digest.key.clone();
        self.resolve(&key, |users, old, effects| {
            let replaced = match old {
                Value::Present(old) if old.digest.uid != object.digest.uid => Some(old.digest.uid.clone()),
                _ => None,
            };
            for node in users {
                if let Some(uid) = &replaced {
                    effects.push(Effect::Remove { node: node.clone(), key: key.clone(), uid: uid.clone() });
                }
                effects.push(Effect::Set { node: node.clone(), object: Arc::clone(&object) });
            }
            Value::Present(Arc::clone(&object))
        })
    }

    /// A ConfigMap or Secret is not there.
    pub fn object_absent(&mut self, key: &ObjectKey) -> Vec<Effect> {
        self.resolve(key, |users, old, effects| {
            if let Value::Present(old) = old {
                let uid = &old.digest.uid;
                effects.extend(users.map(|node| Effect::Remove {
                    node: node.clone(),
                    key: key.clone(),
                    uid: uid.clone(),
                }));
            }
            Value::Absent
        })
    }

    /// The API did not tell whether a ConfigMap or Secret is there. What is known of it stays.
    pub fn object_failed(&mut self, key: &ObjectKey) -> Vec<Effect> {
        match self.shared.get(key) {
            Some(Shared { value: Value::Pending, .. }) => self.resolve(key, |_, _, _| Value::Failed),
            _ => Vec::new(),
        }
    }

    fn resolve<F>(&mut self, key: &ObjectKey, change: F) -> Vec<Effect>
    where
        F: FnOnce(std::collections::btree_map::Keys<'_, String, usize>, &Value, &mut Vec<Effect>) -> Value,
    {
        let mut effects = Vec::new();
        let Some(shared) = self.shared.get_mut(key) else { return effects };
        shared.value = change(shared.users.keys(), &shared.value, &mut effects);
        let users: Vec<String> = shared.users.keys().cloned().collect();
        for node in users {
            self.settle(&node, &mut effects);
        }
        effects
    }

    fn enter(&mut self, pod: BoundPod, effects: &mut Vec<Effect>) {
        let BoundPod { node, object, refs, generation, version, terminating, mirror_of, falsely_unready } = pod;
        let Some(view) = self.nodes.get_mut(&node) else { return };
        let (key, uid) = (object.digest.key.clone(), object.digest.uid.clone());
        if view.buried.contains(&uid) {
            return;
        }
        // A watch tells of a deletion before it tells of a successor. What comes under a name that is taken is older
        // than what has it, or the other way round: the state would bury one of them for good.
        let taken = view.pods.iter().find(|(other, pod)| **other != uid && pod.key == key);
        if let Some((other, _)) = taken {
            effects.extend(ask(&mut view.asked, &node, &key, other));
            return;
        }
        view.asked.remove(&uid);
        let old = view.pods.get(&uid);
        // A seed may have shown a newer state than the watch has reached.
        if old.is_some_and(|old| generation < old.generation || (old.terminating && !terminating)) {
            return;
        }
        let old = old.map(|old| old.refs.clone()).unwrap_or_default();
        let held = Some(Arc::new(object));
        let added: Vec<_> = refs.difference(&old).cloned().collect();
        let removed: BTreeSet<_> = old.difference(&refs).cloned().collect();
        let entered = Pod { key: key.clone(), refs, generation, version, terminating, falsely_unready, held };
        view.pods.insert(uid.clone(), entered);
        for name in added {
            self.need(&node, name, effects);
        }
        self.release(&node, &removed, effects);
        if falsely_unready {
            effects.push(Effect::RestoreReady { node: node.clone(), key: key.clone(), uid: uid.clone() });
        }
        if terminating && mirror_of.is_some() {
            effects.push(Effect::FinishMirror { node, key, uid });
        }
    }

    fn need(&mut self, node: &str, key: ObjectKey, effects: &mut Vec<Effect>) {
        let shared = self.shared.entry(key.clone()).or_insert_with(|| {
            effects.push(Effect::Watch { key, node: node.to_owned() });
            Shared { value: Value::Pending, users: BTreeMap::new(), reader: node.to_owned() }
        });
        let count = shared.users.entry(node.to_owned()).or_default();
        *count += 1;
        if let (1, Value::Present(object)) = (*count, &shared.value) {
            effects.push(Effect::Set { node: node.to_owned(), object: Arc::clone(object) });
        }
    }

    fn release(&mut self, node: &str, refs: &BTreeSet<ObjectKey>, effects: &mut Vec<Effect>) {
        for key in refs {
            let Some(shared) = self.shared.get_mut(key) else { continue };
            match shared.users.get_mut(node) {
                Some(count) if *count > 1 => {
                    *count -= 1;
                    continue;
                }
                _ => drop(shared.users.remove(node)),
            }
            if let Value::Present(object) = &shared.value {
                let uid = object.digest.uid.clone();
                effects.push(Effect::Withdraw { node: node.to_owned(), key: key.clone(), uid });
            }
            match shared.users.keys().next() {
                None => {
                    self.shared.remove(key);
                    effects.push(Effect::Unwatch { key: key.clone() });
                }
                // The API server lets a node read only what its own pods name: read on for another one.
                Some(other) if shared.reader == node => {
                    shared.reader.clone_from(other);
                    effects.push(Effect::Watch { key: key.clone(), node: other.clone() });
                }
                Some(_) => {}
            }
        }
    }

    /// Says the pods that need not wait any longer, and that the list is complete if it now is.
    fn settle(&mut self, node: &str, effects: &mut Vec<Effect>) {
        let Some(view) = self.nodes.get_mut(node) else { return };
        let shared = &self.shared;
        let pending = |key: &ObjectKey| shared.get(key).is_some_and(|s| matches!(s.value, Value::Pending));
        let failed = |key: &ObjectKey| shared.get(key).is_some_and(|s| matches!(s.value, Value::Failed));
        let mut complete = view.seeded && view.asked.is_empty();
        for pod in view.pods.values_mut() {
            if !view.listed && pod.refs.iter().any(|key| pending(key) || failed(key)) {
                complete = false;
            }
            if pod.held.is_some() && (pod.terminating || !pod.refs.iter().any(pending)) {
                let object = pod.held.take();
                effects.extend(object.map(|object| Effect::Set { node: node.to_owned(), object }));
            }
        }
        if complete && !view.listed {
            view.listed = true;
            effects.push(Effect::Listed { node: node.to_owned() });
        }
    }
}

/// The question for a pod by name, unless it is under way.
fn ask(asked: &mut HashSet<String>, node: &str, key: &ObjectKey, uid: &str) -> Option<Effect> {
    let first = asked.insert(uid.to_owned());
    first.then(|| Effect::Ask { node: node.to_owned(), key: key.clone(), uid: uid.to_owned() })
}

#[cfg(test)]
mod tests;
