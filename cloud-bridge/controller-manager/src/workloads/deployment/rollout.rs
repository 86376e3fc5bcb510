//! The steps of a roll-out: `RollingUpdate` (K8s pkg/controller/deployment/rolling.go) and `Recreate` (recreate.go).

use super::bounds::{max_unavailable, new_size};
use super::context::Context;
use super::sets::{available, wanted};
use super::{history, progress, revision, scale};
use crate::workloads::plan::Action;
use crate::workloads::store::uid;
use crate::workloads::world::World;

/// Creates the new ReplicaSet, if it is missing.
pub(super) fn new_set(context: &Context<'_>, world: &World) -> Vec<Action> {
    if context.sets.new.is_some() { Vec::new() } else { revision::create(context, world) }
}

/// Scales the new ReplicaSet up to the present limit.
pub(super) fn grow(context: &Context<'_>, _world: &World) -> Vec<Action> {
    let Some(set) = context.sets.new else { return Vec::new() };
    let size = wanted(set);
    let target = if size > context.replicas() { context.replicas() } else { new_size(context, size) };
    scale::set_size(context, set, target, false).into_iter().collect()
}

/// Scales down the old ReplicaSets as far as allowed: unavailable pods go first, since they serve no traffic.
pub(super) fn shrink(context: &Context<'_>, _world: &World) -> Vec<Action> {
    let Some(new) = context.sets.new else { return Vec::new() };
    let old = context.sets.active_old();
    let least = context.replicas() - max_unavailable(context);
    let unavailable_new = wanted(new) - available(new);
    let may_go = context.sets.wanted() - least - unavailable_new;
    if old.is_empty() || may_go <= 0 {
        return Vec::new();
    }
    let (mut sizes, mut gone) = (Vec::new(), 0);
    for set in &old {
        let unhealthy = (wanted(set) - available(set)).clamp(0, may_go - gone);
        gone += unhealthy;
        sizes.push(wanted(set) - unhealthy);
    }
    let serving: i64 = context.sets.all().map(available).sum();
    let mut may_go = (serving - least).max(0);
    for size in &mut sizes {
        let part = may_go.min(*size);
        may_go -= part;
        *size -= part;
    }
    old.iter().zip(sizes).flat_map(|(set, size)| scale::set_size(context, set, size, false)).collect()
}

/// Deletes old revisions after the rollout.
pub(super) fn clean_up(context: &Context<'_>, world: &World) -> Vec<Action> {
    if progress::is_complete(context, &context.status) { history::clean_up(context, world) } else { Vec::new() }
}

/// Recreate: deletes all pods of the old ReplicaSets.
pub(super) fn stop_old(context: &Context<'_>, _world: &World) -> Vec<Action> {
    context.sets.active_old().into_iter().flat_map(|set| scale::set_size(context, set, 0, false)).collect()
}

/// Recreate: creates the new ReplicaSet after all old pods have ended.
pub(super) fn new_set_after_old(context: &Context<'_>, world: &World) -> Vec<Action> {
    if old_pods_run(context, world) { Vec::new() } else { new_set(context, world) }
}

/// Recreate: scales up the new ReplicaSet after all old pods have ended.
pub(super) fn start_new(context: &Context<'_>, world: &World) -> Vec<Action> {
    match context.sets.new {
        Some(set) if !old_pods_run(context, world) => {
            scale::set_size(context, set, context.replicas(), false).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn old_pods_run(context: &Context<'_>, world: &World) -> bool {
    context.sets.old.iter().any(|set| {
        set.status.as_ref().is_some_and(|status| status.replicas > 0)
            || world.pods.owned_by(uid(&set.metadata)).any(|pod| !pod.is_terminal())
    })
}
