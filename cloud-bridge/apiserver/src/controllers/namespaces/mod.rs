//! Namespaces that are being deleted: deletes their content, pods first, then removes their finalizer (K8s
//! pkg/controller/namespace). The status shows what is left.

mod conditions;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::Value;

use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use super::{contents, definitions};
use crate::registry::write;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::storage::{Most, Page, Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use conditions::Remaining;

/// Where namespaces are stored.
pub(super) const STORAGE: &str = "namespaces";

/// Storage of pods, which may still use other content of the namespace.
const PODS: &str = "pods";
/// Number of objects of each resource that are examined for finalizers.
const LOOKED_AT: usize = 500;
/// Maximum total size of these objects in one step, in bytes.
const LOOKED_AT_BYTES: usize = 2 << 20;
/// Maximum count: a number above it stands for "at least".
const COUNTED: u64 = 10_000;

/// Whether a namespace exists and is not being deleted.
pub(super) fn stays(store: &Store, name: &str) -> Result<bool, StoreError> {
    let found = store.get(STORAGE, &ObjectKey::cluster(name))?;
    Ok(found.is_some_and(|namespace| !meta::deleting(namespace.value())))
}

/// Work items of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The content, from a storage on and there after a key.
    Contents(String, Step, Option<ObjectKey>),
    /// Whether it holds anything yet.
    Empty(String),
}

/// Order of the deletion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Pods,
    /// The other storages, from this one on.
    Others(String),
}

#[derive(Default)]
pub(super) struct Namespaces {
    /// Namespaces whose contents are being deleted: no check yet whether they are empty.
    emptied: BTreeSet<String>,
    /// Those of which nothing but pods was asked to go yet.
    held: BTreeSet<String>,
}

impl Controller for Namespaces {
    type Key = Key;

    const NAME: &'static str = "emptying namespaces";

    fn storages(_: &Inner) -> Vec<String> {
        vec![STORAGE.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<Key>) {
        let going = |namespace: &Stored| meta::deleting(namespace.head());
        if seen.storage == STORAGE {
            if seen.after.is_some_and(going) && !seen.before.is_some_and(going) {
                queue.add(Key::Contents(seen.key.name.clone(), Step::Pods, None));
            }
        } else if seen.after.is_none() && !seen.key.namespace.is_empty() {
            queue.add(Key::Empty(seen.key.namespace.clone()));
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, Key>, key: &Key) -> ApiResult<()> {
        match key {
            Key::Contents(name, step, after) => self.contents(turn, name, step, after.clone()),
            Key::Empty(name) => self.empty(turn, name),
        }
    }
}

impl Namespaces {
    fn contents(
        &mut self,
        turn: &mut Turn<'_, Key>,
        name: &str,
        step: &Step,
        mut after: Option<ObjectKey>,
    ) -> ApiResult<()> {
        if going(turn.store, name)?.is_none() {
            self.emptied.remove(name);
            self.held.remove(name);
            return Ok(());
        }
        self.emptied.insert(name.to_owned());
        let from = match step {
            Step::Pods => {
                if delete(turn, name, PODS, Step::Pods, after.take())? {
                    return Ok(());
                }
                ""
            }
            Step::Others(from) => from.as_str(),
        };
        if !turn.store.list(PODS, Some(name), None, Some(1))?.is_empty() {
            self.held.insert(name.to_owned());
        } else {
            for storage in turn.store.storages_in(name)?.into_iter().filter(|storage| storage.as_str() >= from) {
                let after = after.take().filter(|_| storage == from);
                if delete(turn, name, &storage, Step::Others(storage.clone()), after)? {
                    return Ok(());
                }
            }
            self.held.remove(name);
        }
        self.emptied.remove(name);
        report(turn, name)?;
        turn.queue.add(Key::Empty(name.to_owned()));
        Ok(())
    }

    fn empty(&self, turn: &mut Turn<'_, Key>, name: &str) -> ApiResult<()> {
        let Some(namespace) = going(turn.store, name)?.filter(|_| !self.emptied.contains(name)) else { return Ok(()) };
        let storages = turn.store.storages_in(name)?;
        if self.held.contains(name) {
            if !storages.iter().any(|storage| storage == PODS) {
                turn.queue.add(Key::Contents(name.to_owned(), Step::Pods, None));
            }
            return Ok(());
        }
        for storage in &storages {
            if definitions::deletable(turn.inner, turn.store, storage)?.is_none() {
                continue;
            }
            let Some(first) = turn.store.list(storage, Some(name), None, Some(1))?.pop() else { continue };
            if !meta::deleting(first.value()) {
                turn.queue.add(Key::Contents(name.to_owned(), Step::Pods, None));
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

/// Deletes the objects of a namespace in a storage. True if the time slice is over: the rest is deleted in the next
/// one.
fn delete(
    turn: &mut Turn<'_, Key>,
    name: &str,
    storage: &str,
    step: Step,
    after: Option<ObjectKey>,
) -> ApiResult<bool> {
    let Some(resource) = definitions::deletable(turn.inner, turn.store, storage)? else { return Ok(false) };
    let last = contents::delete(turn, &resource, Some(name), after)?;
    let over = last.is_some();
    if over {
        turn.queue.add(Key::Contents(name.to_owned(), step, last));
    }
    Ok(over)
}

/// Reports what is left after everything was deleted.
fn report(turn: &mut Turn<'_, Key>, name: &str) -> ApiResult<()> {
    let Some(namespace) = going(turn.store, name)? else { return Ok(()) };
    let mut remaining = Remaining::default();
    for storage in turn.store.storages_in(name)? {
        let Some(resource) = definitions::deletable(turn.inner, turn.store, &storage)? else { continue };
        let most = Most { items: LOOKED_AT, bytes: LOOKED_AT_BYTES };
        let Page { items: seen, next } =
            turn.store.list_at(&storage, Some(name), turn.store.revision(), None, most, &|_| true)?;
        let more = match next {
            Some(last) => turn.store.count(&storage, Some(name), &last, COUNTED)?.unwrap_or(COUNTED),
            None => 0,
        };
        let count = more + seen.len() as u64;
        remaining.add(
            (resource.plural.as_ref(), resource.group.as_ref()),
            count,
            seen.iter().map(|stored| stored.head()),
        );
    }
    if remaining == Remaining::default() {
        return Ok(());
    }
    let Some(resource) = turn.inner.registry.by_storage(STORAGE) else { return Ok(()) };
    let mut new = namespace.value().clone();
    conditions::set(&mut new, &remaining, Timestamp::now());
    if new != *namespace.value() {
        write::rewrite(turn.store, &resource, &namespace, new)?;
    }
    Ok(())
}

/// The namespace, if it is being deleted.
fn going(store: &Store, name: &str) -> Result<Option<Arc<Stored>>, StoreError> {
    let found = store.get(STORAGE, &ObjectKey::cluster(name))?;
    Ok(found.filter(|namespace| meta::deleting(namespace.value())))
}
