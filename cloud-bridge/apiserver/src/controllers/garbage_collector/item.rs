//! Work items, and what each of them reads of an object.

use std::sync::Arc;

use serde_json::Value;

use crate::resource::Resource;
use crate::state::Inner;
use crate::storage::{Place, Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta::{self, FOREGROUND, ORPHAN};

/// Dependents that are read at a time.
pub(super) const PAGE: usize = 50;

/// Work items.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controllers) enum Key {
    /// A deleted owner, or one whose deletion involves its dependents, by uid: the dependents after a place.
    Owner(Owner, Option<Place>),
    /// An owner that may wait for dependents in vain, by uid: whether one of those after a place still blocks it.
    Blocked(String, Option<Place>),
    /// An object with owners; this one is known to be deleted.
    Dependent(Place, Option<Owner>),
    /// An object that is deleted with a waiting owner: whether one of its own dependents after a place waits already.
    Circle(Place, Option<Owner>, Place),
    /// An object without a namespace, with an owner that has one.
    Misplaced(Place),
}

/// An owner in its last known state: needed when it and its kind are deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controllers) struct Owner {
    pub(super) uid: String,
    pub(super) namespaced: bool,
}

impl Owner {
    pub(super) fn new(key: &ObjectKey, object: &Value) -> Self {
        Self { uid: meta::text(object, "uid").to_owned(), namespaced: !key.namespace.is_empty() }
    }
}

/// The owners that an object names.
pub(super) fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// The finalizer by which an object waits for its dependents.
pub(super) fn finalizer(object: &Value) -> Option<&'static str> {
    let finalizers = meta::finalizers(object);
    [ORPHAN, FOREGROUND].into_iter().find(|name| finalizers.iter().any(|f| f == name))
}

type Found = (Arc<Resource>, Arc<Stored>);

/// The object at a place, if it is there and its kind is served.
pub(super) fn find(inner: &Inner, store: &Store, (storage, key): &Place) -> Result<Option<Found>, StoreError> {
    let Some(resource) = inner.registry.by_storage(storage) else { return Ok(None) };
    Ok(store.get(storage, key)?.map(|stored| (resource, stored)))
}
