//! From events of the watches of jobs to changes: one list of all kinds at first, then single jobs, and lists of one kind
//! that is read again. Pure.

use kube::runtime::watcher::Event;

use super::view::{Job, JobObject, Kind};

/// A change of the known jobs.
#[derive(Debug, PartialEq)]
pub(super) enum Update {
    /// All jobs of all kinds: the first list of each kind has been read.
    All(Vec<Job>),
    /// All jobs of one kind.
    Kind(Kind, Vec<Job>),
    Set(Job),
    Remove(Box<str>),
}

/// The lists that are being read.
pub(super) struct Reading {
    /// Kinds without a complete list.
    unread: Vec<Kind>,
    /// Jobs of all first lists so far.
    listing: Vec<Job>,
    /// Kinds whose list is being read again, and the jobs of that list so far.
    again: Vec<(Kind, Vec<Job>)>,
}

impl Reading {
    /// `served`: the kinds to read.
    pub(super) fn new(served: &[Kind]) -> Self {
        Self { unread: served.to_vec(), listing: Vec::new(), again: Vec::new() }
    }

    /// Whether every kind has been listed once.
    pub(super) fn is_whole(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) fn take(&mut self, kind: Kind, event: Event<JobObject>) -> Option<Update> {
        let first = self.unread.contains(&kind);
        match event {
            Event::Init if first => self.listing.retain(|job| job.kind != kind),
            Event::InitApply(object) if first => self.listing.extend(read(kind, &object)),
            Event::InitDone if first => {
                self.unread.retain(|one| *one != kind);
                return self.is_whole().then(|| Update::All(std::mem::take(&mut self.listing)));
            }
            Event::Init => {
                self.again.retain(|(one, _)| *one != kind);
                self.again.push((kind, Vec::new()));
            }
            Event::InitApply(object) => {
                let of_kind = self.again.iter_mut().find(|(one, _)| *one == kind);
                of_kind.into_iter().for_each(|(_, all)| all.extend(read(kind, &object)));
            }
            Event::InitDone => {
                let at = self.again.iter().position(|(one, _)| *one == kind);
                let all = at.map(|at| self.again.swap_remove(at).1);
                return Some(Update::Kind(kind, all.unwrap_or_default()));
            }
            Event::Apply(object) => {
                let (uid, job) = (uid(&object), read(kind, &object));
                if self.is_whole() {
                    return Some(job.map_or(Update::Remove(uid), Update::Set));
                }
                // Another kind is still being listed, and all are told together.
                self.listing.retain(|job| job.uid != uid);
                self.listing.extend(job);
            }
            Event::Delete(object) => {
                let uid = uid(&object);
                self.listing.retain(|job| job.uid != uid);
                return Some(Update::Remove(uid));
            }
        }
        None
    }
}

fn uid(object: &JobObject) -> Box<str> {
    object.metadata.uid.as_deref().unwrap_or_default().into()
}

/// `None` for a job that is being deleted or is malformed.
fn read(kind: Kind, object: &JobObject) -> Option<Job> {
    let job = Job::of(kind, object);
    if job.is_none() && object.metadata.deletion_timestamp.is_none() {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        log::warn!("{} {name}: its status is nonsense, nothing is done", kind.name());
    }
    job
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(uid: &str) -> JobObject {
        serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid, "resourceVersion": "1"}})).unwrap()
    }

    fn going(uid: &str) -> JobObject {
        let metadata =
            json!({"name": uid, "uid": uid, "resourceVersion": "2", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    /// A change in short words.
    fn words(change: Option<Update>) -> String {
        let uids = |all: Vec<Job>| all.iter().map(|job| &*job.uid).collect::<Vec<_>>().join(" ");
        match change {
            None => String::new(),
            Some(Update::All(all)) => format!("all {}", uids(all)),
            Some(Update::Kind(kind, all)) => format!("{} {}", kind.name(), uids(all)),
            Some(Update::Set(job)) => format!("set {}", job.uid),
            Some(Update::Remove(uid)) => format!("remove {uid}"),
        }
    }

    #[test]
    fn all_kinds_are_told_together_once_each_is_listed() {
        let mut reading = Reading::new(&[Kind::Upgrade, Kind::PrePull]);
        let mut take = |kind, event| words(reading.take(kind, event));
        for event in [Event::Init, Event::InitApply(object("a")), Event::InitApply(object("b")), Event::InitDone] {
            assert_eq!(take(Kind::Upgrade, event), "");
        }
        // The watch of one kind goes on while the other is being listed.
        assert_eq!(take(Kind::Upgrade, Event::Apply(object("c"))), "");
        assert_eq!(take(Kind::Upgrade, Event::Apply(going("a"))), "");
        assert_eq!(take(Kind::Upgrade, Event::Delete(object("b"))), "remove b");
        for event in [Event::Init, Event::InitApply(object("p")), Event::Init, Event::InitApply(object("q"))] {
            assert_eq!(take(Kind::PrePull, event), "");
        }
        assert_eq!(take(Kind::PrePull, Event::InitDone), "all c q", "a list that broke off does not count");
        assert_eq!(take(Kind::Upgrade, Event::Apply(object("d"))), "set d");
        assert_eq!(take(Kind::Upgrade, Event::Apply(going("d"))), "remove d");
        assert!(reading.is_whole());
    }

    #[test]
    fn kind_that_is_read_again_is_told_alone() {
        let mut reading = Reading::new(&[Kind::Upgrade]);
        let mut take = |event| words(reading.take(Kind::Upgrade, event));
        assert_eq!(take(Event::InitDone), "all ");
        for event in [Event::Init, Event::InitApply(object("a")), Event::Init, Event::InitApply(object("b"))] {
            assert_eq!(take(event), "");
        }
        assert_eq!(take(Event::InitDone), "NodeUpgradeJob b");
    }
}
