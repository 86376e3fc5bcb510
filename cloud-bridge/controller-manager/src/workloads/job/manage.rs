//! The pods of an unfinished Job to create or delete (K8s pkg/controller/job/job_controller.go `manageJob`).

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::{Context, Progress, number};
use super::marks::{index, is_tracked, untrack_active};
use super::{backoff, pods};
use crate::workloads::plan::{Plan, WRITES};
use crate::workloads::pod::Pod;
use crate::workloads::replica_set::victims;

/// A wait that is shorter is as long as this one.
const SHORTEST: Duration = Duration::from_secs(1);

/// The next step towards the wanted number of active pods.
pub(super) fn step(context: &Context<'_>, progress: &Progress<'_>) -> Plan {
    let active = context.active();
    // For pods that must not count, the finalizer is removed first; then they are deleted. In between they still have
    // to be ended.
    let left: Vec<&Pod> = active.iter().copied().filter(|pod| !is_tracked(pod)).collect();
    if !left.is_empty() {
        return delete(context, &left);
    }
    let wanted = wanted(context, progress, number(active.len()));
    let going = surplus(context, &active, usize::try_from(wanted).unwrap_or_default());
    if !going.is_empty() {
        return Plan::all_at_once(going.into_iter().take(WRITES).map(untrack_active).collect());
    }
    let held = if context.replaces_ended_only() { context.terminating() } else { 0 };
    let missing = usize::try_from(wanted - held - number(active.len())).unwrap_or_default().min(WRITES);
    if missing == 0 {
        return Plan::default();
    }
    if context.spec.backoff_limit_per_index.is_some() {
        return of_free_indexes(context, progress, missing);
    }
    let wait = backoff::remaining(context);
    if !wait.is_zero() {
        return Plan::default().again(Some(wait.max(SHORTEST)));
    }
    Plan::slow_start(if context.is_indexed() {
        pods::create_indexed(context, progress, &pending(context, progress, missing))
    } else {
        pods::create(context, missing)
    })
}

/// Deletes pods.
pub(super) fn delete(context: &Context<'_>, pods: &[&Pod]) -> Plan {
    let teller = context.teller();
    Plan::all_at_once(pods.iter().take(WRITES).map(|pod| teller.delete_pod(&pod.metadata)).collect())
}

fn wanted(context: &Context<'_>, progress: &Progress<'_>, active: i32) -> i32 {
    if context.is_suspended() {
        return 0;
    }
    match context.spec.completions {
        Some(completions) => (completions - progress.succeeded).clamp(0, context.parallelism().max(0)),
        // After the first success those that run may go on.
        None if progress.succeeded > 0 => active,
        None => context.parallelism(),
    }
}

/// The pods that are too many: of an Indexed Job also those without a place, and all but one of an index.
fn surplus<'a>(context: &Context<'_>, active: &[&'a Pod], wanted: usize) -> Vec<&'a Pod> {
    let choose = |pods: &[&'a Pod], count| victims::choose(pods, &[], count, context.now);
    let at_least = active.len().saturating_sub(wanted);
    let (mut going, mut staying) = (Vec::new(), active.to_vec());
    if context.is_indexed() {
        let mut indexes: BTreeMap<Option<i32>, Vec<&Pod>> = BTreeMap::new();
        for pod in staying.drain(..) {
            indexes.entry(context.index(pod)).or_default().push(pod);
        }
        for (index, pods) in indexes {
            let too_many = choose(&pods, pods.len() - usize::from(index.is_some()));
            let stays = |pod: &&Pod| too_many.iter().all(|one| !std::ptr::eq(*one, *pod));
            staying.extend(pods.iter().copied().filter(stays));
            going.extend(too_many);
        }
    }
    let more = at_least.saturating_sub(going.len());
    going.extend(choose(&staying, more));
    going
}

/// The first indexes that are to have a pod.
fn pending(context: &Context<'_>, progress: &Progress<'_>, count: usize) -> Vec<i32> {
    let held = |pod: &&&Pod| pod.is_active() || (context.replaces_ended_only() && pod.is_terminating());
    let taken = progress.indexes.with(context.pods.iter().filter(held).filter_map(|pod| index(pod)));
    let taken = progress.failed_indexes.as_ref().map_or(taken.clone(), |failed| taken.and(failed));
    taken.missing(count, context.completions())
}

/// Creates the pods of indexes with their own back-off.
fn of_free_indexes(context: &Context<'_>, progress: &Progress<'_>, count: usize) -> Plan {
    let wait = |index: &i32| backoff::remaining_of_index(context, progress.last.get(index).copied());
    let (free, waiting): (Vec<i32>, Vec<i32>) =
        pending(context, progress, count).into_iter().partition(|index| wait(index).is_zero());
    let next = waiting.iter().map(wait).min().map(|wait| wait.max(SHORTEST));
    Plan::slow_start(pods::create_indexed(context, progress, &free)).again(next)
}
