//! The node authorizer's graph, as an index: which node has a pod that names an object. Updated by every write of pods,
//! PersistentVolumes and VolumeAttachments, so that a decision needs one lookup for any number of pods.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::references::{self, Kind};
use crate::storage::{Store, StoreError};
use apimachinery::json::text;
use apimachinery::well_known::MIRROR_ANNOTATION;

/// An object: its kind, namespace and name.
type Object = (Kind, String, String);

/// How often an element (the second of a key) holds another one (the first). A tree: a table of all pods would be copied
/// whole, in one step, whenever it grows.
type Counts<K> = BTreeMap<(K, String), usize>;

#[derive(Default)]
pub(crate) struct Relations {
    /// The nodes whose pods name an object.
    nodes: Counts<Object>,
    /// The claim that a PersistentVolume is bound to: namespace and name.
    claims: HashMap<String, (String, String)>,
    /// The PersistentVolumes that need a secret.
    volumes: Counts<(String, String)>,
    /// The node of a VolumeAttachment.
    attachments: BTreeMap<String, String>,
}

/// The graph, kept by the storage's writes.
#[derive(Default)]
pub(crate) struct Related {
    relations: Arc<Mutex<Relations>>,
}

impl Related {
    /// Reads all existing objects, one at a time, and follows later writes.
    pub(crate) fn follow(&self, store: &mut Store) -> Result<(), StoreError> {
        for (storage, change) in FOLLOWED {
            let mut after = None;
            while let Some(stored) = store.list(storage, None, after.as_ref(), Some(1))?.pop() {
                change(&mut self.relations(), None, Some(stored.value()));
                after = Some(stored.key.clone());
            }
        }
        let relations = Arc::clone(&self.relations);
        store.observe(Box::new(move |storage, written| {
            let Some((_, change)) = FOLLOWED.iter().find(|(followed, _)| *followed == storage) else { return };
            let before = written.before.as_ref().map(|before| before.value());
            change(&mut relations.lock().unwrap_or_else(PoisonError::into_inner), before, written.after());
        }));
        Ok(())
    }

    pub(crate) fn relations(&self) -> MutexGuard<'_, Relations> {
        self.relations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies a change of an object to the index.
type Follow = fn(&mut Relations, Option<&Value>, Option<&Value>);

const FOLLOWED: [(&str, Follow); 3] = [
    ("pods", Relations::pod),
    ("persistentvolumes", Relations::volume),
    ("volumeattachments.storage.k8s.io", Relations::attachment),
];

impl Relations {
    /// Whether a pod of the node names the object; secrets also by way of a claim's volume.
    pub(crate) fn has(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = ((kind, namespace.to_owned(), name.to_owned()), node.to_owned());
        if self.nodes.contains_key(&key) {
            return true;
        }
        let ((_, namespace, name), _) = key;
        let secret = (namespace, name);
        let holds = |((held, volume), _): (&((String, String), String), &usize)| {
            (*held == secret).then(|| self.has_volume(node, volume))
        };
        kind == Kind::Secret
            && self.volumes.range((secret.clone(), String::new())..).map_while(holds).any(|has_volume| has_volume)
    }

    /// Whether a pod of the node names the claim that the PersistentVolume is bound to.
    pub(crate) fn has_volume(&self, node: &str, volume: &str) -> bool {
        self.claims.get(volume).is_some_and(|(namespace, claim)| self.has(node, Kind::Claim, namespace, claim))
    }

    /// Whether a VolumeAttachment is for the node.
    pub(crate) fn is_attached_to(&self, node: &str, attachment: &str) -> bool {
        self.attachments.get(attachment).is_some_and(|of| of == node)
    }

    fn pod(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let same = |a: &Value, b: &Value| a["spec"] == b["spec"] && is_mirror(a) == is_mirror(b);
        if let (Some(before), Some(after)) = (before, after)
            && same(before, after)
        {
            return;
        }
        if let Some(pod) = before {
            edges(pod, |object, node| count(&mut self.nodes, object, node, false));
        }
        if let Some(pod) = after {
            edges(pod, |object, node| count(&mut self.nodes, object, node, true));
        }
    }

    fn volume(&mut self, before: Option<&Value>, after: Option<&Value>) {
        if let Some(volume) = before {
            let name = text(&volume["metadata"], "name");
            self.claims.remove(name);
            for secret in bound_secrets(volume) {
                count(&mut self.volumes, secret, name, false);
            }
        }
        if let Some(volume) = after {
            let (name, claim) = (text(&volume["metadata"], "name"), &volume["spec"]["claimRef"]);
            if claim.is_object() {
                self.claims
                    .insert(name.to_owned(), (text(claim, "namespace").to_owned(), text(claim, "name").to_owned()));
            }
            for secret in bound_secrets(volume) {
                count(&mut self.volumes, secret, name, true);
            }
        }
    }

    fn attachment(&mut self, before: Option<&Value>, after: Option<&Value>) {
        if let Some(before) = before {
            self.attachments.remove(text(&before["metadata"], "name"));
        }
        if let Some(after) = after {
            let (name, node) = (text(&after["metadata"], "name"), text(&after["spec"], "nodeName"));
            self.attachments.insert(name.to_owned(), node.to_owned());
        }
    }
}

fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR_ANNOTATION].is_null()
}

/// Calls `tell` with each object that the pod relates to its node. A mirror pod, which the node has made, relates only
/// itself.
fn edges(pod: &Value, mut tell: impl FnMut(Object, &str)) {
    let node = text(&pod["spec"], "nodeName");
    if node.is_empty() {
        return;
    }
    let namespace = text(&pod["metadata"], "namespace");
    let object = |kind, name: &str| (kind, namespace.to_owned(), name.to_owned());
    tell(object(Kind::Pod, text(&pod["metadata"], "name")), node);
    if !is_mirror(pod) {
        references::of_pod(pod, &mut |kind, name| tell(object(kind, name), node));
    }
}

/// A volume that is bound to nothing gives access to nothing.
fn bound_secrets(volume: &Value) -> Vec<(String, String)> {
    if volume["spec"]["claimRef"].is_object() { references::of_volume(volume) } else { Vec::new() }
}

fn count<K: Ord>(counts: &mut Counts<K>, held: K, holder: &str, more: bool) {
    let key = (held, holder.to_owned());
    if more {
        *counts.entry(key).or_default() += 1;
        return;
    }
    let Some(number) = counts.get_mut(&key) else { return };
    *number = number.saturating_sub(1);
    if *number == 0 {
        counts.remove(&key);
    }
}

#[cfg(test)]
impl Relations {
    /// Whether deleted objects have left no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.claims.is_empty() && self.volumes.is_empty() && self.attachments.is_empty()
    }

    pub(crate) fn write(&mut self, storage: &str, before: Option<&Value>, after: Option<&Value>) {
        if let Some((_, change)) = FOLLOWED.iter().find(|(followed, _)| *followed == storage) {
            change(self, before, after);
        }
    }
}
