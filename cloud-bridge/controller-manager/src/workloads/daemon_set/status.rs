//! The status of a DaemonSet (K8s pkg/controller/daemon/daemon_controller.go `updateDaemonSetStatus`).

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSetStatus;

use super::context::Context;
use super::fit::Fit;
use crate::workloads::plan::{Action, Plan};
use crate::workloads::pod::Pod;
use crate::workloads::world::Kind;

/// Writes the status, unless it is up to date.
pub(super) fn write(context: &Context<'_>) -> Plan {
    let old = context.set.status.as_ref().and_then(|old| serde_json::to_value(old).ok());
    let old = old.unwrap_or_else(|| serde_json::json!({}));
    let new = serde_json::to_value(status(context)).unwrap_or_default();
    let action = Action::status(Kind::DaemonSet, &context.set.metadata, &old, &new);
    Plan::one_by_one(action.into_iter().collect()).again(next_available(context))
}

fn status(context: &Context<'_>) -> DaemonSetStatus {
    let old = context.set.status.as_ref();
    let mut status = DaemonSetStatus {
        observed_generation: context.set.metadata.generation,
        collision_count: old.and_then(|old| old.collision_count),
        conditions: old.and_then(|old| old.conditions.clone()),
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available) = (0, 0);
    for (name, (_, fit)) in &context.nodes {
        let pod = context.on(name).first();
        if *fit != Fit::Runs {
            status.number_misscheduled += i32::from(pod.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        if let Some(pod) = pod {
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pod.is_ready());
            available += i32::from(context.is_available(pod));
            updated += i32::from(context.is_updated(pod));
        }
    }
    status.updated_number_scheduled = filled(updated);
    status.number_available = filled(available);
    status.number_unavailable = filled(status.desired_number_scheduled - available);
    status
}

/// When the next pod has been ready for long enough.
fn next_available(context: &Context<'_>) -> Option<Duration> {
    let pods = context.pods.values().flatten();
    let wait = |pod: &&Pod| pod.available_in(context.min_ready_seconds(), context.now);
    pods.filter_map(wait).filter(|wait| !wait.is_zero()).min()
}

/// A count; zero is left out, as Kubernetes does.
fn filled(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
