//! Disk that pods hold: has it measured by the helper, and ends pods that outgrew their limits.

use std::time::Duration;

use super::context::Context;
use super::eviction::may_go;
use super::pods::{Entry, Pods};
use super::sources::News;
use crate::eviction::cadence::Cadence;
use crate::eviction::limits::{DiskUsage, exceeded, has_limits};
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
            Self::Limits => walk::LONGEST,
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
