//! The steps of a roll-out: `RollingUpdate` (K8s pkg/controller/deployment/rolling.go) and `Recreate` (recreate.go).

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::sets::{self, available, wanted};
use super::{Context, progress, revision, scale};
use crate::workloads::plan::Action;
use crate::workloads::store::uid;
use crate::workloads::world::World;

/// Makes the new ReplicaSet, if there is none.
pub(super) fn new_set(context: &Context<'_>, world: &World) -> Vec<Action> {
    if context.sets.new.is_some() { Vec::new() } else { revision::create(context, world) }
}

/// Makes the new ReplicaSet as large as it may be.
pub(super) fn grow(context: &Context<'_>, _world: &World) -> Vec<Action> {
    let Some(set) = context.sets.new else { return Vec::new() };
    let size = wanted(set);
    let target = if size > context.replicas() { context.replicas() } else { new_size(context, size) };
    scale::set_size(context, set, target, false).into_iter().collect()
}

/// The size that the new ReplicaSet may have, which has this one now (K8s `NewRSNewReplicas`).
pub(super) fn new_size(context: &Context<'_>, size: i64) -> i64 {
    if !context.is_rolling() {
        return context.replicas();
    }
    let free = context.replicas() + max_surge(context) - context.sets.wanted();
    if free <= 0 { size } else { size + free.min(context.replicas() - size) }
}

/// Makes the old ReplicaSets as small as they may be: pods that are not available go first, as they serve nobody.
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

/// Forgets old revisions once the roll-out is through.
pub(super) fn clean_up(context: &Context<'_>, world: &World) -> Vec<Action> {
    if progress::is_complete(context, &context.status) { sets::clean_up(context, world) } else { Vec::new() }
}

/// Recreate: takes all pods of the old ReplicaSets away.
pub(super) fn stop_old(context: &Context<'_>, _world: &World) -> Vec<Action> {
    context.sets.active_old().into_iter().flat_map(|set| scale::set_size(context, set, 0, false)).collect()
}

/// Recreate: makes the new ReplicaSet when no old pod runs any more.
pub(super) fn new_set_after_old(context: &Context<'_>, world: &World) -> Vec<Action> {
    if old_pods_run(context, world) { Vec::new() } else { new_set(context, world) }
}

/// Recreate: makes the new ReplicaSet as large as it is to be, when no old pod runs any more.
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

/// How many pods there may be beyond those that are wanted.
pub(super) fn max_surge(context: &Context<'_>) -> i64 {
    if context.is_rolling() { fence_posts(context).0 } else { 0 }
}

/// How many of the wanted pods may be unavailable.
pub(super) fn max_unavailable(context: &Context<'_>) -> i64 {
    if !context.is_rolling() || context.replicas() == 0 {
        return 0;
    }
    fence_posts(context).1.min(context.replicas())
}

/// Surge and unavailable, of which one is at least 1: else nothing could ever change (K8s `ResolveFenceposts`).
fn fence_posts(context: &Context<'_>) -> (i64, i64) {
    let rolling = context.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let amount = |value: Option<&IntOrString>, up| scaled(value, context.replicas(), up);
    let surge = amount(rolling.and_then(|rolling| rolling.max_surge.as_ref()), true);
    let unavailable = amount(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), false);
    if (surge, unavailable) == (0, 0) { (0, 1) } else { (surge, unavailable) }
}

/// A count, or a percentage of `total`, rounded up or down (K8s `GetScaledValueFromIntOrPercent`).
pub(crate) fn scaled(value: Option<&IntOrString>, total: i64, up: bool) -> i64 {
    match value {
        None => 0,
        Some(IntOrString::Int(count)) => (*count).into(),
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.strip_suffix('%').and_then(|digits| digits.parse().ok()).unwrap_or_default();
            let parts = percent.saturating_mul(total);
            if up { parts.saturating_add(99) / 100 } else { parts / 100 }
        }
    }
}
