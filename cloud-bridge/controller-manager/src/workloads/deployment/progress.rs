//! Whether a roll-out comes along: the condition `Progressing` and its deadline (K8s pkg/controller/deployment/progress.go).

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSetCondition};

use super::context::Context;
use super::status::{condition, counted, find, remove_condition, set_condition};
use crate::workloads::plan::Failure;
use crate::workloads::templated::ReplicaSet;
use crate::workloads::world::Kind;

const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

fn reason(status: &DeploymentStatus) -> Option<&str> {
    find(status, PROGRESSING)?.reason.as_deref()
}

/// The status with this progress condition, if progress has a deadline.
fn with(context: &Context<'_>, value: &str, reason: &str, message: String) -> Option<DeploymentStatus> {
    context.deadline()?;
    let mut status = context.status.clone();
    set_condition(&mut status, condition(context, PROGRESSING, value, reason, message));
    Some(status)
}

/// The status that announces a pause or its end, if it does not yet: time in a pause does not count as a lack of
/// progress.
pub(super) fn paused(context: &Context<'_>) -> Option<DeploymentStatus> {
    let reason = reason(&context.status);
    match (context.is_paused(), reason) {
        (_, Some(TIMED_OUT)) | (true, Some(PAUSED)) => None,
        (true, _) => with(context, "Unknown", PAUSED, "Deployment is paused".to_owned()),
        (false, Some(PAUSED)) => with(context, "Unknown", "DeploymentResumed", "Deployment is resumed".to_owned()),
        (false, _) => None,
    }
}

/// The status with an existing ReplicaSet, if it has no progress condition.
pub(super) fn found(context: &Context<'_>, set: &str) -> Option<DeploymentStatus> {
    if find(&context.status, PROGRESSING).is_some() {
        return None;
    }
    with(context, "True", "FoundNewReplicaSet", format!("Found new replica set {set:?}"))
}

/// The status with a new ReplicaSet.
pub(super) fn created(context: &Context<'_>, set: &str) -> Option<DeploymentStatus> {
    with(context, "True", "NewReplicaSetCreated", format!("Created new replica set {set:?}"))
}

/// The status with a ReplicaSet that could not be created, if that has failed.
pub(super) fn create_error(context: &Context<'_>, failure: &Failure) -> Option<DeploymentStatus> {
    let (_, name) =
        failure.creates.as_ref().filter(|(kind, _)| *kind == Kind::ReplicaSet && !failure.namespace_ends)?;
    let message = format!("Failed to create new replica set {name:?}: {}", failure.message);
    with(context, "False", "ReplicaSetCreateError", message)
}

/// All desired pods have the new template and are available, and no others exist.
pub(super) fn is_complete(context: &Context<'_>, status: &DeploymentStatus) -> bool {
    let wants = context.replicas();
    let has = |count: Option<i32>| i64::from(count.unwrap_or_default()) == wants;
    has(status.updated_replicas)
        && has(status.replicas)
        && has(status.available_replicas)
        && status.observed_generation >= context.deployment.metadata.generation
}

/// There are more new pods, fewer old ones, or more that are ready or available.
fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| i64::from(count.unwrap_or_default());
    let outdated = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

/// The status during a rollout: the present numbers, and its progress.
pub(super) fn estimated(context: &Context<'_>) -> DeploymentStatus {
    let mut status = counted(context);
    let new_set = context.sets.new.and_then(|set| set.metadata.name.as_deref());
    let what = new_set.map_or(format!("Deployment {:?}", context.name()), |name| format!("ReplicaSet {name:?}"));
    let said = find(&context.status, PROGRESSING).cloned();
    let over = status.replicas == status.updated_replicas && reason(&context.status) == Some(AVAILABLE);
    if context.deadline().is_none() {
        remove_condition(&mut status, PROGRESSING);
    } else if !over {
        if is_complete(context, &status) {
            let message = format!("{what} has successfully progressed.");
            set_condition(&mut status, condition(context, PROGRESSING, "True", AVAILABLE, message));
        } else if has_progressed(&context.status, &status) {
            let message = format!("{what} is progressing.");
            let mut news = condition(context, PROGRESSING, "True", "ReplicaSetUpdated", message);
            if let Some(said) = said.filter(|said| said.status == "True") {
                news.last_transition_time = said.last_transition_time;
            }
            // Also with the same reason: its time is that of the last progress.
            remove_condition(&mut status, PROGRESSING);
            set_condition(&mut status, news);
        } else if is_timed_out(context, &status) {
            let message = format!("{what} has timed out progressing.");
            set_condition(&mut status, condition(context, PROGRESSING, "False", TIMED_OUT, message));
        }
    }
    match replica_failure(context) {
        Some(failure) => set_condition(&mut status, failure),
        None => remove_condition(&mut status, REPLICA_FAILURE),
    }
    status
}

fn is_timed_out(context: &Context<'_>, status: &DeploymentStatus) -> bool {
    match reason(status) {
        None | Some(AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        Some(_) => time_left(context, status).is_some_and(|left| left.is_zero()),
    }
}

/// How long it may still go without progress.
fn time_left(context: &Context<'_>, status: &DeploymentStatus) -> Option<Duration> {
    let told = find(status, PROGRESSING)?.last_update_time.as_ref()?.0;
    let passed = Duration::try_from(context.now.duration_since(told)).unwrap_or_default();
    // A whole second later, because times are kept in seconds.
    Some((context.deadline()? + Duration::from_secs(1)).saturating_sub(passed))
}

/// Time of the next check of the deadline.
pub(super) fn next_check(context: &Context<'_>, status: &DeploymentStatus) -> Option<Duration> {
    let due = context.deadline().is_some() && !is_complete(context, status) && reason(status) != Some(TIMED_OUT);
    if due { time_left(context, status).filter(|left| !left.is_zero()) } else { None }
}

/// The condition that a ReplicaSet cannot create or delete its pods: the new one first.
fn replica_failure(context: &Context<'_>) -> Option<DeploymentCondition> {
    let failure = |set: &ReplicaSet| -> Option<ReplicaSetCondition> {
        let mut conditions = set.status.as_ref()?.conditions.iter().flatten();
        conditions.find(|one| one.type_ == REPLICA_FAILURE).cloned()
    };
    let found = context.sets.new.and_then(failure).or_else(|| context.sets.all().find_map(failure))?;
    Some(DeploymentCondition {
        type_: found.type_,
        status: found.status,
        reason: found.reason,
        message: found.message,
        last_update_time: found.last_transition_time.clone(),
        last_transition_time: found.last_transition_time,
    })
}
