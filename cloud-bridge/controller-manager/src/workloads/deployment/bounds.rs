//! How many pods there may be too many and too few in a roll-out (K8s pkg/controller/deployment/util).

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::context::Context;
use crate::workloads::amount::scaled;

/// The size that the new ReplicaSet may have, which has this one now (K8s `NewRSNewReplicas`).
pub(super) fn new_size(context: &Context<'_>, size: i64) -> i64 {
    if !context.is_rolling() {
        return context.replicas();
    }
    let free = context.replicas() + max_surge(context) - context.sets.wanted();
    if free <= 0 { size } else { size + free.min(context.replicas() - size) }
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
