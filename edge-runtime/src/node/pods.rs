//! The pods of this node in memory: manifest, record and last report of each. Bookkeeping only; [`crate::pod`] decides
//! about pods.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::launch::devices::plugins::Admitted;
use crate::pod::clock::{Mono, Now};
use crate::pod::event::PodEvent;
use crate::pod::record::{ContainerState, PodRecord, SandboxState};
use crate::pod::refusal::Refusal;
use crate::pod::step::EventDraft;
use crate::pod::{notice, transition};
use crate::sys::vec_map::VecMap;

/// Maximum delay of a status that is about to change again, because a start is running.
const HOLD: Duration = Duration::from_millis(250);
/// The same for the first status of a pod, which only repeats what the API shows already: `Pending`.
const FIRST_HOLD: Duration = Duration::from_secs(1);

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
    /// A status that differs from `reported` is held, to be reported together with imminent changes.
    pub(super) held: Hold,
    /// [`PodRecord::ends`] of the last reported status.
    pub(super) told_ends: u64,
    /// When to reconcile again although nothing happened.
    pub(super) wake: Option<Mono>,
    /// Uid of a static pod's mirror in the API, once the bridge sent it.
    pub(super) mirror_uid: Option<String>,
    /// Generation of the resize whose failure was reported in an event; retries do not repeat it.
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
            held: Hold::No,
            told_ends: 0,
            wake: None,
            mirror_uid: None,
            resize_error_of: None,
        }
    }

    pub(super) fn sandbox_ready(&self) -> bool {
        matches!(self.record.sandbox.state, SandboxState::Ready { .. })
    }

    /// Returns true if the status of `record` must be sent now, and counts it as reported. During a start it is held
    /// for a moment, unless the pod is `gone`.
    pub(super) fn tells(&mut self, status: &Value, record: &PodRecord, gone: bool, now: Mono) -> bool {
        if self.reported == *status {
            self.held = Hold::No;
            return false;
        }
        let first = self.reported.is_null();
        let limit = if first { FIRST_HOLD } else { HOLD };
        if !gone && is_starting(record, first) && self.held.holds(now, limit) {
            return false;
        }
        self.held = Hold::No;
        self.reported = status.clone();
        true
    }
}

/// Whether another status follows in a moment. Before the `first` one, what precedes the start counts, too.
fn is_starting(record: &PodRecord, first: bool) -> bool {
    let starting = record.containers.values().any(|container| match container.state {
        ContainerState::Starting { .. } => true,
        ContainerState::ImageReady { .. } | ContainerState::Pulling { .. } => first,
        _ => false,
    });
    starting || first && record.sandbox.state == SandboxState::Preparing
}

/// Whether to hold a status that another will soon replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    #[default]
    No,
    Until(Mono),
    /// It was held for long enough.
    Over,
}

impl Hold {
    /// Whether a status that could be sent now must wait, at most for `limit`.
    fn holds(&mut self, now: Mono, limit: Duration) -> bool {
        if *self == Self::No {
            *self = Self::Until(now.after(limit));
        }
        matches!(*self, Self::Until(at) if now < at)
    }
}

/// All of them, by uid, and which need attention.
#[derive(Default)]
pub(super) struct Pods {
    entries: VecMap<String, Box<Entry>>,
    /// Longest waiting first: whatever happens to the others of a burst, each pod gets its turn.
    dirty: VecDeque<String>,
}

impl Pods {
    pub(super) fn get(&self, uid: &str) -> Option<&Entry> {
        self.entries.get(uid).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, uid: &str) -> Option<&mut Entry> {
        self.entries.get_mut(uid).map(Box::as_mut)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter().map(|(uid, entry)| (uid, Box::as_ref(entry)))
    }

    /// Pods other than this one that have been admitted, until their containers have ended.
    pub(super) fn admitted(&self, but: &str) -> Vec<Admitted<'_>> {
        let others = self.iter().filter(|(uid, entry)| {
            let record = &entry.record;
            let runs = || record.containers.values().any(|container| container.state.process().is_some());
            *uid != but && record.admitted && (record.terminal.is_none() || runs())
        });
        others.map(|(_, entry)| (&*entry.pod, &entry.record)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of containers whose start has no answer yet.
    pub(super) fn starting(&self) -> usize {
        let containers = self.entries.values().flat_map(|entry| entry.record.containers.values());
        containers.filter(|container| matches!(container.state, ContainerState::Starting { .. })).count()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// Adds a pod and marks it for attention.
    pub(super) fn insert(&mut self, entry: Entry) {
        let uid = entry.record.uid.clone();
        self.entries.insert(uid.clone(), Box::new(entry));
        self.touch(&uid);
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Entry> {
        self.dirty.retain(|other| other != uid);
        self.entries.remove(uid).map(|entry| *entry)
    }

    pub(super) fn touch(&mut self, uid: &str) {
        if self.entries.contains_key(uid) && !self.dirty.iter().any(|other| other == uid) {
            self.dirty.push_back(uid.to_owned());
        }
    }

    /// Takes news about a pod into its record. Stored with the pod's next turn.
    pub(super) fn tell(&mut self, uid: &str, event: PodEvent, now: &Now) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        log::debug!("pod {}/{}: {event:?}", entry.record.namespace, entry.record.name);
        let before = entry.record.clone();
        entry.notes.extend(notice::about(&before, &event));
        entry.record = transition::apply(before.clone(), event, now);
        entry.unsaved |= entry.record != before;
        self.touch(uid);
    }

    /// The uids of those that `wanted` names, to go through while they change.
    pub(super) fn uids(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<String> {
        self.entries.iter().filter(|(_, entry)| wanted(entry)).map(|(uid, _)| uid.clone()).collect()
    }

    /// The pod that the API knows by this uid: a static pod by that of its mirror.
    pub(super) fn by_api_uid(&self, told: &str) -> Option<&str> {
        let is_it = |(uid, entry): &(&String, &Entry)| *uid == told || entry.mirror_uid.as_deref() == Some(told);
        self.iter().find(is_it).map(|(uid, _)| uid.as_str())
    }

    /// Pods whose resize waits for room look for it again.
    pub(super) fn touch_pending_resizes(&mut self) {
        for uid in self.uids(|entry| entry.record.resize_pending.is_some()) {
            self.touch(&uid);
        }
    }

    /// Takes one pod that needs attention.
    pub(super) fn next_dirty(&mut self) -> Option<String> {
        self.dirty.pop_front()
    }

    pub(super) fn any_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Marks pods whose time has passed; returns the next time.
    pub(super) fn wake_due(&mut self, now: Mono) -> Option<Mono> {
        let mut next: Option<Mono> = None;
        for (uid, entry) in self.entries.iter_mut() {
            let wake = entry.wake.take_if(|at| *at <= now).is_some();
            let told = matches!(entry.held, Hold::Until(at) if at <= now);
            if told {
                entry.held = Hold::Over;
            }
            if (wake || told) && !self.dirty.contains(uid) {
                self.dirty.push_back(uid.clone());
            }
            let held = if let Hold::Until(at) = entry.held { Some(at) } else { None };
            next = [next, entry.wake, held].into_iter().flatten().min();
        }
        next
    }

    pub(super) fn by_name(&self, namespace: &str, name: &str) -> Option<&Entry> {
        let found =
            self.entries.values().find(|entry| entry.record.namespace == namespace && entry.record.name == name);
        found.map(Box::as_ref)
    }
}

#[cfg(test)]
mod tests;
