//! The status of a StatefulSet (K8s pkg/controller/statefulset/stateful_set_control.go `updateStatus`).

use k8s_openapi::api::apps::v1::StatefulSetStatus;
use serde_json::json;

use super::context::{Context, is_running_and_ready, label_of, name_of, revision_of};
use crate::workloads::plan::{Action, Plan};
use crate::workloads::pod::Pod;
use crate::workloads::world::Kind;

/// Writes the status, unless it is up to date.
pub(super) fn write(context: &Context<'_>) -> Plan {
    let old = context.set.status.as_ref().map_or_else(|| json!({}), |old| json!(old));
    let action = Action::status(Kind::StatefulSet, &context.set.metadata, &old, &json!(status(context)));
    let pods = context.replicas.values().chain(context.condemned.values());
    let waits = pods.filter_map(|pod| {
        if pod.is_terminal() {
            Some(context.keeps_place(pod))
        } else {
            pod.available_in(context.min_ready_seconds(), context.now)
        }
    });
    Plan::one_by_one(action.into_iter().collect()).again(waits.filter(|wait| !wait.is_zero()).min())
}

fn status(context: &Context<'_>) -> StatefulSetStatus {
    let count = |counts: &dyn Fn(&Pod) -> bool| {
        let pods = context.replicas.values().chain(context.condemned.values());
        i32::try_from(pods.filter(|pod| counts(pod)).count()).unwrap_or(i32::MAX)
    };
    let of = |revision| count(&|pod| !pod.is_deleting() && revision_of(pod) == Some(label_of(revision)));
    let (mut current_name, update_name) = (name_of(context.current), name_of(context.update));
    let (replicas, updated, ready) = (count(&|_| true), of(context.update), count(&is_running_and_ready));
    let mut current = of(context.current);
    let wanted = context.spec.replicas.unwrap_or(1);
    // The rollout is complete: the update revision becomes the current one.
    if context.is_rolling() && [updated, ready, replicas] == [wanted; 3] {
        (current, current_name) = (updated, update_name);
    }
    let min_ready = context.min_ready_seconds();
    let old = context.set.status.as_ref();
    StatefulSetStatus {
        observed_generation: context.set.metadata.generation,
        replicas,
        ready_replicas: filled(ready),
        available_replicas: Some(count(&|pod| is_running_and_ready(pod) && pod.is_available(min_ready, context.now))),
        current_replicas: filled(current),
        updated_replicas: filled(updated),
        current_revision: Some(current_name.to_owned()),
        update_revision: Some(update_name.to_owned()),
        collision_count: Some(old.and_then(|old| old.collision_count).unwrap_or_default()),
        conditions: old.and_then(|old| old.conditions.clone()),
    }
}

/// A count; zero is left out, as Kubernetes does.
fn filled(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
