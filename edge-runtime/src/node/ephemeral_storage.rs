//! Disk that pods hold: has it measured by the helper, and ends pods that outgrew their limits.

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

/// At most one walk at a time.
#[derive(Default)]
pub(super) struct EphemeralStorage {
    cadence: Cadence,
    walking: Option<(Purpose, Mono)>,
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
        if self.walking.is_some() {
            return;
        }
        let pods = cx.pods.iter().filter(|(_, entry)| entry.record.terminal.is_none() && wanted(entry));
        let question = |(uid, entry): (&String, &Entry)| {
            let record = &entry.record;
            Question { uid: uid.clone(), logs: cx.paths.pod_logs(&record.namespace, &record.name, &record.uid) }
        };
        let questions: Vec<Question> = pods.map(question).collect();
        if questions.is_empty() {
            return;
        }
        self.walking = Some((purpose, now));
        let paths = cx.paths.clone();
        cx.background(
            async move { News::Walked(walk::ask(&paths, &questions).await.map_err(|error| error.to_string())) },
        );
    }

    /// Gives the answers, and what they were asked for; none if nothing was.
    pub(super) fn walked(&mut self, cx: &Context, result: Result<Answers, String>) -> Option<(Purpose, Answers)> {
        let (purpose, began) = self.walking.take()?;
        let answers = result.unwrap_or_else(|error| {
            log::error!("pods' disk use cannot be measured: {error}");
            Answers::new()
        });
        if purpose == Purpose::Limits {
            self.cadence.walked(answers.clone(), began, cx.mono());
        }
        Some((purpose, answers))
    }

    /// A pod came or went, or one of its containers started.
    pub(super) fn changed(&mut self) {
        self.cadence.changed();
    }
}

/// Pods that hold more than their limits allow, and how that is told.
pub(super) fn beyond_limits(pods: &Pods, answers: &Answers, separate_images: bool) -> Vec<(String, String)> {
    let over = |(uid, used): (&String, &DiskUsage)| {
        let entry = pods.get(uid).filter(|entry| may_go(entry))?;
        exceeded(&entry.pod, used, separate_images).map(|message| (uid.clone(), message))
    };
    answers.iter().filter_map(over).collect()
}
