//! The pods of this node in memory: manifest, record and what was last told about each.
//! Owns bookkeeping only; what happens to a pod is decided in [`crate::pod`].

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::pod::clock::Mono;
use crate::pod::record::PodRecord;

/// One pod.
pub struct Entry {
    /// The newest object, parsed.
    pub pod: Rc<Pod>,
    pub record: PodRecord,
    /// `record` has changed since it was stored.
    pub unsaved: bool,
    /// Status as last put into the outbox.
    pub reported: Value,
    /// A status that differs from `reported` may be held back until then, to be told together with
    /// what is about to happen.
    pub hold_until: Option<Mono>,
    /// When to reconcile again although nothing happened.
    pub wake: Option<Mono>,
    /// For a static pod: uid of its mirror in the API, once the bridge sent it.
    pub mirror_uid: Option<String>,
}

/// All of them, by uid, and which need attention.
#[derive(Default)]
pub struct Pods {
    entries: BTreeMap<String, Entry>,
    dirty: BTreeSet<String>,
}

impl Pods {
    pub fn get(&self, uid: &str) -> Option<&Entry> {
        self.entries.get(uid)
    }

    pub fn get_mut(&mut self, uid: &str) -> Option<&mut Entry> {
        self.entries.get_mut(uid)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// Adds a pod and marks it for attention.
    pub fn insert(&mut self, entry: Entry) {
        let uid = entry.record.uid.clone();
        self.dirty.insert(uid.clone());
        self.entries.insert(uid, entry);
    }

    pub fn remove(&mut self, uid: &str) -> Option<Entry> {
        self.dirty.remove(uid);
        self.entries.remove(uid)
    }

    pub fn touch(&mut self, uid: &str) {
        if self.entries.contains_key(uid) {
            self.dirty.insert(uid.to_owned());
        }
    }

    /// Takes one pod that needs attention.
    pub fn next_dirty(&mut self) -> Option<String> {
        self.dirty.pop_first()
    }

    pub fn any_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Marks pods whose time has come; gives the next time one will.
    pub fn wake_due(&mut self, now: Mono) -> Option<Mono> {
        let mut next: Option<Mono> = None;
        for (uid, entry) in &mut self.entries {
            for due in [&mut entry.wake, &mut entry.hold_until] {
                match *due {
                    Some(at) if at <= now => {
                        *due = None;
                        self.dirty.insert(uid.clone());
                    }
                    Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                    None => {}
                }
            }
        }
        next
    }

    pub fn by_name(&self, namespace: &str, name: &str) -> Option<&Entry> {
        self.entries.values().find(|entry| entry.record.namespace == namespace && entry.record.name == name)
    }
}
