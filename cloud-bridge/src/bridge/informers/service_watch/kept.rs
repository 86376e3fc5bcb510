//! Services or EndpointSlices by name, within a limited room for each namespace. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};

use crate::bridge::name::{Name, name_of};

/// Limit in bytes for the Services of one namespace, and another for its EndpointSlices, because tenants cause both.
/// 1,000 slices of 10 endpoints take less than 2 MiB; full slices have room for 60,000 endpoints.
pub(super) const ROOM: usize = 8 << 20;

/// An object, with the parts that are used here.
pub(super) trait Seen {
    /// Plural of the kind, for messages.
    const KINDS: &'static str;

    fn of(object: DynamicObject) -> Self;

    /// The name of its Service.
    fn service(&self, own: &Name) -> Option<Name>;

    /// Size in bytes, counted for its namespace.
    fn size(&self) -> usize;
}

/// Objects of one kind by name, and the changed ones since the last update.
pub(super) struct Watched<T> {
    pub(super) kept: Kept<T>,
    listing: Option<Kept<T>>,
    /// A list has been read.
    pub(super) read: bool,
    /// Whether some had no room, and there is more of it now.
    pub(super) wants_reading: bool,
    /// Names of Services.
    pub(super) changed: BTreeSet<Name>,
}

impl<T: Seen> Watched<T> {
    pub(super) fn new() -> Self {
        Self { kept: Kept::new(), listing: None, read: false, wants_reading: false, changed: BTreeSet::new() }
    }

    /// Takes an event; returns its error, if it is one.
    pub(super) fn take(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) -> Option<watcher::Error> {
        let name = |object: &DynamicObject| name_of(&object.metadata);
        match event {
            Ok(Event::Init) => self.listing = Some(Kept::new()),
            Ok(Event::InitApply(object)) => {
                self.listing.get_or_insert_with(Kept::new).put(name(&object), T::of(object));
            }
            Ok(Event::InitDone) => {
                let listed = self.listing.take().unwrap_or_else(Kept::new);
                let old = std::mem::replace(&mut self.kept, listed);
                self.changed.extend(old.services().chain(self.kept.services()));
                self.read = true;
            }
            Ok(Event::Apply(object)) => {
                let (name, object) = (name(&object), T::of(object));
                let before = self.kept.used(&name.0);
                self.changed.extend(object.service(&name));
                self.changed.extend(self.kept.put(name.clone(), object));
                self.look_for_room(&name.0, before);
            }
            Ok(Event::Delete(object)) => {
                let name = name(&object);
                let before = self.kept.used(&name.0);
                self.changed.extend(self.kept.remove(&name));
                self.look_for_room(&name.0, before);
            }
            Err(error) => return Some(error),
        }
        None
    }

    /// Requests a new list if the namespace was beyond its limit, and takes less room than before.
    fn look_for_room(&mut self, namespace: &str, before: usize) {
        self.wants_reading |= self.kept.over.contains(namespace) && self.kept.used(namespace) < before;
    }
}

/// Objects of one kind, limited in size for each namespace.
pub(super) struct Kept<T> {
    pub(super) all: BTreeMap<Name, T>,
    /// Bytes in use by namespace.
    used: BTreeMap<String, usize>,
    /// Namespaces beyond their limit.
    over: BTreeSet<String>,
}

impl<T: Seen> Kept<T> {
    fn new() -> Self {
        Self { all: BTreeMap::new(), used: BTreeMap::new(), over: BTreeSet::new() }
    }

    pub(super) fn used(&self, namespace: &str) -> usize {
        self.used.get(namespace).copied().unwrap_or_default()
    }

    /// Stores a new state, if there is room, and returns the Service of the old one. An object without room is tried
    /// again when it changes, or when all are listed.
    fn put(&mut self, name: Name, object: T) -> Option<Name> {
        let old = self.remove(&name);
        let used = self.used(&name.0) + object.size();
        if used <= ROOM {
            self.used.insert(name.0.clone(), used);
            self.all.insert(name, object);
        } else if self.over.insert(name.0.clone()) {
            let kinds = T::KINDS;
            log::warn!("{kinds} of namespace {} take more than {ROOM} bytes: nodes do not know the others", name.0);
        }
        old
    }

    fn remove(&mut self, name: &Name) -> Option<Name> {
        let object = self.all.remove(name)?;
        if let Some(used) = self.used.get_mut(&name.0) {
            *used = used.saturating_sub(object.size());
        }
        object.service(name)
    }

    /// The Services of these objects.
    fn services(&self) -> impl Iterator<Item = Name> {
        self.all.iter().filter_map(|(name, object)| object.service(name))
    }
}
