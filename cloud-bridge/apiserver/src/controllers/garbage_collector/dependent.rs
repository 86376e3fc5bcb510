//! One object with owners: whether they exist, and how to handle it if they do not.

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::item::{Key, Owner, PAGE, finalizer, find, references};
use crate::controllers::runner::Turn;
use crate::registry::delete::{self, Options};
use crate::registry::write;
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::{Place, Store, StoreError};
use apimachinery::meta::{self, FOREGROUND, ORPHAN};

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// There, or of a kind that is not served here and so cannot be judged.
    Solid,
    /// There, and being deleted in the foreground.
    Waiting,
    Gone,
}

fn owner_state(
    inner: &Inner,
    store: &Store,
    reference: &Value,
    namespace: &str,
    gone: Option<&Owner>,
) -> Result<State, StoreError> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let kind = inner.registry.by_kind(text("apiVersion"), text("kind"));
    let gone = gone.filter(|gone| gone.uid == text("uid"));
    // Such a reference does not have a namespace in which to look for the owner, so the collector ignores it (K8s
    // garbagecollector.go isDangling): the object stays.
    let nowhere = match &kind {
        Some(kind) => kind.namespaced,
        None => gone.is_none_or(|gone| gone.namespaced),
    };
    if namespace.is_empty() && nowhere {
        return Ok(State::Solid);
    }
    let Some((storage, key)) = store.by_uid(text("uid"))? else {
        // An owner whose deletion was seen is gone, even if its kind is gone too (K8s absentOwnerCache).
        let known = kind.is_some() || gone.is_some();
        return Ok(if known { State::Gone } else { State::Solid });
    };
    let Some(kind) = kind else { return Ok(State::Solid) };
    // Owners are looked up by kind and name, and then compared by uid (K8s garbagecollector.go isDangling).
    if kind.storage != storage || key.name != text("name") {
        return Ok(State::Gone);
    }
    // An owner in another namespace is as good as none.
    if !key.namespace.is_empty() && key.namespace != namespace {
        return Ok(State::Gone);
    }
    let Some(stored) = store.get(&storage, &key)? else { return Ok(State::Gone) };
    let foreground = meta::finalizers(stored.head()).iter().any(|f| f == FOREGROUND);
    Ok(if meta::deleting(stored.head()) && foreground { State::Waiting } else { State::Solid })
}

/// Deletes an object if all of its owners are deleted or being deleted; otherwise removes references to those. `circle`
/// is the dependent after which to continue the search for one that waits already.
pub(super) fn collect(
    turn: &mut Turn<'_, Key>,
    place: &Place,
    gone: Option<&Owner>,
    circle: Option<&Place>,
) -> ApiResult<()> {
    let (inner, store) = (turn.inner, &mut *turn.store);
    let Some((resource, mut stored)) = find(inner, store, place)? else { return Ok(()) };
    let value = stored.head();
    // An object that is being deleted is left alone.
    if meta::deleting(value) {
        return Ok(());
    }
    let mut kept = Vec::new();
    let (mut waiting, mut lost) = (0, 0);
    for reference in references(value) {
        match owner_state(inner, store, reference, &place.1.namespace, gone)? {
            State::Gone => lost += 1,
            State::Waiting => waiting += 1,
            State::Solid => kept.push(reference),
        }
    }
    if lost + waiting == 0 {
        return Ok(());
    }
    // An owner that waits for its dependents does not wait for one that another owner keeps (K8s garbagecollector.go
    // attemptToDeleteItem).
    if !kept.is_empty() {
        let mut new = stored.value().clone();
        meta::set(&mut new, "ownerReferences", json!(kept));
        return Ok(write::rewrite(store, &resource, &stored, new)?);
    }
    let uid = meta::text(value, "uid").to_owned();
    let policy = match finalizer(value) {
        _ if waiting > 0 && !store.dependents(&uid, None, 1)?.is_empty() => "Foreground",
        Some(ORPHAN) => "Orphan",
        Some(_) => "Foreground",
        None => "Background",
    };
    if waiting > 0 {
        match in_circle(turn, &uid, circle.cloned())? {
            Circle::No => {}
            Circle::After(last) => {
                turn.queue.add(Key::Circle(place.clone(), gone.cloned(), last));
                return Ok(());
            }
            Circle::Yes => {
                let mut new = stored.value().clone();
                unblock_owners(&mut new);
                write::rewrite(turn.store, &resource, &stored, new)?;
                let Some((_, unblocking)) = find(inner, turn.store, place)? else { return Ok(()) };
                stored = unblocking;
            }
        }
    }
    let options = Options { uid: Some(uid), propagation: Some(policy.into()), ..Options::default() };
    delete::remove(turn.store, &resource, &stored, &options, Timestamp::now()).map(drop)
}

/// Whether a dependent of an object waits for its own dependents already: these may be the object's owners, and all would
/// wait for each other forever (K8s garbagecollector.go attemptToDeleteItem).
fn in_circle(turn: &Turn<'_, Key>, uid: &str, mut after: Option<Place>) -> Result<Circle, StoreError> {
    loop {
        let page = turn.store.dependents(uid, after.as_ref(), PAGE)?;
        let more = page.len() == PAGE;
        for place in page {
            if let Some((_, dependent)) = find(turn.inner, turn.store, &place)?
                && meta::deleting(dependent.head())
                && finalizer(dependent.head()) == Some(FOREGROUND)
            {
                return Ok(Circle::Yes);
            }
            if turn.over() {
                return Ok(Circle::After(place));
            }
            after = Some(place);
        }
        if !more {
            return Ok(Circle::No);
        }
    }
}

/// Result of the search for a cycle: it may continue after this dependent.
enum Circle {
    Yes,
    No,
    After(Place),
}

/// Has the owners of an object wait for it no longer.
fn unblock_owners(object: &mut Value) {
    let references = object.at_mut(&["metadata", "ownerReferences"]).and_then(Value::as_array_mut);
    for reference in references.into_iter().flatten().filter(|reference| reference["blockOwnerDeletion"] == true) {
        reference.set("blockOwnerDeletion", false.into());
    }
}

/// The reference of an object without a namespace to an owner that has one.
pub(super) fn misplaced<'a>(inner: &Inner, object: &'a Value) -> Option<&'a Value> {
    references(object).find(|reference| {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        inner.registry.by_kind(text("apiVersion"), text("kind")).is_some_and(|kind| kind.namespaced)
    })
}

/// Creates an event if a cluster-scoped object names a namespaced owner (K8s graph_builder.go
/// reportInvalidNamespaceOwnerRef).
pub(super) fn warn(inner: &Inner, store: &mut Store, place: &Place) -> ApiResult<()> {
    let Some((resource, stored)) = find(inner, store, place)? else { return Ok(()) };
    let Some(wrong) = misplaced(inner, stored.value()) else { return Ok(()) };
    let text = |field: &str| wrong[field].as_str().unwrap_or_default();
    let owner = format!("[{}/{}, name: {}, uid: {}]", text("apiVersion"), text("kind"), text("name"), text("uid"));
    let now = Timestamp::now();
    let name = &place.1.name;
    let mut event = json!({
        "metadata": {"generateName": format!("{name}."), "namespace": "default"},
        "involvedObject": {"apiVersion": resource.api_version(), "kind": resource.kind, "name": name,
            "uid": meta::text(stored.value(), "uid")},
        "reason": "OwnerRefInvalidNamespace", "type": "Warning", "count": 1,
        "message": format!("ownerRef {owner} does not exist in namespace \"\""),
        "firstTimestamp": meta::rfc3339(now), "lastTimestamp": meta::rfc3339(now),
        "source": {"component": "garbage-collector-controller"},
    });
    meta::fill_new(&mut event, now);
    let generated = meta::generate_name(meta::text(&event, "generateName"));
    meta::set(&mut event, "name", generated.into());
    let expires = inner.registry.find("", "v1", "events").and_then(|events| events.life());
    store.write("events", event, None, expires)?;
    Ok(())
}
