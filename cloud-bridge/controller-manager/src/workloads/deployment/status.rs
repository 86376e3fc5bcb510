//! The status of a Deployment: its numbers, whether it is available, and how conditions change (K8s
//! pkg/controller/deployment/sync.go `calculateStatus`).

use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::bounds::max_unavailable;
use super::context::Context;

/// The status with the numbers of now.
pub(super) fn counted(context: &Context<'_>) -> DeploymentStatus {
    let sets = &context.sets;
    let available = sets.sum(|status| status.available_replicas.unwrap_or_default());
    let updated = sets.new.and_then(|set| set.status.as_ref()).map(|status| status.replicas).unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: context.deployment.metadata.generation,
        replicas: filled(sets.sum(|status| status.replicas)),
        updated_replicas: filled(updated.into()),
        ready_replicas: filled(sets.sum(|status| status.ready_replicas.unwrap_or_default())),
        available_replicas: filled(available),
        unavailable_replicas: filled((sets.wanted() - available).max(0)),
        terminating_replicas: terminating(context),
        collision_count: context.status.collision_count,
        conditions: context.status.conditions.clone(),
    };
    let is_available = available >= context.replicas() - max_unavailable(context);
    let (value, reason, message) = if is_available {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status, condition(context, "Available", value, reason, message));
    status
}

/// Number of terminating pods, after all observed ReplicaSets report it.
fn terminating(context: &Context<'_>) -> Option<i32> {
    let mut sum = 0_i32;
    for status in context.sets.all().filter_map(|set| set.status.as_ref()) {
        match status.terminating_replicas {
            Some(count) => sum = i32::saturating_add(sum, count),
            None if status.observed_generation.unwrap_or_default() == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

/// A condition as of now.
pub(super) fn condition(
    context: &Context<'_>,
    kind: &str,
    value: &str,
    reason: &str,
    message: impl Into<String>,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.into()),
        last_update_time: Some(Time(context.now)),
        last_transition_time: Some(Time(context.now)),
    }
}

pub(super) fn find<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|one| one.type_ == kind)
}

/// Sets a condition, unless it exists with the same value and reason. It keeps the time of its last change of value.
pub(super) fn set_condition(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(before) = find(status, &condition.type_)
        && before.status == condition.status
    {
        if before.reason == condition.reason {
            return;
        }
        condition.last_transition_time.clone_from(&before.last_transition_time);
    }
    remove_condition(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

pub(super) fn remove_condition(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|one| one.type_ != kind);
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// A count; zero is left out, as Kubernetes does.
fn filled(count: i64) -> Option<i32> {
    (count != 0).then(|| i32::try_from(count).unwrap_or(i32::MAX))
}
