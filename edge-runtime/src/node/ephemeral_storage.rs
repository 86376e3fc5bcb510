//! Disk that pods hold: has it measured by the helper, and ends pods that outgrew their limits.

use super::Node;
use super::eviction::{AGAIN, may_go};
use super::pods::Entry;
use super::sources::News;
use crate::eviction::cadence::Cadence;
use crate::eviction::limits::{DiskUsage, exceeded, has_limits};
use crate::eviction::walk::{self, Answers, Question};
use crate::pod::clock::Mono;
use crate::store::StoreError;

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

impl Node {
    pub(super) fn walk_limited_pods(&mut self, now: Mono) {
        if self.resumed && self.ephemeral_storage.cadence.is_due(now) {
            self.walk(Purpose::Limits, now, |entry| has_limits(&entry.pod));
        }
    }

    pub(super) fn walk_all_pods(&mut self) {
        let now = self.mono();
        self.walk(Purpose::Shortage, now, |_| true);
    }

    fn walk(&mut self, purpose: Purpose, now: Mono, wanted: impl Fn(&Entry) -> bool) {
        if self.ephemeral_storage.walking.is_some() {
            return;
        }
        let pods = self.pods.iter().filter(|(_, entry)| entry.record.terminal.is_none() && wanted(entry));
        let question = |(uid, entry): (&String, &Entry)| {
            let record = &entry.record;
            Question { uid: uid.clone(), logs: self.paths.pod_logs(&record.namespace, &record.name, &record.uid) }
        };
        let questions: Vec<Question> = pods.map(question).collect();
        if questions.is_empty() {
            return;
        }
        self.ephemeral_storage.walking = Some((purpose, now));
        let (paths, news) = (self.paths.clone(), self.senders.news.clone());
        self.executor
            .spawn(async move {
                let result = walk::ask(&paths, &questions).await.map_err(|error| error.to_string());
                let _ = news.send(News::Walked(result)).await;
            })
            .detach();
    }

    pub(super) fn walked(&mut self, result: Result<Answers, String>) -> Result<(), StoreError> {
        let Some((purpose, began)) = self.ephemeral_storage.walking.take() else { return Ok(()) };
        let now = self.mono();
        let answers = result.unwrap_or_else(|error| {
            log::error!("pods' disk use cannot be measured: {error}");
            Answers::new()
        });
        self.evict_beyond_limits(&answers, now);
        match purpose {
            Purpose::Limits => self.ephemeral_storage.cadence.walked(answers, began, now),
            Purpose::Shortage => {
                self.evict_for_disk(&answers, now)?;
                self.node_status.look_again(now.after(AGAIN));
            }
        }
        Ok(())
    }

    fn evict_beyond_limits(&mut self, answers: &Answers, now: Mono) {
        let separate = self.separate_images();
        let over = |(uid, used): (&String, &DiskUsage)| {
            let entry = self.pods.get(uid).filter(|entry| may_go(entry))?;
            exceeded(&entry.pod, used, separate).map(|message| (uid.clone(), message))
        };
        let over: Vec<(String, String)> = answers.iter().filter_map(over).collect();
        for (uid, message) in over {
            // Its own doing, so not a disruption.
            self.evict(&uid, message, false, now);
        }
    }

    /// A pod came or went, or one of its containers started.
    pub(super) fn storage_changed(&mut self) {
        self.ephemeral_storage.cadence.changed();
    }
}
