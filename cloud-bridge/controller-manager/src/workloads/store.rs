//! Objects of one kind as they were last seen or written, by name and by the controller that owns them. Pure: it gets
//! the events of a watch and the results of writes, in any order. Knows no kind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::key::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::runtime::watcher::Event;

use super::index::{Index, Key, Keys, Places, controller_of};
use super::now::Now;

/// Type of the objects in a store.
pub(crate) trait Cached {
    /// They are looked for by their labels: there may be thousands in a namespace.
    const BY_LABELS: bool = false;

    /// The node by which they are looked for.
    fn node(&self) -> Option<&str> {
        None
    }

    /// The claims of its namespace by which they are looked for.
    fn claims(&self) -> &[String] {
        &[]
    }

    /// A label of all objects that it selects, by which it is looked for.
    fn selected_label(&self) -> Option<(&str, &str)> {
        None
    }

    fn meta(&self) -> &ObjectMeta;

    /// It is seen at this time; `before` is the state of the same object before this one.
    fn seen(&mut self, _before: Option<&Self>, _now: Now) {}

    /// Whether the change from `_before` to this state concerns no controller.
    fn is_as(&self, _before: &Self) -> bool {
        false
    }
}

/// The key of an object.
pub(crate) fn key_of(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
}

/// The uid of an object; empty without one, which no stored object lacks.
pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Numbers of one kind increase with each write (K8s KEP-5504), so that late events can be recognized.
fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Change of an object, as far as others must be evaluated for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) key: ObjectKey,
    /// Its controllers, before and after.
    pub(crate) owners: Vec<OwnerReference>,
    /// Its labels, if it has no controller now: a controller may adopt it.
    pub(crate) orphan: Option<BTreeMap<String, String>>,
    /// Labels before and now, for a kind that is searched by labels.
    pub(crate) labels: Vec<BTreeMap<String, String>>,
    /// It is no longer there.
    pub(crate) gone: bool,
}

#[derive(Debug)]
pub(crate) struct Store<T> {
    /// At fixed positions: a known position needs no search by name, which dominates the evaluation of thousands of
    /// pods.
    places: Vec<Option<Box<T>>>,
    free: Vec<usize>,
    names: Keys,
    index: Index,
    /// The uids of objects that a write removed and whose deletion the watch has not delivered.
    removed: BTreeSet<String>,
    /// Positions that were known when a list began, and whether it has named them; only during the list.
    unlisted: Option<Vec<bool>>,
    complete: bool,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            names: Keys::new(),
            index: Index::default(),
            removed: BTreeSet::new(),
            unlisted: None,
            complete: false,
        }
    }
}

impl<T: Cached> Store<T> {
    /// Whether it holds all objects: not before the first list has ended, and not during another list.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete && self.unlisted.is_none()
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.at(*self.names.get(key)?)
    }

    fn at(&self, place: usize) -> Option<&T> {
        self.places.get(place)?.as_deref()
    }

    /// The objects of these keys, in order.
    fn of<'a>(&'a self, keys: Option<&'a Keys>) -> impl Iterator<Item = &'a T> + use<'a, T> {
        keys.into_iter().flat_map(Keys::values).filter_map(|place| self.at(*place))
    }

    /// All objects, by namespace and name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.of(Some(&self.names))
    }

    /// The objects of a namespace, by name.
    pub(crate) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a T> {
        let first = ObjectKey { namespace: namespace.to_owned(), name: String::new() };
        self.names
            .range::<ObjectKey, _>(first..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .filter_map(|(_, place)| self.at(*place))
    }

    /// The objects whose controller has this uid, by name.
    pub(crate) fn owned_by<'a>(&'a self, uid: &str) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.of(self.index.owned_by(uid))
    }

    /// The objects of a node, by namespace and name.
    pub(crate) fn on_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.of(self.index.on_node(node))
    }

    /// The objects that use a claim, by name.
    pub(crate) fn using<'a>(&'a self, claim: &ObjectKey) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.of(self.index.using(claim))
    }

    /// The uids of present and former controllers of this name that still have objects.
    pub(crate) fn uids_of(&self, controller: &ObjectKey) -> impl Iterator<Item = &str> {
        self.index.uids_of(controller)
    }

    /// The objects of a namespace that have no controller and may have these labels, by name.
    pub(crate) fn orphans<'a>(
        &'a self,
        namespace: &'a str,
        wanted: Option<&BTreeMap<String, String>>,
    ) -> Box<dyn Iterator<Item = &'a T> + 'a> {
        let Some(orphans) = self.index.orphans(namespace) else { return Box::new(std::iter::empty()) };
        let labelled = match wanted.filter(|wanted| T::BY_LABELS && !wanted.is_empty()) {
            Some(wanted) => self.index.rarest(namespace, wanted),
            None => return Box::new(self.of(Some(orphans))),
        };
        // Uses the shorter list: a search for a few orphans must not scan a workload with thousands of pods.
        let Some(labelled) = labelled else { return Box::new(std::iter::empty()) };
        let keys = if labelled.len() < orphans.len() { labelled } else { orphans };
        Box::new(self.of(Some(keys)).filter(|one| controller_of(one.meta()).is_none()))
    }

    /// The objects of a namespace that may have these labels, by name: those that have the rarest of them.
    pub(crate) fn labelled<'a>(
        &'a self,
        namespace: &'a str,
        wanted: Option<&BTreeMap<String, String>>,
    ) -> Box<dyn Iterator<Item = &'a T> + 'a> {
        match wanted.filter(|wanted| T::BY_LABELS && !wanted.is_empty()) {
            Some(wanted) => Box::new(self.of(self.index.rarest(namespace, wanted))),
            None => Box::new(self.in_namespace(namespace)),
        }
    }

    /// The objects of a namespace that may select one with these labels.
    pub(crate) fn selecting<'a>(
        &'a self,
        namespace: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a T> {
        labels.iter().flat_map(move |(name, value)| self.of(self.index.selecting(namespace, name, value)))
    }

    /// Stores the state of an object that a watch saw or a write returned. Returns `None` if it is known or older, or
    /// concerns no controller.
    pub(crate) fn put(&mut self, mut object: T, now: Now) -> Option<Seen> {
        let key = key_of(object.meta());
        if self.removed.contains(uid(object.meta())) {
            return None;
        }
        let known = self.names.get_key_value(&key).map(|(key, place)| (Arc::clone(key), *place));
        let before = known.as_ref().and_then(|(_, place)| self.at(*place));
        if before.is_some_and(|before| version(before.meta()) >= version(object.meta())) {
            return None;
        }
        let mut owners = Vec::new();
        let mut labels = Vec::new();
        if let Some(before) = before {
            owners.extend(controller_of(before.meta()).cloned());
            labels.extend(labels_of(before));
        }
        let same = before.filter(|before| uid(before.meta()) == uid(object.meta()));
        object.seen(same, now);
        let quiet = same.is_some_and(|before| object.is_as(before));
        // Most changes are of a status.
        let stays = before.is_some_and(|before| in_same_places(before, &object));
        let (key, place) = known.unwrap_or_else(|| self.room(key));
        if !stays {
            if let Some(before) = self.places.get(place).and_then(Option::as_ref) {
                self.index.remove(&key, before.meta(), T::BY_LABELS);
                self.index.leave(&key, &places_of(&**before));
            }
            self.index.add((&key, place), object.meta(), T::BY_LABELS);
            self.index.place((&key, place), &places_of(&object));
        }
        let owner = controller_of(object.meta()).cloned();
        let orphan = owner.is_none().then(|| object.meta().labels.clone().unwrap_or_default());
        owners.extend(owner.filter(|owner| !owners.contains(owner)));
        labels.extend(labels_of(&object).filter(|now| !labels.contains(now)));
        let seen = Seen { key: (*key).clone(), owners, orphan, labels, gone: false };
        if let Some(there) = self.places.get_mut(place) {
            *there = Some(Box::new(object));
        }
        (!quiet).then_some(seen)
    }

    /// A place for a new object.
    fn room(&mut self, key: ObjectKey) -> (Key, usize) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let key = Arc::new(key);
        self.names.insert(Arc::clone(&key), place);
        self.is_listed(place);
        (key, place)
    }

    /// The object at this position is not removed at the end of the list.
    fn is_listed(&mut self, place: usize) {
        if let Some(unlisted) = self.unlisted.as_mut().and_then(|unlisted| unlisted.get_mut(place)) {
            *unlisted = false;
        }
    }

    /// A write removed the object with this uid.
    pub(crate) fn remove(&mut self, key: &ObjectKey, removed: &str) -> Option<Seen> {
        if uid(self.get(key)?.meta()) != removed {
            return None;
        }
        self.removed.insert(removed.to_owned());
        self.forget(key)
    }

    /// Handles an event of the watch.
    pub(crate) fn watched(&mut self, event: Event<T>, now: Now) -> Vec<Seen> {
        match event {
            Event::Init => {
                self.unlisted = Some(self.places.iter().map(Option::is_some).collect());
                Vec::new()
            }
            Event::InitApply(object) => {
                if let Some(place) = self.names.get(&key_of(object.meta())).copied() {
                    self.is_listed(place);
                }
                self.put(object, now).into_iter().collect()
            }
            Event::InitDone => {
                // Nothing was written during the list, so objects that it lacks are deleted.
                let unlisted = self.unlisted.take().unwrap_or_default();
                let missing = self.places.iter().zip(unlisted).filter_map(|(object, unlisted)| {
                    object.as_ref().filter(|_| unlisted).map(|object| key_of(object.meta()))
                });
                let missing: Vec<ObjectKey> = missing.collect();
                self.removed.clear();
                self.complete = true;
                missing.iter().filter_map(|key| self.forget(key)).collect()
            }
            Event::Apply(object) => self.put(object, now).into_iter().collect(),
            Event::Delete(object) => {
                let meta = object.meta();
                self.removed.remove(uid(meta));
                let key = key_of(meta);
                // Also one that had this name before, if the events in between were not delivered (`followers`).
                let is_gone = |known: &T| uid(known.meta()) == uid(meta) || version(known.meta()) < version(meta);
                if self.get(&key).is_some_and(is_gone) { self.forget(&key).into_iter().collect() } else { Vec::new() }
            }
        }
    }

    fn forget(&mut self, key: &ObjectKey) -> Option<Seen> {
        let (key, place) = self.names.remove_entry(key)?;
        self.free.push(place);
        let object = *self.places.get_mut(place)?.take()?;
        self.index.remove(&key, object.meta(), T::BY_LABELS);
        self.index.leave(&key, &places_of(&object));
        let owners = controller_of(object.meta()).cloned().into_iter().collect();
        let labels = labels_of(&object).into_iter().collect();
        Some(Seen { key: (*key).clone(), owners, orphan: None, labels, gone: true })
    }
}

/// Whether both states of an object are found in the same ways.
fn in_same_places<T: Cached>(before: &T, now: &T) -> bool {
    let owner = |one: &T| controller_of(one.meta()).map(|owner| (owner.uid.clone(), owner.name.clone()));
    owner(before) == owner(now)
        && places_of(before) == places_of(now)
        && (!T::BY_LABELS || before.meta().labels == now.meta().labels)
}

fn places_of<T: Cached>(object: &T) -> Places<'_> {
    Places { node: object.node(), claims: object.claims(), selected_label: object.selected_label() }
}

fn labels_of<T: Cached>(object: &T) -> Option<BTreeMap<String, String>> {
    T::BY_LABELS.then(|| object.meta().labels.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::service::Service;
    use super::super::templated::ReplicaSet;
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
        assert!(store.orphans("ns", None).next().is_none());
        // Removed by a write: later events of the watch about it are outdated.
        assert!(store.remove(&key_of(&set("a", "1", 0, None).metadata), "2").is_none(), "another one");
        assert!(store.remove(&key_of(&set("a", "1", 0, None).metadata), "1").unwrap().gone);
        assert!(store.watched(Event::Apply(set("a", "1", 11, None)), now).is_empty());
        assert!(store.put(set("a", "2", 14, None), now).is_some(), "a new one of the same name");
        assert!(store.watched(Event::Delete(set("a", "1", 13, None)), now).is_empty(), "that was the old one");
        assert_eq!(names(store.in_namespace("ns").collect()), ["a"]);
    }

    #[test]
    fn end_of_a_later_object_of_the_name_ends_the_one_before() {
        let now = Now::default();
        let mut store = listed(vec![set("a", "1", 9, Some("d"))]);
        let gone = store.watched(Event::Delete(set("a", "2", 12, None)), now);
        assert_eq!((gone.len(), gone[0].owners[0].uid.as_str(), gone[0].gone), (1, "d", true));
        assert!(store.in_namespace("ns").next().is_none());
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

    #[test]
    fn service_is_found_by_a_label_that_it_selects() {
        let now = Now::default();
        let service = |name: &str, version: u32, spec: Value| -> Service {
            let metadata =
                json!({"namespace": "ns", "name": name, "uid": name, "resourceVersion": version.to_string()});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let mut store = Store::<Service>::default();
        let found = |store: &Store<Service>, app: &str| {
            let labels = BTreeMap::from([("app", app), ("tier", "front")].map(|(a, b)| (a.to_owned(), b.to_owned())));
            store.selecting("ns", &labels).map(|one| one.name().to_owned()).collect::<Vec<_>>()
        };
        store.put(service("a", 1, json!({"selector": {"app": "web", "tier": "back"}})), now);
        store.put(service("b", 2, json!({"selector": {"app": "db"}})), now);
        store.put(service("c", 3, json!({"selector": {"app": "db"}, "type": "ExternalName"})), now);
        store.put(service("d", 4, json!({})), now);
        assert_eq!((found(&store, "web"), found(&store, "db")), (vec!["a".to_owned()], vec!["b".to_owned()]));
        assert!(store.selecting("other", &BTreeMap::from([("app".to_owned(), "db".to_owned())])).next().is_none());
        store.put(service("a", 5, json!({"selector": {"app": "db"}})), now);
        assert_eq!((found(&store, "web").len(), found(&store, "db")), (0, vec!["a".to_owned(), "b".to_owned()]));
        store.put(service("a", 6, json!({})), now);
        store.remove(&key_of(&service("b", 0, json!({})).metadata), "b");
        assert!(found(&store, "db").is_empty());
    }

    #[test]
    fn new_object_in_a_free_place_survives_the_list() {
        let now = Now::default();
        let mut store = listed(vec![set("a", "1", 1, None), set("b", "2", 2, None)]);
        store.watched(Event::Init, now);
        assert!(store.remove(&key_of(&set("a", "1", 1, None).metadata), "1").is_some());
        assert!(store.watched(Event::InitApply(set("c", "3", 3, None)), now).len() == 1, "in the place of a");
        let gone = store.watched(Event::InitDone, now);
        assert_eq!(gone.iter().map(|seen| seen.key.name.as_str()).collect::<Vec<_>>(), ["b"]);
        assert_eq!(names(store.in_namespace("ns").collect()), ["c"]);
    }
}
