//! The garbage collector: deletes dependents of deleted objects, and executes foreground and orphaning deletions (K8s
//! pkg/controller/garbagecollector).

mod dependent;
mod item;

use std::sync::Arc;

use serde_json::{Value, json};

use super::queue::Queue;
use super::runner::{Controller, Seen, Turn, served};
use crate::registry::write;
use crate::resource::Resource;
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::{Place, Store, StoreError, Stored};
use apimachinery::meta::{self, FOREGROUND, ORPHAN};
use item::{Key, Owner, PAGE, finalizer, find, references};

#[derive(Default)]
pub(super) struct GarbageCollector;

impl Controller for GarbageCollector {
    type Key = Key;

    const NAME: &'static str = "garbage collection";

    fn storages(inner: &Inner) -> Vec<String> {
        served(inner, |resource| resource.rules().enable_garbage_collection).into_iter().collect()
    }

    fn keys(inner: &Inner, seen: &Seen<'_>, queue: &Queue<Key>) {
        let takes_part = |resource: Arc<Resource>| resource.rules().enable_garbage_collection;
        if !inner.registry.by_storage(seen.storage).is_none_or(takes_part) {
            return;
        }
        let before = seen.before.map(Stored::head);
        let Some(now) = seen.after.map(Stored::head) else {
            let Some(gone) = before else { return };
            queue.add(Key::Owner(Owner::new(seen.key, gone), None));
            return blocked(gone, queue);
        };
        let involves = |object: &Value| meta::deleting(object).then(|| finalizer(object)).flatten();
        let involved = involves(now);
        if involved.is_some() && before.and_then(involves) != involved {
            queue.add(Key::Owner(Owner::new(seen.key, now), None));
        }
        let references = &now["metadata"]["ownerReferences"];
        let old = before.map(|before| &before["metadata"]["ownerReferences"]);
        if old.unwrap_or(&Value::Null) == references {
            return;
        }
        // Owners that it no longer names do not wait for it.
        before.into_iter().for_each(|before| blocked(before, queue));
        if !references.is_null() {
            let place = (seen.storage.to_owned(), seen.key.clone());
            if seen.key.namespace.is_empty() && dependent::misplaced(inner, now).is_some() {
                queue.add(Key::Misplaced(place.clone()));
            }
            queue.add(Key::Dependent(place, None));
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, Key>, key: &Key) -> ApiResult<()> {
        match key {
            Key::Owner(known, after) => owner(turn, known, after.clone()),
            Key::Blocked(uid, after) => unblock(turn, uid, after.as_ref()),
            Key::Dependent(place, gone) => dependent::collect(turn, place, gone.as_ref(), None),
            Key::Circle(place, gone, after) => dependent::collect(turn, place, gone.as_ref(), Some(after)),
            Key::Misplaced(place) => dependent::warn(turn.inner, turn.store, place),
        }
    }
}

/// Requests evaluations of the owners of an object that is deleted or no longer names them.
fn blocked(object: &Value, queue: &Queue<Key>) {
    for reference in references(object) {
        queue.add(Key::Blocked(reference["uid"].as_str().unwrap_or_default().to_owned(), None));
    }
}

/// Requests evaluations of the dependents of an owner that is deleted or being deleted in the foreground; removes the
/// references to one that orphans them.
fn owner(turn: &mut Turn<'_, Key>, known: &Owner, mut after: Option<Place>) -> ApiResult<()> {
    let uid = known.uid.as_str();
    let place = turn.store.by_uid(uid)?;
    let mut waits = None;
    if let Some(place) = &place {
        let Some((_, stored)) = find(turn.inner, turn.store, place)? else { return Ok(()) };
        waits = finalizer(stored.head()).filter(|_| meta::deleting(stored.head()));
        if waits.is_none() {
            return Ok(());
        }
    }
    let page = turn.store.dependents(uid, after.as_ref(), PAGE)?;
    let mut more = page.len() == PAGE;
    for dependent in page {
        if waits == Some(ORPHAN) {
            let_go(turn.inner, turn.store, &dependent, uid)?;
        } else {
            let gone = place.is_none().then(|| known.clone());
            turn.queue.add(Key::Dependent(dependent.clone(), gone));
        }
        after = Some(dependent);
        if turn.over() {
            more = true;
            break;
        }
    }
    match (place, waits) {
        _ if more => turn.queue.add(Key::Owner(known.clone(), after)),
        (Some(place), Some(ORPHAN)) => drop_finalizer(turn.inner, turn.store, &place, ORPHAN)?,
        (Some(_), _) => turn.queue.add(Key::Blocked(uid.to_owned(), None)),
        (None, _) => {}
    }
    Ok(())
}

fn let_go(inner: &Inner, store: &mut Store, dependent: &Place, uid: &str) -> Result<(), StoreError> {
    let Some((resource, stored)) = find(inner, store, dependent)? else { return Ok(()) };
    let kept: Vec<&Value> = references(stored.head()).filter(|reference| reference["uid"] != uid).collect();
    let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
    let mut new = stored.value().clone();
    meta::set(&mut new, "ownerReferences", kept);
    write::rewrite(store, &resource, &stored, new)
}

/// Ends the foreground deletion of an owner, unless a dependent blocks it.
fn unblock(turn: &mut Turn<'_, Key>, uid: &str, after: Option<&Place>) -> ApiResult<()> {
    let Some(place) = turn.store.by_uid(uid)? else { return Ok(()) };
    let Some((_, stored)) = find(turn.inner, turn.store, &place)? else { return Ok(()) };
    if !meta::deleting(stored.head()) || finalizer(stored.head()) != Some(FOREGROUND) {
        return Ok(());
    }
    let page = turn.store.dependents(uid, after, PAGE)?;
    for (number, at) in page.into_iter().enumerate() {
        if let Some((_, dependent)) = find(turn.inner, turn.store, &at)? {
            let mut references = references(dependent.head());
            if references.any(|reference| reference["uid"] == uid && reference["blockOwnerDeletion"] == true) {
                // Its deletion requests another evaluation.
                return Ok(());
            }
        }
        if turn.over() || number + 1 == PAGE {
            turn.queue.add(Key::Blocked(uid.to_owned(), Some(at)));
            return Ok(());
        }
    }
    Ok(drop_finalizer(turn.inner, turn.store, &place, FOREGROUND)?)
}

fn drop_finalizer(inner: &Inner, store: &mut Store, place: &Place, name: &str) -> Result<(), StoreError> {
    let Some((resource, stored)) = find(inner, store, place)? else { return Ok(()) };
    let mut new = stored.value().clone();
    let mut finalizers = meta::finalizers(&new);
    finalizers.retain(|f| f != name);
    meta::set_finalizers(&mut new, &finalizers);
    write::rewrite(store, &resource, &stored, new)
}
