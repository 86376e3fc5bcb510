//! Disk that pods hold: has it measured by the helper, and ends pods that outgrew their limits.

use std::time::Duration;

use super::context::Context;
use super::eviction::may_go;
use super::pods::{Entry, Pods};
use super::sources::News;
use crate::eviction::cadence::Cadence;
use crate::eviction::limits::{self, DiskUsage, exceeded, has_limits};
use crate::eviction::walk::{self, Answers, Question};
use crate::pod::clock::Mono;

/// What for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Pods with limits of their own.
    Limits,
    /// The node is short of disk: every pod.
    Shortage,
}

/// At most one walk at a time. One for a shortage takes the place of one for limits.
#[derive(Default)]
pub(super) struct EphemeralStorage {
    cadence: Cadence,
    walks: u64,
    walking: Option<Walking>,
}

/// A helper at work; ends it when dropped.
struct Walking {
    purpose: Purpose,
    began: Mono,
    /// Answers of a walk with another number are outdated.
    number: u64,
    _task: smol::Task<()>,
}

impl EphemeralStorage {
    pub(super) fn walk_limited_pods(&mut self, cx: &Context, now: Mono) {
        if cx.resumed && self.cadence.is_due(now) {
            self.walk(cx, Purpose::Limits, now, |entry| has_limits(&entry.pod));
        }
    }

    pub(super) fn walk_all_pods(&mut self, cx: &Context) {
        self.walk(cx, Purpose::Shortage, cx.mono(), |_| true);
    }

    fn walk(&mut self, cx: &Context, purpose: Purpose, now: Mono, wanted: impl Fn(&Entry) -> bool) {
        if self.walking.as_ref().is_some_and(|walking| !purpose.takes_over(walking.purpose)) {
            return;
        }
        let pods = cx.pods.iter().filter(|(_, entry)| entry.record.terminal.is_none() && wanted(entry));
        let questions: Vec<Question> = pods.map(|(_, entry)| question(cx, entry, purpose.patience(), false)).collect();
        if questions.is_empty() {
            return;
        }
        self.walks += 1;
        let (number, paths) = (self.walks, cx.paths.clone());
        let task = cx.task(async move { News::Walked(number, walk::ask(&paths, &questions).await) });
        self.walking = Some(Walking { purpose, began: now, number, _task: task });
    }

    /// Returns the purpose of a walk, if its answers are still wanted.
    pub(super) fn walked(&mut self, number: u64, answers: &Answers, now: Mono) -> Option<Purpose> {
        let Walking { purpose, began, .. } = self.walking.take_if(|walking| walking.number == number)?;
        if purpose == Purpose::Limits {
            self.cadence.walked(answers.clone(), began, now);
        }
        Some(purpose)
    }

    /// A pod was added or removed, or one of its containers started.
    pub(super) fn changed(&mut self) {
        self.cadence.changed();
    }
}

impl Purpose {
    fn takes_over(self, other: Self) -> bool {
        self == Self::Shortage && other == Self::Limits
    }

    fn patience(self) -> Duration {
        match self {
            Self::Limits => limits::LONGEST,
            Self::Shortage => walk::LONGEST_IN_SHORTAGE,
        }
    }
}

/// Asks for one pod's disk use.
pub(super) fn question(cx: &Context, entry: &Entry, patience: Duration, elsewhere: bool) -> Question {
    let record = &entry.record;
    let logs = cx.paths.pod_logs(&record.namespace, &record.name, &record.uid);
    Question { uid: record.uid.clone(), logs, elsewhere, patience }
}

/// Returns pods that exceed their limits, and the message of each.
pub(super) fn beyond_limits(pods: &Pods, answers: &Answers, separate_images: bool) -> Vec<(String, String)> {
    let over = |(uid, used): (&String, &DiskUsage)| {
        let entry = pods.get(uid).filter(|entry| may_go(entry))?;
        exceeded(&entry.pod, used, separate_images).map(|message| (uid.clone(), message))
    };
    answers.iter().filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use serde_json::{Value, json};

    use super::*;
    use crate::eviction::limits::Used;
    use crate::pod::clock::Now;
    use crate::pod::record::{PodRecord, PodSource};
    use crate::sys::tasks::Tasks;

    fn walking(tasks: &Tasks, purpose: Purpose, number: u64) -> Walking {
        Walking { purpose, began: Mono(0), number, _task: tasks.spawn(async {}) }
    }

    #[test]
    fn only_a_shortage_takes_the_place_of_another_walk() {
        let [limits, shortage] = [Purpose::Limits, Purpose::Shortage];
        assert!(shortage.takes_over(limits));
        assert!(!limits.takes_over(limits) && !limits.takes_over(shortage) && !shortage.takes_over(shortage));
        assert!(shortage.patience() < limits.patience());
    }

    #[test]
    fn answers_of_an_earlier_walk_are_outdated() {
        let tasks = Tasks::default();
        let mut storage = EphemeralStorage { walking: Some(walking(&tasks, Purpose::Limits, 7)), ..Default::default() };
        assert_eq!(storage.walked(6, &Answers::new(), Mono(10_000)), None);
        assert!(storage.walking.is_some() && storage.cadence.is_due(Mono(10_000)), "the walk goes on");
        assert_eq!(storage.walked(7, &Answers::new(), Mono(10_000)), Some(Purpose::Limits));
        assert_eq!(storage.walked(7, &Answers::new(), Mono(10_000)), None, "once");
        assert!(!storage.cadence.is_due(Mono(10_001)));
        storage.changed();
        assert!(storage.cadence.is_due(Mono(10_001)), "a new pod is measured at once");
    }

    #[test]
    fn walk_for_a_shortage_does_not_put_off_the_next_one_for_limits() {
        let tasks = Tasks::default();
        let mut storage =
            EphemeralStorage { walking: Some(walking(&tasks, Purpose::Shortage, 1)), ..Default::default() };
        assert_eq!(storage.walked(1, &Answers::new(), Mono(60_000)), Some(Purpose::Shortage));
        assert!(storage.walking.is_none() && storage.cadence.is_due(Mono(60_000)));
    }

    #[test]
    fn only_pods_beyond_their_limits_go() {
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        let limited = json!({"containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "100"}}}]});
        let mut pods = Pods::default();
        let mut add = |uid: &str, source, spec: &Value| {
            let pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            pods.insert(Entry::new(Rc::new(pod), PodRecord::new(uid, "ns", uid, source, &now)));
        };
        ["within", "beyond"].iter().for_each(|uid| add(uid, PodSource::Api, &limited));
        add("static", PodSource::Static, &limited);
        add("unlimited", PodSource::Api, &json!({"containers": [{"name": "c"}]}));
        let holds = |uid: &str, bytes| {
            let layers = [("c".to_owned(), Used { bytes, inodes: 1 })].into();
            (uid.to_owned(), DiskUsage { layers, ..DiskUsage::default() })
        };
        let answers = Answers::from([
            holds("within", 100),
            holds("beyond", 101),
            holds("static", 101),
            holds("unlimited", 101),
            holds("gone since", 101),
        ]);
        let found = beyond_limits(&pods, &answers, false);
        assert_eq!(found.iter().map(|(uid, _)| uid.as_str()).collect::<Vec<_>>(), ["beyond"]);
        assert!(beyond_limits(&pods, &Answers::new(), false).is_empty());
    }
}
