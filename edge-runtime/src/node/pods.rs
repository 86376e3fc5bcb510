//! The pods of this node in memory: manifest, record and last report of each. Bookkeeping only; [`crate::pod`] decides
//! about pods.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

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
mod tests {
    use super::*;
    use crate::pod::record::PodSource;

    #[test]
    fn a_status_is_held_once() {
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        let mut pods = Pods::default();
        pods.insert(Entry::new(Rc::default(), PodRecord::new("a", "ns", "a", PodSource::Api, &now)));
        assert_eq!(pods.next_dirty().as_deref(), Some("a"));
        let entry = pods.get_mut("a").unwrap();
        assert!(entry.held.holds(Mono(0), HOLD));
        assert!(entry.held.holds(Mono(10), HOLD), "and not for longer with each look");
        assert_eq!(pods.wake_due(Mono(10)), Some(Mono(250)));
        assert_eq!((pods.next_dirty(), pods.wake_due(Mono(250))), (None, None));
        assert_eq!(pods.next_dirty().as_deref(), Some("a"));
        assert!(!pods.get_mut("a").unwrap().held.holds(Mono(250), HOLD), "it is due");
        assert_eq!((pods.wake_due(Mono(251)), pods.any_dirty()), (None, false), "and no turn follows by itself");
    }

    #[test]
    fn quick_start_is_reported_in_one_status() {
        use crate::pod::record::{ContainerKind, ContainerRecord};
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        let record = PodRecord::new("a", "ns", "a", PodSource::Api, &now);
        let with = |state: ContainerState| {
            let mut record = record.clone();
            record.sandbox.state = SandboxState::Ready { since: now.wall };
            let container = ContainerRecord { state, ..ContainerRecord::new(ContainerKind::App) };
            record.containers.insert("c".into(), container);
            record
        };
        let empty = String::new;
        let preparing = {
            let mut record = record.clone();
            record.sandbox.state = SandboxState::Preparing;
            record
        };
        let pulling = with(ContainerState::Pulling { reason: empty(), message: empty(), volume: None });
        let starting = with(ContainerState::Starting { id: "i".into(), reason: empty(), message: empty() });
        let running = with(ContainerState::Running { id: "i".into(), pid: 1, started_at: now.wall, since: now.mono });
        let mut entry = Entry::new(Rc::default(), record.clone());
        let mut tells = |n: i32, record: &PodRecord, at| entry.tells(&Value::from(n), record, false, Mono(at));
        let told = [tells(1, &preparing, 0), tells(2, &pulling, 1), tells(3, &starting, 2), tells(4, &running, 30)];
        assert_eq!(told, [false, false, false, true]);
        assert!(!tells(4, &running, 31), "it is told");
        assert!(tells(5, &pulling, 32), "a later pull is news");
        assert!(!tells(6, &starting, 40) && tells(6, &starting, 290), "a restart is held for less than a first start");
        let mut entry = Entry::new(Rc::default(), record.clone());
        let mut tells = |record: &PodRecord, at| entry.tells(&Value::from(1), record, false, Mono(at));
        assert!(!tells(&preparing, 0) && tells(&preparing, 1_000), "a start that takes long");
        let mut entry = Entry::new(Rc::default(), record.clone());
        assert!(entry.tells(&Value::from(1), &preparing, true, Mono(0)), "its end waits for nothing");
    }

    /// A burst of pods on a slow node: work for starting pods must not delay the first turn, and with it the first
    /// status, of the others.
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
            // The first two always have news.
            pods.touch("a");
            pods.touch("b");
        }
        seen.sort();
        assert_eq!(seen, ["a", "b", "c", "d"]);
        pods.remove("a");
        assert_eq!(pods.next_dirty().as_deref(), Some("b"));
        assert_eq!((pods.next_dirty(), pods.any_dirty()), (None, false));
    }

    fn entry(uid: &str) -> Entry {
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        Entry::new(Rc::default(), PodRecord::new(uid, "ns", uid, PodSource::Api, &now))
    }

    #[test]
    fn pod_wakes_at_its_time_and_once() {
        let mut pods = Pods::default();
        assert_eq!(pods.wake_due(Mono(0)), None);
        for (uid, wake) in [("a", Some(Mono(20))), ("b", Some(Mono(10))), ("c", None)] {
            pods.insert(Entry { wake, ..entry(uid) });
            pods.next_dirty();
        }
        assert_eq!((pods.wake_due(Mono(9)), pods.any_dirty()), (Some(Mono(10)), false));
        assert_eq!((pods.wake_due(Mono(10)), pods.next_dirty().as_deref()), (Some(Mono(20)), Some("b")));
        pods.touch("a");
        assert_eq!((pods.wake_due(Mono(30)), pods.next_dirty().as_deref()), (None, Some("a")));
        assert_eq!((pods.wake_due(Mono(40)), pods.any_dirty()), (None, false), "one turn for both reasons");
    }

    #[test]
    fn earlier_of_wake_and_held_status_counts() {
        let mut pods = Pods::default();
        pods.insert(Entry { wake: Some(Mono(50)), held: Hold::Until(Mono(20)), ..entry("a") });
        pods.next_dirty();
        assert_eq!(pods.wake_due(Mono(0)), Some(Mono(20)));
        assert_eq!((pods.wake_due(Mono(20)), pods.next_dirty().as_deref()), (Some(Mono(50)), Some("a")));
        assert_eq!(pods.get("a").map(|entry| entry.held), Some(Hold::Over));
    }

    #[test]
    fn news_of_unknown_pods_are_dropped() {
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        let mut pods = Pods::default();
        pods.tell("gone", PodEvent::DependencyChanged, &now);
        pods.touch("gone");
        assert!(!pods.any_dirty() && pods.remove("gone").is_none());
        pods.insert(entry("a"));
        (0..3).for_each(|_| pods.tell("a", PodEvent::DependencyChanged, &now));
        assert_eq!((pods.next_dirty().as_deref(), pods.any_dirty()), (Some("a"), false), "one turn for all of it");
    }

    #[test]
    fn unchanged_status_ends_the_hold() {
        let mut entry = Entry { reported: Value::from(1), held: Hold::Until(Mono(9)), ..entry("a") };
        let record = entry.record.clone();
        assert!(!entry.tells(&Value::from(1), &record, false, Mono(0)));
        assert_eq!(entry.held, Hold::No, "it has changed back");
        assert!(entry.tells(&Value::from(2), &record, false, Mono(0)), "nothing starts");
        assert_eq!(entry.reported, 2);
    }

    #[test]
    fn only_resizes_that_wait_look_for_room() {
        let mut pods = Pods::default();
        let mut waits = entry("waits");
        waits.record.resize_pending = Some(Refusal { reason: "Deferred".into(), message: String::new() });
        [waits, entry("other")].into_iter().for_each(|entry| pods.insert(entry));
        while pods.next_dirty().is_some() {}
        pods.touch_pending_resizes();
        assert_eq!((pods.next_dirty().as_deref(), pods.any_dirty()), (Some("waits"), false));
    }

    #[test]
    fn static_pod_is_found_by_the_uid_of_its_mirror() {
        let mut pods = Pods::default();
        pods.insert(Entry { mirror_uid: Some("m".into()), ..entry("a") });
        pods.insert(entry("b"));
        assert_eq!(["m", "a", "b", ""].map(|uid| pods.by_api_uid(uid)), [Some("a"), Some("a"), Some("b"), None]);
        assert!(pods.by_name("ns", "b").is_some() && pods.by_name("other", "b").is_none());
    }
}
