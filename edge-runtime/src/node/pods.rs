//! The pods of this node in memory: manifest, record and what was last told about each.
//! Owns bookkeeping only; what happens to a pod is decided in [`crate::pod`].

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::pod::clock::Mono;
use crate::pod::reconcile::Refusal;
use crate::pod::record::{PodRecord, SandboxState};
use crate::pod::step::EventDraft;

/// One pod.
pub(super) struct Entry {
    /// The newest object, parsed.
    pub(super) pod: Rc<Pod>,
    pub(super) record: PodRecord,
    /// The object has a field that this build's types do not know.
    pub(super) refusal: Option<Refusal>,
    /// `record` has changed since it was stored.
    pub(super) unsaved: bool,
    /// Kubernetes events about news since the last turn.
    pub(super) notes: Vec<EventDraft>,
    /// Status as last put into the outbox.
    pub(super) reported: Value,
    /// A status that differs from `reported` may be held back until then, to be told together with
    /// what is about to happen.
    pub(super) hold_until: Option<Mono>,
    /// When to reconcile again although nothing happened.
    pub(super) wake: Option<Mono>,
    /// For a static pod: uid of its mirror in the API, once the bridge sent it.
    pub(super) mirror_uid: Option<String>,
    /// Generation of the resize whose failure was told in an event; its retries are not told again.
    pub(super) resize_error_of: Option<i64>,
}

impl Entry {
    pub(super) fn new(pod: Rc<Pod>, record: PodRecord) -> Self {
        Self {
            pod,
            record,
            refusal: None,
            unsaved: true,
            notes: Vec::new(),
            reported: Value::Null,
            hold_until: None,
            wake: None,
            mirror_uid: None,
            resize_error_of: None,
        }
    }

    pub(super) fn sandbox_ready(&self) -> bool {
        matches!(self.record.sandbox.state, SandboxState::Ready { .. })
    }
}

/// All of them, by uid, and which need attention.
#[derive(Default)]
pub(super) struct Pods {
    entries: BTreeMap<String, Entry>,
    /// Longest waiting first: whatever happens to the others of a burst, each pod gets its turn.
    dirty: VecDeque<String>,
}

impl Pods {
    pub(super) fn get(&self, uid: &str) -> Option<&Entry> {
        self.entries.get(uid)
    }

    pub(super) fn get_mut(&mut self, uid: &str) -> Option<&mut Entry> {
        self.entries.get_mut(uid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// Adds a pod and marks it for attention.
    pub(super) fn insert(&mut self, entry: Entry) {
        let uid = entry.record.uid.clone();
        self.entries.insert(uid.clone(), entry);
        self.touch(&uid);
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Entry> {
        self.dirty.retain(|other| other != uid);
        self.entries.remove(uid)
    }

    pub(super) fn touch(&mut self, uid: &str) {
        if self.entries.contains_key(uid) && !self.dirty.iter().any(|other| other == uid) {
            self.dirty.push_back(uid.to_owned());
        }
    }

    /// Takes one pod that needs attention.
    /// Pods whose resize waits for room look for it again.
    pub(super) fn touch_pending_resizes(&mut self) {
        let pending = self.entries.iter().filter(|(_, entry)| entry.record.resize_pending.is_some());
        for uid in pending.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            self.touch(&uid);
        }
    }

    pub(super) fn next_dirty(&mut self) -> Option<String> {
        self.dirty.pop_front()
    }

    pub(super) fn any_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Marks pods whose time has come; gives the next time one will.
    pub(super) fn wake_due(&mut self, now: Mono) -> Option<Mono> {
        let mut next: Option<Mono> = None;
        for (uid, entry) in &mut self.entries {
            for due in [&mut entry.wake, &mut entry.hold_until] {
                match *due {
                    Some(at) if at <= now => {
                        *due = None;
                        if !self.dirty.contains(uid) {
                            self.dirty.push_back(uid.clone());
                        }
                    }
                    Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                    None => {}
                }
            }
        }
        next
    }

    pub(super) fn by_name(&self, namespace: &str, name: &str) -> Option<&Entry> {
        self.entries.values().find(|entry| entry.record.namespace == namespace && entry.record.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::clock::Now;
    use crate::pod::record::PodSource;

    /// A burst of pods on a slow node: what happens to those that start must not hold up the first turn, and with it
    /// the first status, of the others.
    #[test]
    fn every_pod_gets_its_turn() {
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        let mut pods = Pods::default();
        for uid in ["a", "b", "c", "d"] {
            let record = PodRecord::new(uid, "ns", uid, PodSource::Api, &now);
            pods.insert(Entry::new(Rc::default(), record));
        }
        let mut seen = Vec::new();
        while seen.len() < 4 {
            let uid = pods.next_dirty().expect("somebody waits");
            seen.push(uid);
            // There is always news of the first two.
            pods.touch("a");
            pods.touch("b");
        }
        seen.sort();
        assert_eq!(seen, ["a", "b", "c", "d"]);
        pods.remove("a");
        assert_eq!(pods.next_dirty().as_deref(), Some("b"));
        assert_eq!((pods.next_dirty(), pods.any_dirty()), (None, false));
    }
}
