//! What follows from a write: the default service account of a namespace, the resources of a custom resource
//! definition, and work for the garbage collector. Called with the storage's lock held.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::auth::accounts;
use crate::controllers::definitions;
use crate::controllers::root_ca;
use crate::controllers::volume_binder;
use crate::resource::Resource;
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::state::work::Work;
use crate::storage::{Store, StoreError, Stored};
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
    if is(resource, "", "namespaces") {
        if before.is_none() {
            default_account(store, &stored.key.name)?;
            root_ca::root_ca(inner, store, &stored.key.name)?;
        }
        if meta::deleting(value) {
            inner.collector.add(Work::Namespace(stored.key.name.clone()));
        }
    }
    if is(resource, "apiextensions.k8s.io", "customresourcedefinitions") {
        definitions::written(inner, store, resource, stored)?;
    }
    if is(resource, "", "persistentvolumes") {
        volume_binder::volume_written(store, stored)?;
    }
    if is(resource, "", "persistentvolumeclaims") {
        volume_binder::claim_written(store, stored)?;
    }
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

/// Does what should have followed from writes of an earlier run, or failed in this one: a power cut or an error may
/// come between an object and what belongs to it.
pub(crate) fn repair(inner: &Inner, store: &mut Store) -> Result<(), StoreError> {
    for namespace in store.list("namespaces", None, None, None)? {
        if !meta::deleting(namespace.value()) {
            default_account(store, &namespace.key.name)?;
            root_ca::root_ca(inner, store, &namespace.key.name)?;
        }
    }
    volume_binder::repair(store)
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
    {
        if meta::deleting(stored.value()) {
            inner.collector.add(Work::Namespace(namespace.clone()));
        } else if is(resource, "", "serviceaccounts") && current.key.name == "default" {
            default_account(store, namespace)?;
        } else if is(resource, "", "configmaps") && current.key.name == accounts::ROOT_CA {
            root_ca::root_ca(inner, store, namespace)?;
        }
    }
    if is(resource, "apiextensions.k8s.io", "customresourcedefinitions") {
        definitions::removed(inner, store, current);
    }
    if is(resource, "", "persistentvolumeclaims") {
        volume_binder::released(store, value)?;
    }
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
    let spec_held = new["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    let namespace_held = is(resource, "", "namespaces") && spec_held;
    if meta::deleting(&new)
        && meta::finalizers(&new).is_empty()
        && meta::grace(&new).unwrap_or(0) == 0
        && !namespace_held
    {
        remove(inner, store, resource, current)?;
        return Ok(());
    }
    let stored = store.write(&resource.storage, new, Some(current), None)?;
    after_write(inner, store, resource, &stored, Some(current))
}

/// Creates the service account that every pod gets when it names none.
fn default_account(store: &mut Store, namespace: &str) -> Result<(), StoreError> {
    let key = ObjectKey { namespace: namespace.to_owned(), name: "default".into() };
    if store.get("serviceaccounts", &key)?.is_some() {
        return Ok(());
    }
    let mut account = json!({ "metadata": { "name": "default", "namespace": namespace } });
    meta::fill_new(&mut account, Timestamp::now());
    store.write("serviceaccounts", account, None, None)?;
    Ok(())
}
