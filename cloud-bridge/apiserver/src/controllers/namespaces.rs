//! Namespaces that are going: deletes what they hold, then takes their finalizer off (K8s pkg/controller/namespace).

use std::collections::BTreeSet;
use std::sync::Arc;

use edge_protocol::json::SetField;
use serde_json::Value;

use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use super::{contents, definitions};
use crate::registry::write;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::storage::{Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Where namespaces are stored.
pub(super) const STORAGE: &str = "namespaces";

/// Whether a namespace is there and not going.
pub(super) fn stays(store: &Store, name: &str) -> Result<bool, StoreError> {
    let found = store.get(STORAGE, &ObjectKey::cluster(name))?;
    Ok(found.is_some_and(|namespace| !meta::deleting(namespace.value())))
}

/// What of a namespace is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// What it holds, from a storage on and there after a key.
    Contents(String, String, Option<ObjectKey>),
    /// Whether it holds anything yet.
    Empty(String),
}

#[derive(Default)]
pub(super) struct Namespaces {
    /// Those whose contents are being deleted: whether they are empty is no question yet.
    emptied: BTreeSet<String>,
}

impl Controller for Namespaces {
    type Key = Key;

    const NAME: &'static str = "emptying namespaces";

    fn storages(_: &Inner) -> Vec<String> {
        vec![STORAGE.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<Key>) {
        let going = |namespace: &Value| meta::deleting(namespace);
        if seen.storage == STORAGE {
            if seen.after.is_some_and(going) && !seen.before.is_some_and(going) {
                queue.add(Key::Contents(seen.key.name.clone(), String::new(), None));
            }
        } else if seen.after.is_none() && !seen.key.namespace.is_empty() {
            queue.add(Key::Empty(seen.key.namespace.clone()));
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, Key>, key: &Key) -> ApiResult<()> {
        match key {
            Key::Contents(name, storage, after) => self.contents(turn, name, storage, after.as_ref()),
            Key::Empty(name) => self.empty(turn, name),
        }
    }
}

impl Namespaces {
    fn contents(
        &mut self,
        turn: &mut Turn<'_, Key>,
        name: &str,
        from: &str,
        after: Option<&ObjectKey>,
    ) -> ApiResult<()> {
        if going(turn.store, name)?.is_none() {
            self.emptied.remove(name);
            return Ok(());
        }
        self.emptied.insert(name.to_owned());
        for storage in turn.store.storages_in(name)?.into_iter().filter(|storage| **storage >= *from) {
            let Some(resource) = definitions::deletable(turn.inner, turn.store, &storage)? else { continue };
            let after = after.filter(|_| storage == from).cloned();
            if let Some(last) = contents::delete(turn, &resource, Some(name), after)? {
                turn.queue.add(Key::Contents(name.to_owned(), storage, Some(last)));
                return Ok(());
            }
        }
        self.emptied.remove(name);
        turn.queue.add(Key::Empty(name.to_owned()));
        Ok(())
    }

    fn empty(&self, turn: &mut Turn<'_, Key>, name: &str) -> ApiResult<()> {
        let Some(namespace) = going(turn.store, name)?.filter(|_| !self.emptied.contains(name)) else { return Ok(()) };
        let storages = turn.store.storages_in(name)?;
        for storage in &storages {
            if definitions::deletable(turn.inner, turn.store, storage)?.is_none() {
                continue;
            }
            let Some(first) = turn.store.list(storage, Some(name), None, Some(1))?.pop() else { continue };
            if !meta::deleting(first.value()) {
                turn.queue.add(Key::Contents(name.to_owned(), String::new(), None));
            }
            return Ok(());
        }
        // A namespace of the same name would show them to others when their kind is served again.
        if let Some(storage) = storages.first() {
            return Err(ApiError::internal(format!("the namespace holds {storage}, which nothing serves")));
        }
        let Some(resource) = turn.inner.registry.by_storage(STORAGE) else { return Ok(()) };
        let mut new = namespace.value().clone();
        if let Some(finalizers) = new.at_mut(&["spec", "finalizers"]).and_then(Value::as_array_mut) {
            finalizers.retain(|f| f != "kubernetes");
        }
        if new != *namespace.value() {
            write::rewrite(turn.store, &resource, &namespace, new)?;
        }
        Ok(())
    }
}

/// The namespace, if it is being deleted.
fn going(store: &Store, name: &str) -> Result<Option<Arc<Stored>>, StoreError> {
    let found = store.get(STORAGE, &ObjectKey::cluster(name))?;
    Ok(found.filter(|namespace| meta::deleting(namespace.value())))
}
