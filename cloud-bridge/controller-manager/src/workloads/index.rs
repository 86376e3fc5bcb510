//! Index of objects by what controllers search for: their controller, orphans, their labels, their node, the claims that
//! they use and what they select. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::key::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// A key that all of its places share.
pub(super) type Key = Arc<ObjectKey>;
/// Keys in order, and the places of their objects.
pub(super) type Keys = BTreeMap<Key, usize>;
/// A namespace, the name of a label, and its value.
type Label = (String, String, String);

/// The reference to the controller of an object, if it has one.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The ways to an object that are not in its metadata.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Places<'a> {
    pub(super) node: Option<&'a str>,
    pub(super) claims: &'a [String],
    pub(super) selected_label: Option<(&'a str, &'a str)>,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    /// Keys by the uid of the controller.
    owned: BTreeMap<String, Keys>,
    /// The uids of controllers by their names, as references give them: a name may have had several.
    uids: BTreeMap<ObjectKey, BTreeMap<String, usize>>,
    /// Those that have no controller, by namespace.
    orphans: BTreeMap<String, Keys>,
    /// Keys by label, for kinds with many objects.
    labels: BTreeMap<Label, Keys>,
    /// Keys by node.
    nodes: BTreeMap<String, Keys>,
    /// Keys by the claim that they use.
    users: BTreeMap<ObjectKey, Keys>,
    /// Keys of those that select, by one label of all that they select.
    selecting: BTreeMap<Label, Keys>,
}

impl Index {
    pub(super) fn owned_by(&self, uid: &str) -> Option<&Keys> {
        self.owned.get(uid)
    }

    /// The uids of present and former controllers of this name that still have objects.
    pub(super) fn uids_of(&self, controller: &ObjectKey) -> impl Iterator<Item = &str> {
        self.uids.get(controller).into_iter().flat_map(|uids| uids.keys().map(String::as_str))
    }

    pub(super) fn on_node(&self, node: &str) -> Option<&Keys> {
        self.nodes.get(node)
    }

    pub(super) fn using(&self, claim: &ObjectKey) -> Option<&Keys> {
        self.users.get(claim)
    }

    /// Those that may select an object with this label.
    pub(super) fn selecting(&self, namespace: &str, name: &str, value: &str) -> Option<&Keys> {
        self.selecting.get(&label(namespace, name, value))
    }

    pub(super) fn place(&mut self, (key, at): (&Key, usize), places: &Places<'_>) {
        if let Some(node) = places.node {
            self.nodes.entry(node.to_owned()).or_default().insert(Arc::clone(key), at);
        }
        for claim in places.claims {
            self.users.entry(beside(key, claim)).or_default().insert(Arc::clone(key), at);
        }
        if let Some((name, value)) = places.selected_label {
            let label = label(&key.namespace, name, value);
            self.selecting.entry(label).or_default().insert(Arc::clone(key), at);
        }
    }

    pub(super) fn leave(&mut self, key: &Key, places: &Places<'_>) {
        if let Some(node) = places.node {
            remove(&mut self.nodes, &node.to_owned(), key);
        }
        for claim in places.claims {
            remove(&mut self.users, &beside(key, claim), key);
        }
        if let Some((name, value)) = places.selected_label {
            remove(&mut self.selecting, &label(&key.namespace, name, value), key);
        }
    }

    pub(super) fn orphans(&self, namespace: &str) -> Option<&Keys> {
        self.orphans.get(namespace)
    }

    /// The keys with the rarest of the wanted labels; `None` if no object has one of them.
    pub(super) fn rarest(&self, namespace: &str, wanted: &BTreeMap<String, String>) -> Option<&Keys> {
        let having = |(name, value): (&String, &String)| self.labels.get(&label(namespace, name, value));
        let all: Option<Vec<&Keys>> = wanted.iter().map(having).collect();
        all?.into_iter().min_by_key(|keys| keys.len())
    }

    pub(super) fn add(&mut self, (key, at): (&Key, usize), meta: &ObjectMeta, with_labels: bool) {
        match controller_of(meta) {
            Some(owner) => {
                self.owned.entry(owner.uid.clone()).or_default().insert(Arc::clone(key), at);
                let uids = self.uids.entry(beside(key, &owner.name)).or_default();
                *uids.entry(owner.uid.clone()).or_default() += 1;
            }
            None => drop(self.orphans.entry(key.namespace.clone()).or_default().insert(Arc::clone(key), at)),
        }
        for label in labels(key, meta, with_labels) {
            self.labels.entry(label).or_default().insert(Arc::clone(key), at);
        }
    }

    pub(super) fn remove(&mut self, key: &Key, meta: &ObjectMeta, with_labels: bool) {
        match controller_of(meta) {
            Some(owner) => {
                remove(&mut self.owned, &owner.uid, key);
                let name = beside(key, &owner.name);
                let Some(uids) = self.uids.get_mut(&name) else { return };
                if let Some(count) = uids.get_mut(&owner.uid) {
                    *count = count.saturating_sub(1);
                }
                uids.retain(|_, count| *count > 0);
                if uids.is_empty() {
                    self.uids.remove(&name);
                }
            }
            None => remove(&mut self.orphans, &key.namespace, key),
        }
        for label in labels(key, meta, with_labels) {
            remove(&mut self.labels, &label, key);
        }
    }
}

/// Another object of its namespace.
fn beside(key: &Key, name: &str) -> ObjectKey {
    ObjectKey { namespace: key.namespace.clone(), name: name.to_owned() }
}

fn labels(key: &Key, meta: &ObjectMeta, wanted: bool) -> impl Iterator<Item = Label> {
    let all = meta.labels.iter().flatten().filter(move |_| wanted);
    all.map(|(name, value)| label(&key.namespace, name, value))
}

fn label(namespace: &str, name: &str, value: &str) -> Label {
    (namespace.to_owned(), name.to_owned(), value.to_owned())
}

fn remove<K: Ord>(map: &mut BTreeMap<K, Keys>, place: &K, key: &Key) {
    let Some(keys) = map.get_mut(place) else { return };
    keys.remove(key);
    if keys.is_empty() {
        map.remove(place);
    }
}
