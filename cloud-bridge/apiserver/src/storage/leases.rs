//! Leases and their history, in memory. Ten thousand nodes renew seven hundred Leases a second. Writing that would cost
//! megabytes a second, for data that every node repeats within seconds. So a mere renewal is not written; the holder,
//! the number of transitions and everything else of a Lease are in the file like any object.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::stored::{Change, Stored};
use apimachinery::key::ObjectKey;

/// Where Leases are stored.
pub(crate) const LEASES: &str = "leases.coordination.k8s.io";

/// Changes that are kept for watches that resume, and the bytes of their objects.
const HISTORY: usize = 4096;
const HISTORY_BYTES: usize = 6 << 20;

/// Only the newest bytes: parsed, ten thousand of them would be megabytes.
struct Lease {
    rev: u64,
    body: Bytes,
    /// Whether it is newer than the file.
    renewed: bool,
}

#[derive(Default)]
pub(super) struct Leases {
    all: BTreeMap<ObjectKey, Lease>,
    history: VecDeque<Change>,
    /// Bytes of the objects in `history`, with those before their changes.
    bytes: usize,
    /// Changes after this revision are all in `history`.
    pub(super) floor: u64,
}

impl Leases {
    /// Takes a Lease from the file at its opening.
    pub(super) fn load(&mut self, key: ObjectKey, rev: u64, body: Vec<u8>) {
        self.all.insert(key, Lease { rev, body: body.into(), renewed: false });
        self.floor = self.floor.max(rev);
    }

    /// Applies a change. `renewed`: the file does not have it.
    pub(super) fn took(&mut self, change: &Change, gone: bool, renewed: bool) {
        let object = &change.object;
        if gone {
            self.all.remove(&object.key);
        } else {
            let lease = Lease { rev: object.rev, body: object.body.clone(), renewed };
            self.all.insert(object.key.clone(), lease);
        }
        self.bytes += bytes(change);
        self.history.push_back(Change {
            rev: change.rev,
            kind: change.kind,
            object: object.unparsed(),
            before: change.before.as_ref().map(|before| before.unparsed()),
        });
        while (self.history.len() > HISTORY || self.bytes > HISTORY_BYTES)
            && let Some(oldest) = self.history.pop_front()
        {
            self.bytes -= bytes(&oldest);
            self.floor = oldest.rev;
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<Stored>> {
        self.all.get(key).map(|lease| stored(key, lease))
    }

    /// Lists Leases in key order, after `after`.
    pub(super) fn list(&self, namespace: Option<&str>, after: Option<&ObjectKey>) -> impl Iterator<Item = Arc<Stored>> {
        let rest = self.all.range::<ObjectKey, _>((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        let chosen = rest.filter(move |(key, _)| namespace.is_none_or(|ns| key.namespace == ns));
        chosen.map(|(key, lease)| stored(key, lease))
    }

    /// The changes after `rev`.
    pub(super) fn since(&self, namespace: Option<&str>, rev: u64) -> impl DoubleEndedIterator<Item = &Change> {
        self.history.iter().filter(move |change| {
            change.rev > rev && namespace.is_none_or(|namespace| change.object.key.namespace == namespace)
        })
    }

    /// All as they were at `rev`, in key order.
    pub(super) fn at(&self, namespace: Option<&str>, rev: u64) -> BTreeMap<ObjectKey, Arc<Stored>> {
        let mut then: BTreeMap<_, _> = self.list(namespace, None).map(|lease| (lease.key.clone(), lease)).collect();
        for change in self.since(namespace, rev).rev() {
            let key = &change.object.key;
            match &change.before {
                Some(before) => drop(then.insert(key.clone(), Arc::clone(before))),
                None => drop(then.remove(key)),
            }
        }
        then
    }

    /// The file has them all as they are.
    pub(super) fn settled(&mut self) {
        self.all.values_mut().for_each(|lease| lease.renewed = false);
    }

    /// Those that the file has in an older state.
    pub(super) fn renewed(&self) -> impl Iterator<Item = (&ObjectKey, u64, &Bytes)> {
        self.all.iter().filter(|(_, lease)| lease.renewed).map(|(key, lease)| (key, lease.rev, &lease.body))
    }
}

/// The bytes of a change: the object before it may be in no other.
fn bytes(change: &Change) -> usize {
    change.object.body.len() + change.before.as_ref().map_or(0, |before| before.body.len())
}

fn stored(key: &ObjectKey, lease: &Lease) -> Arc<Stored> {
    Arc::new(Stored::new(key.clone(), lease.rev, lease.body.clone()))
}

/// Whether only the time of a renewal differs: such a change may be lost.
pub(super) fn only_renews(old: &Value, new: &Value) -> bool {
    let same = |part: &str, but: &[&str]| match (old[part].as_object(), new[part].as_object()) {
        (Some(old), Some(new)) => same_but(old, new, but) && same_but(new, old, but),
        (old, new) => old.is_none() && new.is_none(),
    };
    same("metadata", &["resourceVersion", "managedFields"]) && same("spec", &["renewTime"])
}

fn same_but(one: &Map<String, Value>, other: &Map<String, Value>, but: &[&str]) -> bool {
    one.iter().all(|(key, value)| but.contains(&key.as_str()) || other.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::storage::ChangeKind;

    #[test]
    fn history_has_a_bounded_number_of_changes_and_bytes() {
        let mut leases = Leases::default();
        let mut renew = |revs: std::ops::RangeInclusive<u64>, bytes: usize| {
            for rev in revs {
                let body = Bytes::from(vec![b' '; bytes]);
                let object = Arc::new(Stored::new(ObjectKey::cluster("a"), rev, body));
                let before = Some(Arc::clone(&object));
                leases.took(&Change { rev, kind: ChangeKind::Modified, object, before }, false, true);
            }
            (leases.since(None, 0).count(), leases.floor)
        };
        assert_eq!(renew(1..=HISTORY as u64 + 4, 300), (HISTORY, 4));
        assert_eq!(renew(5_001..=5_100, 1 << 20), (3, 5_097));
        assert_eq!(renew(5_101..=5_101, HISTORY_BYTES + 1), (0, 5_101), "a watch from before lists again");
        assert_eq!(leases.bytes, 0);
    }

    #[test]
    fn who_holds_a_lease_is_never_only_in_memory() {
        let old = json!({
            "metadata": {"name": "n", "resourceVersion": "1"},
            "spec": {"holderIdentity": "n", "renewTime": "t1", "leaseTransitions": 1},
        });
        let with = |change: Value| {
            let mut new = old.clone();
            json_patch::merge(&mut new, &change);
            only_renews(&old, &new)
        };
        assert!(with(json!({"metadata": {"resourceVersion": "2"}, "spec": {"renewTime": "t2"}})));
        for change in [
            json!({"spec": {"holderIdentity": "m"}}),
            json!({"spec": {"leaseTransitions": 2}}),
            json!({"spec": {"acquireTime": "t"}}),
            json!({"spec": {"leaseTransitions": null}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"ownerReferences": []}}),
            json!({"metadata": {"deletionTimestamp": "t"}}),
            json!({"spec": null}),
        ] {
            assert!(!with(change.clone()), "{change}");
        }
    }
}
