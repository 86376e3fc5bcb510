//! Counts the pods of a Job that ended, each once, whatever is killed in between (K8s pkg/controller/job/job_controller.go
//! `trackJobStatusAndRemoveFinalizers`): a pod keeps a finalizer until the status names it, and the status names it until
//! it has lost the finalizer. Only then it is counted.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};

use super::context::{Context, Progress, number};
use super::finish::Finish;
use super::indexes::Indexes;
use super::marks::is_tracked;
use super::policy::{self, Verdict};
use crate::workloads::pod::Pod;
use crate::workloads::store::uid;

/// Maximum number of pods that the status names, to stay small (K8s `MaxUncountedPods`).
const UNCOUNTED_MAX: usize = 500;

pub(super) struct Tracked<'a> {
    /// The status with the ended pods.
    pub(super) status: JobStatus,
    /// The pods that lose their finalizer once the status is written.
    pub(super) counted: Vec<&'a Pod>,
    /// Nothing waits to be counted.
    pub(super) is_all: bool,
}

pub(super) fn track<'a>(context: &Context<'a>, progress: &Progress<'_>, finish: Option<&Finish>) -> Tracked<'a> {
    let mut status = context.status.clone();
    let mut lists = status.uncounted_terminated_pods.take().unwrap_or_default();
    let tracked: BTreeSet<&str> =
        context.pods.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(&pod.metadata)).collect();
    count(&mut lists.succeeded, &mut status.succeeded, &tracked);
    count(&mut lists.failed, &mut status.failed, &tracked);

    let mut indexes = BTreeSet::new();
    let mut counted = Vec::new();
    let mut is_all = true;
    for &pod in context.pods.iter().filter(|pod| is_tracked(pod)) {
        if !is_over(context, progress, finish, pod) {
            continue;
        }
        let has_room = indexes.len() + len(&lists) < UNCOUNTED_MAX;
        match news(context, progress, finish, pod) {
            None => counted.push(pod),
            Some(_) if !has_room => is_all = false,
            Some(News::Index(index)) => drop(indexes.insert(index)),
            Some(News::Succeeded) => lists.succeeded.get_or_insert_default().push(uid(&pod.metadata).to_owned()),
            Some(News::Failed) => lists.failed.get_or_insert_default().push(uid(&pod.metadata).to_owned()),
        }
    }
    if context.is_indexed() {
        let succeeded = progress.told.with(indexes);
        status.succeeded = filled(succeeded.total());
        status.completed_indexes = Some(succeeded.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = progress.failed_indexes.as_ref().map(Indexes::to_string);
    }
    is_all &= len(&lists) == 0 && counted.is_empty();
    status.uncounted_terminated_pods = Some(lists);
    Tracked { status, counted, is_all }
}

/// What the status must count of an ended pod.
enum News {
    Index(i32),
    Succeeded,
    Failed,
}

/// `None` if the status has counted it, or need not.
fn news(context: &Context<'_>, progress: &Progress<'_>, finish: Option<&Finish>, pod: &Pod) -> Option<News> {
    if pod.phase() == "Succeeded" && !context.is_uncounted_failure(pod) {
        return if context.is_indexed() {
            context.index(pod).filter(|index| !progress.told.has(*index)).map(News::Index)
        } else {
            (!context.is_uncounted_success(pod)).then_some(News::Succeeded)
        };
    }
    let is_failed = match finish {
        Some(finish) if !finish.succeeds => true,
        // Enough have succeeded: pods that are ended for that reason have not failed.
        Some(_) => pod.phase() == "Failed",
        None => context.is_failed(pod),
    };
    let counts = is_failed && context.may_count(pod) && !context.is_uncounted_failure(pod);
    (counts && policy::of_failed(context.spec, pod) != Verdict::Ignored).then_some(News::Failed)
}

/// The pod needs no more counting, so that it may lose its finalizer (K8s `canRemoveFinalizer`).
fn is_over(context: &Context<'_>, progress: &Progress<'_>, finish: Option<&Finish>, pod: &Pod) -> bool {
    if context.is_deleting() || pod.phase() == "Succeeded" {
        return true;
    }
    if finish.is_some() {
        return !pod.is_active();
    }
    let waits = |index: i32| progress.last.get(&index).is_some_and(|last| std::ptr::eq(*last, pod));
    context.is_failed(pod) && !context.index(pod).is_some_and(waits)
}

/// Counts those of a list that have lost their finalizer.
fn count(list: &mut Option<Vec<String>>, counter: &mut Option<i32>, tracked: &BTreeSet<&str>) {
    let Some(uids) = list else { return };
    let before = uids.len();
    uids.retain(|uid| tracked.contains(uid.as_str()));
    *counter = filled(counter.unwrap_or_default().saturating_add(number(before - uids.len())));
    if uids.is_empty() {
        *list = None;
    }
}

fn len(lists: &UncountedTerminatedPods) -> usize {
    lists.succeeded.iter().chain(&lists.failed).map(Vec::len).sum()
}

/// A count; zero is left out, as Kubernetes does.
pub(super) fn filled(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
