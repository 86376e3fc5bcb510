//! What the objects of a namespace take of its quotas, counted anew when some have gone or a quota has changed
//! (K8s pkg/controller/resourcequota). What is created is charged by its admission.

use std::time::Duration;

use edge_protocol::json::SetField;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use crate::kinds::pod::amounts::{Amounts, add, amounts};
use crate::kinds::resource_quota::STORAGE;
use crate::kinds::resource_quota::usage::{in_scope, pod_counts, takes, usage};
use crate::kinds::{event, volume};
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::{Store, StoreError};
use apimachinery::key::ObjectKey;
use apimachinery::quantity::Quantity;

/// What frees something waits so long for more of it: many objects of a namespace go at once.
const GATHER: Duration = Duration::from_millis(100);
/// Objects that are read at a time: a parsed one needs a multiple of its room in the file.
const PAGE: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Quota(ObjectKey),
    /// All quotas of a namespace in which something was freed.
    Namespace(String),
}

#[derive(Default)]
pub(super) struct ResourceQuota;

impl Controller for ResourceQuota {
    type Key = Key;

    const NAME: &'static str = "counting what quotas limit";

    fn storages(_: &Inner) -> Vec<String> {
        vec![STORAGE.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<Key>) {
        if seen.storage == STORAGE && seen.after.is_some() {
            queue.add(Key::Quota(seen.key.clone()));
        }
        if !seen.key.namespace.is_empty() && frees(seen) {
            queue.add_after(Key::Namespace(seen.key.namespace.clone()), GATHER);
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, Key>, key: &Key) -> ApiResult<()> {
        match key {
            Key::Quota(key) => Ok(count(turn.inner, turn.store, key)?),
            Key::Namespace(namespace) => {
                for quota in turn.store.list(STORAGE, Some(namespace), None, None)? {
                    turn.queue.add(Key::Quota(quota.key.clone()));
                }
                Ok(())
            }
        }
    }
}

/// Whether a change may leave more room than there was.
fn frees(seen: &Seen<'_>) -> bool {
    let (Some(before), after) = (seen.before, seen.after) else { return false };
    let Some(after) = after else { return seen.storage != event::STORAGE };
    match seen.storage {
        "pods" => {
            let now = Timestamp::now();
            (pod_counts(before, now) && !pod_counts(after, now)) || before["spec"] != after["spec"]
        }
        "services" => before["spec"] != after["spec"],
        volume::CLAIMS => before["spec"] != after["spec"] || before["status"] != after["status"],
        _ => false,
    }
}

/// Writes what is used of a quota, if that is something else than it says.
fn count(inner: &Inner, store: &mut Store, key: &ObjectKey) -> Result<(), StoreError> {
    let Some(quota) = store.get(STORAGE, key)? else { return Ok(()) };
    let value = quota.value();
    let (hard, before) = (amounts(&value["spec"], "hard"), amounts(&value["status"], "used"));
    let used = used(inner, store, value, &hard, &key.namespace)?;
    let same = amounts(&value["status"], "hard") == hard && before == used;
    if same && value["status"]["hard"].is_object() && value["status"]["used"].is_object() {
        return Ok(());
    }
    let list = |amounts: Amounts| -> Map<String, Value> {
        amounts.into_iter().map(|(name, amount)| (name, amount.to_string().into())).collect()
    };
    let mut new = value.clone();
    new.set("status", json!({"hard": list(hard), "used": list(used)}));
    store.write(STORAGE, new, Some(&quota), None).map(drop)
}

/// What all objects of the namespace take of what the quota limits. What nobody can count stays as it was told.
fn used(inner: &Inner, store: &Store, quota: &Value, hard: &Amounts, namespace: &str) -> Result<Amounts, StoreError> {
    let mut used = amounts(&quota["status"], "used");
    let mut counted = Amounts::new();
    let resources = inner.registry.all();
    let mut storages: Vec<&str> = Vec::new();
    for resource in resources.iter().filter(|one| one.namespaced && one.storage != event::STORAGE) {
        let name = resource.qualified();
        let mut limited = hard.keys().filter(|limit| takes(&name, limit)).peekable();
        // Several versions of a kind share a storage.
        if limited.peek().is_none() || storages.contains(&resource.storage.as_ref()) {
            continue;
        }
        storages.push(&resource.storage);
        used.extend(limited.map(|limit| (limit.clone(), Quantity::ZERO)));
        let (now, mut after) = (Timestamp::now(), None);
        loop {
            let page = store.list(&resource.storage, Some(namespace), after.as_ref(), Some(PAGE))?;
            for object in page.iter().filter(|object| in_scope(&name, quota, object.value())) {
                add(&mut counted, &usage(&name, object.value(), now));
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
                _ => break,
            }
        }
    }
    add(&mut used, &{
        let known = |(name, _): &(String, Quantity)| hard.contains_key(name);
        counted.into_iter().filter(known).collect()
    });
    used.retain(|name, _| hard.contains_key(name));
    Ok(used)
}
