//! A Job, its pods, and its progress: the input of all its decisions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{JobCondition, JobSpec, JobStatus};

use super::indexes::Indexes;
use super::marks::{failures_of_index, index, is_tracked};
use super::policy::{self, Verdict};
use crate::workloads::batch::Job;
use crate::workloads::now::Now;
use crate::workloads::plan::Teller;
use crate::workloads::pod::Pod;
use crate::workloads::store::uid;
use crate::workloads::template::Template;
use crate::workloads::world::Kind;

const COMPONENT: &str = "job-controller";

pub(super) struct Context<'a> {
    pub(super) job: &'a Job,
    pub(super) spec: &'a JobSpec,
    /// The template, once it is read.
    pub(super) template: Option<&'a Template>,
    pub(super) status: JobStatus,
    pub(super) pods: Vec<&'a Pod>,
    pub(super) now: Now,
    /// The uids of pods that the status names as ended and has not counted.
    uncounted: (BTreeSet<String>, BTreeSet<String>),
}

/// Progress of a Job: the counts of its status, and pods that are not counted yet.
pub(super) struct Progress<'a> {
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// Indexed Job: the indexes that the status names, those that have succeeded, and those that have failed.
    pub(super) told: Indexes,
    pub(super) indexes: Indexes,
    pub(super) failed_indexes: Option<Indexes>,
    /// The last failed pod of each index that will get another one: it stays until then, because it has the number of
    /// failures.
    pub(super) last: BTreeMap<i32, &'a Pod>,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        (job, spec): (&'a Job, &'a JobSpec),
        template: Option<&'a Template>,
        pods: Vec<&'a Pod>,
        now: Now,
    ) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let lists = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let set = |list: Option<Vec<String>>| list.unwrap_or_default().into_iter().collect();
        let uncounted = (set(lists.succeeded), set(lists.failed));
        let mut context = Self { job, spec, template, status, pods, now, uncounted };
        if context.is_indexed() {
            // So that indexes are counted in their order.
            let mut pods = std::mem::take(&mut context.pods);
            pods.sort_by_key(|pod| index(pod));
            context.pods = pods;
        }
        context
    }

    pub(super) fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn parallelism(&self) -> i32 {
        self.spec.parallelism.unwrap_or(1)
    }

    /// Number of required successes; always set for an Indexed Job.
    pub(super) fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or_default()
    }

    pub(super) fn backoff_limit(&self) -> i32 {
        self.spec.backoff_limit.unwrap_or(if self.spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 })
    }

    /// A pod is replaced once it has ended, not when it begins to (K8s `onlyReplaceFailedPods`).
    pub(super) fn replaces_ended_only(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some()
    }

    pub(super) fn is_failed(&self, pod: &Pod) -> bool {
        let ends = pod.is_deleting() && pod.phase() != "Succeeded";
        pod.phase() == "Failed" || (ends && !self.replaces_ended_only())
    }

    pub(super) fn active(&self) -> Vec<&'a Pod> {
        self.pods.iter().copied().filter(|pod| pod.is_active()).collect()
    }

    pub(super) fn terminating(&self) -> i32 {
        number(self.pods.iter().filter(|pod| pod.is_terminating()).count())
    }

    /// The index of a pod, if it is one that the Job has.
    pub(super) fn index(&self, pod: &Pod) -> Option<i32> {
        index(pod).filter(|index| *index < self.completions())
    }

    /// It is one that may count: of an Indexed Job only with an index.
    pub(super) fn may_count(&self, pod: &Pod) -> bool {
        !self.is_indexed() || self.index(pod).is_some()
    }

    pub(super) fn is_uncounted_success(&self, pod: &Pod) -> bool {
        self.uncounted.0.contains(uid(&pod.metadata))
    }

    pub(super) fn is_uncounted_failure(&self, pod: &Pod) -> bool {
        self.uncounted.1.contains(uid(&pod.metadata))
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&JobCondition> {
        self.status.conditions.iter().flatten().find(|one| one.type_ == kind)
    }

    pub(super) fn teller(&self) -> Teller {
        Teller::new(COMPONENT, Kind::Job, &self.job.metadata)
    }

    pub(super) fn progress(&self) -> Progress<'a> {
        // A pod without the finalizer has been counted, or is named as uncounted.
        let new = || self.pods.iter().copied().filter(|pod| is_tracked(pod) && self.may_count(pod));
        let counts = |pod: &Pod| policy::of_failed(self.spec, pod) != Verdict::Ignored;
        let succeeded = new().filter(|pod| !self.is_uncounted_success(pod) && pod.phase() == "Succeeded").count();
        let failed = new().filter(|pod| !self.is_uncounted_failure(pod) && self.is_failed(pod) && counts(pod)).count();
        let counted = |count: Option<i32>, uncounted: &BTreeSet<String>| {
            count.unwrap_or_default().saturating_add(number(uncounted.len()))
        };
        let mut progress = Progress {
            succeeded: counted(self.status.succeeded, &self.uncounted.0).saturating_add(number(succeeded)),
            failed: counted(self.status.failed, &self.uncounted.1).saturating_add(number(failed)),
            told: Indexes::default(),
            indexes: Indexes::default(),
            failed_indexes: None,
            last: BTreeMap::new(),
        };
        if self.is_indexed() {
            let read = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), self.completions());
            let ended = new().filter(|pod| pod.phase() == "Succeeded");
            progress.told = read(&self.status.completed_indexes);
            progress.indexes = progress.told.with(ended.filter_map(|pod| self.index(pod)));
            progress.succeeded = progress.indexes.total();
            if let Some(limit) = self.spec.backoff_limit_per_index {
                let failed = new().filter(|pod| self.fails_index(pod, limit)).filter_map(|pod| self.index(pod));
                let failed = read(&self.status.failed_indexes).with(failed);
                progress.last = self.last_failures(&progress.indexes, &failed);
                progress.failed_indexes = Some(failed);
            }
        }
        progress
    }

    fn fails_index(&self, pod: &Pod, limit: i32) -> bool {
        self.is_failed(pod)
            && match policy::of_failed(self.spec, pod) {
                Verdict::FailsIndex => true,
                Verdict::Ignored => false,
                Verdict::Counts | Verdict::FailsJob(_) => failures_of_index(pod).counted >= limit,
            }
    }

    /// K8s `getPodsWithDelayedDeletionPerIndex`.
    fn last_failures(&self, succeeded: &Indexes, failed: &Indexes) -> BTreeMap<i32, &'a Pod> {
        let active: BTreeSet<i32> = self.active().into_iter().filter_map(index).collect();
        let mut last: BTreeMap<i32, &'a Pod> = BTreeMap::new();
        for pod in self.pods.iter().copied().filter(|pod| is_tracked(pod) && self.is_failed(pod)) {
            let Some(index) = self.index(pod) else { continue };
            if succeeded.has(index) || failed.has(index) || active.contains(&index) {
                continue;
            }
            let rank = |pod: &Pod| (failures_of_index(pod).all(), Reverse(pod.ended_for(self.now)));
            let before = last.entry(index).or_insert(pod);
            if rank(before).0 <= rank(pod).0 && rank(before).1 <= rank(pod).1 {
                *before = pod;
            }
        }
        last
    }
}

pub(super) fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
