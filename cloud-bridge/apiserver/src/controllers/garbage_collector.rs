//! The garbage collector: dependents of what is gone, foreground and orphaning deletions, and the contents
//! of namespaces and custom resource definitions that are going. Woken by writes; never polls.

use edge_protocol::json::SetField;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::definitions;
use crate::registry::delete::{self, Options, SLICE};
use crate::registry::write;
use crate::resource::Resource;
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::state::work::{Receiver, Work};
use crate::storage::{Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta::{self, FOREGROUND, ORPHAN};
use apimachinery::panics;
use sampan_log::printable::printable;

/// What failed is tried again after this, then after twice as long each time.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Queues what an earlier run left undone.
pub(crate) fn recover(inner: &Inner, store: &Store) -> Result<(), StoreError> {
    for uid in store.owner_uids()? {
        match store.by_uid(&uid)? {
            None => inner.collector.add(Work::Gone(uid)),
            Some((storage, key)) => inner.collector.add(Work::Finalize(storage, key)),
        }
    }
    for resource in inner.registry.all() {
        for stored in store.list(&resource.storage, None, None, None)? {
            if !meta::deleting(stored.value()) {
                continue;
            }
            inner.collector.add(Work::Finalize(resource.storage.to_string(), stored.key.clone()));
            if resource.plural == "namespaces" {
                inner.collector.add(Work::Namespace(stored.key.name.clone()));
            }
            if resource.plural == "customresourcedefinitions" {
                inner.collector.add(Work::Definition(stored.key.name.clone()));
            }
        }
    }
    Ok(())
}

/// Works until the server is dropped.
pub(crate) async fn run(inner: Weak<Inner>, work: Receiver) {
    // As many as there are objects, at most.
    let mut failures: BTreeMap<Work, u32> = BTreeMap::new();
    loop {
        let item = work.next().await;
        let Some(inner) = inner.upgrade() else { return };
        // The hook has told of a panic.
        let done = panics::shield("garbage collection", || step(&inner, &item));
        if let Some(Ok(())) = done {
            failures.remove(&item);
        } else {
            let count = failures.entry(item.clone()).or_insert(0_u32);
            let wait = RETRY.saturating_mul(1 << (*count).min(10)).min(RETRY_MAX);
            *count = count.saturating_add(1);
            if let Some(Err(error)) = done {
                let item = printable(format!("{item:?}"));
                log::warn!("garbage collection of {item}, again in {wait:?}: {error}");
            }
            let handle = inner.collector.clone();
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                handle.add(item);
            });
        }
        drop(inner);
        tokio::task::yield_now().await;
    }
}

fn step(inner: &Inner, work: &Work) -> ApiResult<()> {
    let mut store = inner.store();
    match work {
        Work::Gone(uid) => {
            for (storage, key) in store.dependents(uid)? {
                inner.collector.add(Work::Left(storage, key));
            }
            Ok(())
        }
        Work::Left(storage, key) => collect(inner, &mut store, storage, key).map(drop),
        Work::Owned(storage, key) => {
            warn_of_owners(inner, &mut store, storage, key)?;
            collect(inner, &mut store, storage, key).map(drop)
        }
        Work::Finalize(storage, key) => finalize(inner, &mut store, storage, key),
        Work::Namespace(name) => empty_namespace(inner, &mut store, name),
        Work::Definition(storage) => definitions::collect(inner, &mut store, storage),
    }
}

fn find(
    inner: &Inner,
    store: &Store,
    storage: &str,
    key: &ObjectKey,
) -> ApiResult<Option<(Arc<Resource>, Arc<Stored>)>> {
    let Some(resource) = inner.registry.by_storage(storage) else { return Ok(None) };
    Ok(store.get(storage, key)?.map(|stored| (resource, stored)))
}

#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// There, or of a kind that is not served here and so cannot be judged.
    Solid,
    /// There, and being deleted in the foreground.
    Waiting,
    Gone,
}

fn owner_state(inner: &Inner, store: &Store, reference: &Value, namespace: &str) -> ApiResult<Owner> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let Some(kind) = inner.registry.by_kind(text("apiVersion"), text("kind")) else { return Ok(Owner::Solid) };
    // Such a reference names no namespace that the owner could be looked for in: it can be neither kept nor followed
    // (K8s garbagecollector.go isDangling), so the object stays.
    if namespace.is_empty() && kind.namespaced {
        return Ok(Owner::Solid);
    }
    let Some((storage, key)) = store.by_uid(text("uid"))? else { return Ok(Owner::Gone) };
    // An owner in another namespace is as good as none.
    if !key.namespace.is_empty() && key.namespace != namespace {
        return Ok(Owner::Gone);
    }
    let Some(stored) = store.get(&storage, &key)? else { return Ok(Owner::Gone) };
    let foreground = meta::finalizers(stored.value()).iter().any(|f| f == FOREGROUND);
    Ok(if meta::deleting(stored.value()) && foreground { Owner::Waiting } else { Owner::Solid })
}

/// Says of an object without a namespace that it names an owner that has one
/// (K8s graph_builder.go reportInvalidNamespaceOwnerRef).
fn warn_of_owners(inner: &Inner, store: &mut Store, storage: &str, key: &ObjectKey) -> ApiResult<()> {
    let Some((resource, stored)) = find(inner, store, storage, key)? else { return Ok(()) };
    if !key.namespace.is_empty() {
        return Ok(());
    }
    let references = stored.value()["metadata"]["ownerReferences"].as_array();
    let wrong = references.into_iter().flatten().find(|reference| {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        inner.registry.by_kind(text("apiVersion"), text("kind")).is_some_and(|kind| kind.namespaced)
    });
    let Some(wrong) = wrong else { return Ok(()) };
    let text = |field: &str| wrong[field].as_str().unwrap_or_default();
    let owner = format!("[{}/{}, name: {}, uid: {}]", text("apiVersion"), text("kind"), text("name"), text("uid"));
    let now = Timestamp::now();
    let mut event = json!({
        "metadata": {"generateName": format!("{}.", key.name), "namespace": "default"},
        "involvedObject": {"apiVersion": resource.api_version(), "kind": resource.kind, "name": key.name,
            "uid": meta::text(stored.value(), "uid")},
        "reason": "OwnerRefInvalidNamespace", "type": "Warning", "count": 1,
        "message": format!("ownerRef {owner} does not exist in namespace \"\""),
        "firstTimestamp": meta::rfc3339(now), "lastTimestamp": meta::rfc3339(now),
        "source": {"component": "garbage-collector-controller"},
    });
    meta::fill_new(&mut event, now);
    let name = meta::generate_name(meta::text(&event, "generateName"));
    meta::set(&mut event, "name", name.into());
    let expires = inner.registry.find("", "v1", "events").and_then(|events| events.expiry(now));
    store.write("events", event, None, expires)?;
    Ok(())
}

/// Deletes an object all of whose owners are gone or going; drops references to those otherwise. Whether it has changed.
fn collect(inner: &Inner, store: &mut Store, storage: &str, key: &ObjectKey) -> ApiResult<bool> {
    let Some((resource, stored)) = find(inner, store, storage, key)? else { return Ok(false) };
    let value = stored.value();
    let references = value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let mut kept = Vec::new();
    let (mut waiting, mut gone) = (0, 0);
    for reference in references {
        match owner_state(inner, store, &reference, &key.namespace)? {
            Owner::Gone => gone += 1,
            Owner::Waiting => waiting += 1,
            Owner::Solid => kept.push(reference),
        }
    }
    if gone + waiting == 0 {
        return Ok(false);
    }
    // Who waits for its dependents does not wait for one that somebody else keeps (K8s garbagecollector.go
    // attemptToDeleteItem).
    if !kept.is_empty() {
        let mut new = value.clone();
        meta::set(&mut new, "ownerReferences", json!(kept));
        write::rewrite(inner, store, &resource, &stored, new)?;
        return Ok(true);
    }
    let uid = meta::text(value, "uid").to_owned();
    let finalizers = meta::finalizers(value);
    let policy = if waiting > 0 && !store.dependents(&uid)?.is_empty() {
        "Foreground"
    } else if finalizers.iter().any(|f| f == ORPHAN) {
        "Orphan"
    } else if finalizers.iter().any(|f| f == FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    };
    let options = Options { uid: Some(uid), propagation: Some(policy.into()), ..Options::default() };
    delete::remove(inner, store, &resource, &stored, &options, Timestamp::now())?;
    Ok(true)
}

/// Does what the `orphan` and `foregroundDeletion` finalizers wait for, a slice at a time.
fn finalize(inner: &Inner, store: &mut Store, storage: &str, key: &ObjectKey) -> ApiResult<()> {
    let Some((_, stored)) = find(inner, store, storage, key)? else { return Ok(()) };
    if !meta::deleting(stored.value()) {
        return Ok(());
    }
    let uid = meta::text(stored.value(), "uid").to_owned();
    let finalizers = meta::finalizers(stored.value());
    let again = || inner.collector.add(Work::Finalize(storage.to_owned(), key.clone()));
    let mut changed = 0;
    if finalizers.iter().any(|f| f == ORPHAN) {
        for (storage, key) in store.dependents(&uid)? {
            let Some((resource, dependent)) = find(inner, store, &storage, &key)? else { continue };
            if changed == SLICE {
                again();
                return Ok(());
            }
            changed += 1;
            let mut new = dependent.value().clone();
            let mut references = new["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            references.retain(|r| r["uid"] != uid.as_str());
            meta::set(&mut new, "ownerReferences", if references.is_empty() { Value::Null } else { json!(references) });
            write::rewrite(inner, store, &resource, &dependent, new)?;
        }
        return drop_finalizer(inner, store, storage, key, ORPHAN);
    }
    if !finalizers.iter().any(|f| f == FOREGROUND) {
        return Ok(());
    }
    for (storage, key) in store.dependents(&uid)? {
        let Some((_, dependent)) = find(inner, store, &storage, &key)? else { continue };
        if meta::deleting(dependent.value()) {
            continue;
        }
        if changed == SLICE {
            again();
            return Ok(());
        }
        changed += usize::from(collect(inner, store, &storage, &key)?);
    }
    for (storage, key) in store.dependents(&uid)? {
        let Some((_, dependent)) = find(inner, store, &storage, &key)? else { continue };
        let mut references = dependent.value()["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        if references.any(|r| r["uid"] == uid.as_str() && r["blockOwnerDeletion"] == true) {
            return Ok(());
        }
    }
    drop_finalizer(inner, store, storage, key, FOREGROUND)
}

fn drop_finalizer(inner: &Inner, store: &mut Store, storage: &str, key: &ObjectKey, name: &str) -> ApiResult<()> {
    let Some((resource, stored)) = find(inner, store, storage, key)? else { return Ok(()) };
    let mut new = stored.value().clone();
    let mut finalizers = meta::finalizers(&new);
    finalizers.retain(|f| f != name);
    meta::set_finalizers(&mut new, &finalizers);
    write::rewrite(inner, store, &resource, &stored, new)
}

/// Deletes all of a kind, in one namespace or in every one, that is not being deleted yet, but no more than there is room
/// for: the rest after whoever waits for the storage meanwhile. Whether that was all.
pub(crate) fn remove_all(
    inner: &Inner,
    store: &mut Store,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    options: &Options,
    room: &mut usize,
) -> ApiResult<bool> {
    let mut after = None;
    loop {
        let page = store.list(&resource.storage, namespace, after.as_ref(), Some(SLICE))?;
        let Some(last) = page.last() else { return Ok(true) };
        after = Some(last.key.clone());
        for stored in page.iter().filter(|stored| !meta::deleting(stored.value())) {
            if *room == 0 {
                return Ok(false);
            }
            if let Some(current) = store.get(&resource.storage, &stored.key)? {
                delete::remove(inner, store, resource, &current, options, Timestamp::now())?;
                *room -= 1;
            }
        }
    }
}

/// Deletes what a Terminating namespace holds; takes the namespace's finalizer off when nothing is left.
fn empty_namespace(inner: &Inner, store: &mut Store, name: &str) -> ApiResult<()> {
    let key = ObjectKey::cluster(name);
    let Some((resource, stored)) = find(inner, store, "namespaces", &key)? else { return Ok(()) };
    if !meta::deleting(stored.value()) {
        return Ok(());
    }
    let options = Options { propagation: Some("Background".into()), ..Options::default() };
    let mut room = SLICE;
    for storage in store.storages_in(name)? {
        let Some(resource) = inner.registry.by_storage(&storage) else { continue };
        if !remove_all(inner, store, &resource, Some(name), &options, &mut room)? {
            inner.collector.add(Work::Namespace(name.to_owned()));
            return Ok(());
        }
    }
    if !store.storages_in(name)?.is_empty() {
        return Ok(());
    }
    let mut new = stored.value().clone();
    if let Some(finalizers) = new.at_mut(&["spec", "finalizers"]).and_then(Value::as_array_mut) {
        finalizers.retain(|f| f != "kubernetes");
    }
    write::rewrite(inner, store, &resource, &stored, new)
}
