//! One count of the resources that a quota limits, as of one moment, however long it takes. Charges to the quota
//! meanwhile are added; releases cause another count.

use std::sync::Arc;

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Map, Value, json};

use crate::kinds::event;
use crate::kinds::pod::amounts::{Amounts, add, amounts};
use crate::kinds::resource_quota::STORAGE;
use crate::kinds::resource_quota::usage::{in_scope, measured, takes, usage};
use crate::state::Inner;
use crate::storage::{Most, Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::quantity::Quantity;

/// Maximum read at a time: a parsed object takes a multiple of its size in the file, and names each of its fields again
/// in `managedFields`.
const PAGE: Most = Most { items: 32, bytes: 32 << 10 };

/// A counted resource: its name in quotas, and its storage.
struct Source {
    resource: String,
    storage: String,
}

pub(super) struct Count {
    /// The quota when counting began.
    quota: Arc<Stored>,
    rev: u64,
    /// Sources still to count, in reverse order.
    sources: Vec<Source>,
    after: Option<ObjectKey>,
    counted: Amounts,
    /// The moment was forgotten before all was counted.
    lost: bool,
}

impl Count {
    /// Begins to count; `None` if the quota does not exist.
    pub(super) fn begin(inner: &Inner, store: &Store, key: &ObjectKey) -> Result<Option<Self>, StoreError> {
        let Some(quota) = store.get(STORAGE, key)? else { return Ok(None) };
        let hard = amounts(&quota.value()["spec"], "hard");
        let (mut sources, mut counted): (Vec<Source>, _) = (Vec::new(), Amounts::new());
        for resource in inner.registry.all().iter().filter(|one| one.namespaced && one.storage != event::STORAGE) {
            let name = resource.qualified();
            let mut limited = hard.keys().filter(|limit| takes(&name, limit)).peekable();
            // Several versions of a kind share a storage.
            if limited.peek().is_none() || sources.iter().any(|known| known.storage == *resource.storage) {
                continue;
            }
            counted.extend(limited.map(|limit| (limit.clone(), Quantity::ZERO)));
            sources.push(Source { resource: name, storage: resource.storage.to_string() });
        }
        Ok(Some(Self { quota, rev: store.revision(), sources, after: None, counted, lost: false }))
    }

    /// Counts the next objects. Whether these were the last ones.
    pub(super) fn page(&mut self, store: &Store) -> Result<bool, StoreError> {
        let Some(Source { resource, storage }) = self.sources.last() else { return Ok(true) };
        self.lost = store.knows(storage, self.rev).is_err();
        if self.lost {
            return Ok(true);
        }
        let namespace = Some(self.quota.key.namespace.as_str());
        let page = store.list_at(storage, namespace, self.rev, self.after.as_ref(), PAGE, &|_| true)?;
        let now = Timestamp::now();
        for object in &page.items {
            // Of other kinds only the number counts: a large body is not parsed for it.
            let object = if measured(resource) { object.value() } else { object.head() };
            if !in_scope(resource, self.quota.value(), object) {
                continue;
            }
            let mut used = usage(resource, object, now);
            used.retain(|name, _| self.counted.contains_key(name));
            add(&mut self.counted, &used);
        }
        self.after = page.next;
        if self.after.is_none() {
            self.sources.pop();
        }
        Ok(self.sources.is_empty())
    }

    /// Writes the usage, if the quota has another one. False if it is unknown: the limits have changed, or the count
    /// took longer than history is kept.
    pub(super) fn finish(self, store: &mut Store, key: &ObjectKey) -> Result<bool, StoreError> {
        let Some(quota) = store.get(STORAGE, key)? else { return Ok(true) };
        let (then, value) = (self.quota.value(), quota.value());
        if self.lost || then["spec"] != value["spec"] {
            return Ok(false);
        }
        let hard = amounts(&value["spec"], "hard");
        let used = used(&hard, self.counted, &amounts(&then["status"], "used"), &amounts(&value["status"], "used"));
        let list = |amounts: Amounts| -> Map<String, Value> {
            amounts.into_iter().map(|(name, amount)| (name, amount.to_string().into())).collect()
        };
        let status = &value["status"];
        let same = amounts(status, "hard") == hard && amounts(status, "used") == used;
        if same && status["hard"].is_object() && status["used"].is_object() {
            return Ok(true);
        }
        let mut new = value.clone();
        new.set("status", json!({"hard": list(hard), "used": list(used)}));
        store.write(STORAGE, new, Some(&quota), None)?;
        Ok(true)
    }
}

/// Usage: the amounts counted plus those charged since then. Amounts that cannot be counted keep their value.
fn used(hard: &Amounts, counted: Amounts, then: &Amounts, now: &Amounts) -> Amounts {
    let mut used = now.clone();
    for (name, amount) in counted {
        let charged = then.get(&name).zip(now.get(&name)).map(|(then, now)| now.minus(*then));
        let more = charged.filter(|charged| !charged.is_negative()).unwrap_or(Quantity::ZERO);
        used.insert(name, amount.plus(more));
    }
    used.retain(|name, _| hard.contains_key(name));
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(&str, i64)]) -> Amounts {
        list.iter().map(|(name, units)| ((*name).to_owned(), Quantity::from_units(*units))).collect()
    }

    #[test]
    fn what_is_charged_while_it_is_counted_comes_on_top() {
        let hard = of(&[("pods", 10), ("services", 10), ("example.com/x", 1)]);
        let (then, now) = (
            of(&[("pods", 7), ("services", 5), ("gone", 1)]),
            of(&[("pods", 9), ("services", 4), ("example.com/x", 1)]),
        );
        let used = used(&hard, of(&[("pods", 3), ("services", 4)]), &then, &now);
        assert_eq!(used, of(&[("pods", 5), ("services", 4), ("example.com/x", 1)]));
        assert_eq!(super::used(&hard, of(&[("pods", 3)]), &of(&[]), &of(&[])), of(&[("pods", 3)]));
    }
}
