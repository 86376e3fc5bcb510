//! Objects of one kind as they were last seen or written, by name and by the controller that owns them. Pure: it is told
//! what a watch saw and what a write returned, in any order. Knows no kind.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::key::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::runtime::watcher::Event;

use super::now::Now;

/// What is kept in a store.
pub(crate) trait Cached {
    fn meta(&self) -> &ObjectMeta;

    fn meta_mut(&mut self) -> &mut ObjectMeta;

    /// It is seen at this time; `before` is the state of the same object before this one.
    fn seen(&mut self, _before: Option<&Self>, _now: Now) {}

    /// Nobody has to look at anything because this state follows that one.
    fn is_as(&self, _before: &Self) -> bool {
        false
    }
}

/// The key of an object.
pub(crate) fn key_of(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
}

/// The reference to the controller of an object, if it has one.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The uid of an object; empty if it has none, which no stored object has.
pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Numbers of one kind grow from write to write (K8s KEP-5504), so that what comes late can be told.
fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What happened to an object, as far as others have to look at something because of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) key: ObjectKey,
    /// Its controllers, before and after.
    pub(crate) owners: Vec<OwnerReference>,
    /// Its labels, if it has no controller now: somebody may want it.
    pub(crate) orphan: Option<BTreeMap<String, String>>,
    /// It is no longer there.
    pub(crate) gone: bool,
}

#[derive(Debug)]
pub(crate) struct Store<T> {
    objects: BTreeMap<ObjectKey, T>,
    /// By the uid of the controller.
    owned: BTreeMap<String, BTreeSet<ObjectKey>>,
    orphans: BTreeSet<ObjectKey>,
    /// The uids of objects that a write removed and of which the watch has yet to tell.
    removed: BTreeSet<String>,
    /// What a list has named so far, while it lasts.
    listed: Option<BTreeSet<ObjectKey>>,
    complete: bool,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            owned: BTreeMap::new(),
            orphans: BTreeSet::new(),
            removed: BTreeSet::new(),
            listed: None,
            complete: false,
        }
    }
}

impl<T: Cached> Store<T> {
    /// Whether it holds all that there is: not before the first list has ended, nor while another one lasts.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete && self.listed.is_none()
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.objects.get(key)
    }

    /// All objects, by namespace and name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.objects.values()
    }

    /// The objects of a namespace, by name.
    pub(crate) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a T> {
        let first = ObjectKey { namespace: namespace.to_owned(), name: String::new() };
        self.objects.range(first..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, object)| object)
    }

    /// The objects whose controller has this uid, by name.
    pub(crate) fn owned_by<'a>(&'a self, uid: &str) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.owned.get(uid).into_iter().flatten().filter_map(|key| self.objects.get(key))
    }

    /// The objects of a namespace that have no controller, by name.
    pub(crate) fn orphans<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a T> {
        let first = ObjectKey { namespace: namespace.to_owned(), name: String::new() };
        let keys = self.orphans.range(first..).take_while(move |key| key.namespace == namespace);
        keys.filter_map(|key| self.objects.get(key))
    }

    /// Takes in the state of an object that a watch saw or a write returned. None if it is known or older than that, or
    /// changes nothing for anybody.
    pub(crate) fn put(&mut self, mut object: T, now: Now) -> Option<Seen> {
        let meta = object.meta_mut();
        meta.managed_fields = None;
        let key = key_of(meta);
        if self.removed.contains(uid(meta)) {
            return None;
        }
        let before = self.objects.get(&key);
        if before.is_some_and(|before| version(before.meta()) >= version(object.meta())) {
            return None;
        }
        let mut owners = Vec::new();
        if let Some(before) = before {
            owners.extend(controller_of(before.meta()).cloned());
        }
        let same = before.filter(|before| uid(before.meta()) == uid(object.meta()));
        object.seen(same, now);
        let quiet = same.is_some_and(|before| object.is_as(before));
        self.unindex(&key);
        let owner = controller_of(object.meta()).cloned();
        let orphan = owner.is_none().then(|| object.meta().labels.clone().unwrap_or_default());
        match &owner {
            Some(owner) => self.owned.entry(owner.uid.clone()).or_default().insert(key.clone()),
            None => self.orphans.insert(key.clone()),
        };
        owners.extend(owner.filter(|owner| !owners.contains(owner)));
        self.objects.insert(key.clone(), object);
        (!quiet).then_some(Seen { key, owners, orphan, gone: false })
    }

    /// A write removed the object with this uid.
    pub(crate) fn remove(&mut self, key: &ObjectKey, removed: &str) -> Option<Seen> {
        if uid(self.objects.get(key)?.meta()) != removed {
            return None;
        }
        self.removed.insert(removed.to_owned());
        self.forget(key)
    }

    /// Takes in what the watch saw.
    pub(crate) fn watched(&mut self, event: Event<T>, now: Now) -> Vec<Seen> {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(key_of(object.meta()));
                }
                self.put(object, now).into_iter().collect()
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                // Nothing was written while the list lasted, so that what it leaves out is gone.
                let missing: Vec<ObjectKey> =
                    self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
                self.removed.clear();
                self.complete = true;
                missing.iter().filter_map(|key| self.forget(key)).collect()
            }
            Event::Apply(object) => self.put(object, now).into_iter().collect(),
            Event::Delete(object) => {
                let meta = object.meta();
                self.removed.remove(uid(meta));
                let key = key_of(meta);
                let same = self.objects.get(&key).is_some_and(|known| uid(known.meta()) == uid(meta));
                if same { self.forget(&key).into_iter().collect() } else { Vec::new() }
            }
        }
    }

    fn unindex(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get(key) else { return };
        match controller_of(object.meta()) {
            Some(owner) => {
                if let Some(keys) = self.owned.get_mut(&owner.uid) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.owned.remove(&owner.uid);
                    }
                }
            }
            None => {
                self.orphans.remove(key);
            }
        }
    }

    fn forget(&mut self, key: &ObjectKey) -> Option<Seen> {
        self.unindex(key);
        let object = self.objects.remove(key)?;
        let owners = controller_of(object.meta()).cloned().into_iter().collect();
        Some(Seen { key: key.clone(), owners, orphan: None, gone: true })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::json;

    use super::*;

    fn set(name: &str, uid: &str, version: u32, owner: Option<&str>) -> ReplicaSet {
        let owners = owner
            .map(|uid| json!([{"apiVersion": "apps/v1", "kind": "D", "name": uid, "uid": uid, "controller": true}]));
        serde_json::from_value(json!({"metadata": {
            "namespace": "ns", "name": name, "uid": uid, "resourceVersion": version.to_string(), "ownerReferences": owners,
        }}))
        .unwrap()
    }

    fn names(found: Vec<&ReplicaSet>) -> Vec<&str> {
        found.into_iter().filter_map(|one| one.metadata.name.as_deref()).collect()
    }

    fn listed(sets: Vec<ReplicaSet>) -> Store<ReplicaSet> {
        let mut store = Store::default();
        assert!(!store.is_complete());
        store.watched(Event::Init, Now::default());
        for set in sets {
            store.watched(Event::InitApply(set), Now::default());
        }
        assert!(!store.is_complete());
        store.watched(Event::InitDone, Now::default());
        assert!(store.is_complete());
        store
    }

    #[test]
    fn what_comes_late_is_not_believed() {
        let now = Now::default();
        let mut store = listed(vec![set("a", "1", 9, None)]);
        let written = store.put(set("a", "1", 12, Some("d")), now).unwrap();
        assert_eq!((written.owners.len(), written.orphan), (1, None));
        assert!(store.watched(Event::Apply(set("a", "1", 10, None)), now).is_empty(), "from before the write");
        assert_eq!(names(store.owned_by("d").collect()), ["a"]);
        assert!(store.orphans("ns").next().is_none());
        // Removed by a write: what the watch still tells of it is old.
        assert!(store.remove(&key_of(&set("a", "1", 0, None).metadata), "2").is_none(), "another one");
        assert!(store.remove(&key_of(&set("a", "1", 0, None).metadata), "1").unwrap().gone);
        assert!(store.watched(Event::Apply(set("a", "1", 11, None)), now).is_empty());
        assert!(store.put(set("a", "2", 14, None), now).is_some(), "a new one of the same name");
        assert!(store.watched(Event::Delete(set("a", "1", 13, None)), now).is_empty(), "that was the old one");
        assert_eq!(names(store.in_namespace("ns").collect()), ["a"]);
    }

    #[test]
    fn a_list_says_what_is_gone_and_whose_it_was() {
        let now = Now::default();
        let mut store = listed(vec![set("a", "1", 1, Some("d")), set("b", "2", 2, None)]);
        assert!(store.watched(Event::Init, now).is_empty());
        assert!(!store.is_complete(), "nobody acts while it lasts");
        assert!(store.watched(Event::InitApply(set("b", "2", 2, None)), now).is_empty(), "known");
        let gone = store.watched(Event::InitDone, now);
        assert_eq!(gone.len(), 1);
        assert_eq!((gone[0].key.name.as_str(), gone[0].owners[0].uid.as_str(), gone[0].gone), ("a", "d", true));
        assert!(store.owned_by("d").next().is_none());
    }
}
