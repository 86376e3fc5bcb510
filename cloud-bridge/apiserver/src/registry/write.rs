//! Writes on behalf of the server itself, and what each write gives the garbage collector to do; what else follows, the
//! controllers say (`state::Follower`). Called with the storage's lock held.

use std::sync::Arc;

use serde_json::Value;

use crate::resource::Resource;
use crate::resource::status::ApiResult;
use crate::state::work::Work;
use crate::state::{Change, Inner};
use crate::storage::{Store, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

fn is(resource: &Resource, group: &str, plural: &str) -> bool {
    resource.group == group && resource.plural == plural
}

/// After a creation (`before` is `None`) or a change.
pub(crate) fn after_write(
    inner: &Inner,
    store: &mut Store,
    resource: &Arc<Resource>,
    stored: &Arc<Stored>,
    before: Option<&Arc<Stored>>,
) -> ApiResult<()> {
    let value = stored.value();
    if is(resource, "", "namespaces") && meta::deleting(value) {
        inner.collector.add(Work::Namespace(stored.key.name.clone()));
    }
    follow(inner, store, &Change { resource, before, after: Some(stored) })?;
    let place = || (resource.storage.to_string(), stored.key.clone());
    if meta::deleting(value) && meta::finalizers(value).iter().any(|f| f == meta::ORPHAN || f == meta::FOREGROUND) {
        let (storage, key) = place();
        inner.collector.add(Work::Finalize(storage, key));
    }
    let owners = &value["metadata"]["ownerReferences"];
    if !owners.is_null() && before.is_none_or(|b| b.value()["metadata"]["ownerReferences"] != *owners) {
        let (storage, key) = place();
        inner.collector.add(Work::Owned(storage, key));
    }
    Ok(())
}

fn follow(inner: &Inner, store: &mut Store, change: &Change<'_>) -> ApiResult<()> {
    inner.followers.iter().try_for_each(|follower| follower(inner, store, change))
}

/// Removes an object from the storage and tells whom it concerns.
pub(crate) fn remove(
    inner: &Inner,
    store: &mut Store,
    resource: &Arc<Resource>,
    current: &Arc<Stored>,
) -> ApiResult<Arc<Stored>> {
    let last = store.delete(&resource.storage, current)?;
    let value = current.value();
    let uid = meta::text(value, "uid");
    if !store.dependents(uid)?.is_empty() {
        inner.collector.add(Work::Gone(uid.to_owned()));
    }
    for owner in value["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let uid = owner["uid"].as_str().unwrap_or_default();
        if let Some((storage, key)) = store.by_uid(uid)? {
            inner.collector.add(Work::Finalize(storage, key));
        }
    }
    let namespace = &current.key.namespace;
    if !namespace.is_empty()
        && let Some(stored) = store.get("namespaces", &ObjectKey::cluster(namespace))?
        && meta::deleting(stored.value())
    {
        inner.collector.add(Work::Namespace(namespace.clone()));
    }
    follow(inner, store, &Change { resource, before: Some(current), after: None })?;
    if resource.is_custom() {
        inner.collector.add(Work::Definition(resource.storage.to_string()));
    }
    Ok(last)
}

/// Writes a changed object on behalf of the server itself; one that waited only for finalizers now goes.
pub(crate) fn rewrite(
    inner: &Inner,
    store: &mut Store,
    resource: &Arc<Resource>,
    current: &Arc<Stored>,
    new: Value,
) -> ApiResult<()> {
    let held = resource.rules().spec_finalizers && new["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    if meta::deleting(&new) && meta::finalizers(&new).is_empty() && meta::grace(&new).unwrap_or(0) == 0 && !held {
        remove(inner, store, resource, current)?;
        return Ok(());
    }
    let stored = store.write(&resource.storage, new, Some(current), None)?;
    after_write(inner, store, resource, &stored, Some(current))
}
