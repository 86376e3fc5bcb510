//! How a new template gets onto the nodes: old pods go within `maxUnavailable`, or new ones come beside them within
//! `maxSurge` (K8s pkg/controller/daemon/update.go `rollingUpdate`).

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::RollingUpdateDaemonSet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::context::Context;
use super::daemon_pod;
use super::fit::Fit;
use crate::workloads::amount::scaled;
use crate::workloads::annotations::IGNORE_OFFLINE;
use crate::workloads::plan::Plan;
use crate::workloads::pod::Pod;

/// The pods of a node that are not on their way out.
#[derive(Default)]
struct Here<'a> {
    new: Option<&'a Pod>,
    old: Option<&'a Pod>,
    /// There are more than one of a kind, which is put in order elsewhere.
    crowded: bool,
}

/// The next step of a rollout: deletions, then creations.
pub(super) fn plan(context: &Context<'_>) -> Plan {
    let strategy = context.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    if strategy.is_some_and(|strategy| strategy != "RollingUpdate") {
        return Plan::default();
    }
    let desired = context.nodes.values().filter(|(_, fit)| *fit == Fit::Runs).count();
    let surge = amount(context, desired, |rolling| rolling.max_surge.as_ref());
    if surge > 0 {
        return surging(context, surge, desired);
    }
    // Else nothing could ever change.
    let unavailable = amount(context, desired, |rolling| rolling.max_unavailable.as_ref()).max(1);
    context.delete(&in_place(context, unavailable))
}

/// More than one pod may be on a node.
pub(super) fn allows_surge(context: &Context<'_>) -> bool {
    let strategy = context.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    strategy.is_none_or(|strategy| strategy == "RollingUpdate")
        && amount(context, 1, |rolling| rolling.max_surge.as_ref()) > 0
}

fn amount(
    context: &Context<'_>,
    total: usize,
    field: impl Fn(&RollingUpdateDaemonSet) -> Option<&IntOrString>,
) -> usize {
    let rolling = context.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    usize::try_from(scaled(rolling.and_then(field), total, true)).unwrap_or_default()
}

/// The nodes of a rollout: those with a pod, or that need one. Excludes silent nodes if they must not block it: until
/// they are back, their pods are not counted and not changed.
fn nodes<'a>(context: &Context<'a>) -> BTreeSet<&'a str> {
    let annotations = context.set.metadata.annotations.as_ref();
    let ignores = annotations.and_then(|all| all.get(IGNORE_OFFLINE)).is_some_and(|value| value == "true");
    let wanting = context.nodes.iter().filter(|(_, (_, fit))| *fit == Fit::Runs).map(|(name, _)| *name);
    let away = |name: &str| context.nodes.get(name).is_some_and(|(node, _)| node.is_away());
    wanting.chain(context.pods.keys().copied()).filter(|name| !(ignores && away(name))).collect()
}

fn here<'a>(context: &Context<'a>, node: &str) -> Here<'a> {
    let mut here = Here::default();
    for pod in context.on(node).iter().filter(|pod| !pod.is_deleting()) {
        let place = if context.is_updated(pod) { &mut here.new } else { &mut here.old };
        here.crowded |= place.replace(*pod).is_some();
    }
    here
}

/// The old pods to delete: those that are not available, and others up to the allowed unavailability.
fn in_place<'a>(context: &Context<'a>, most: usize) -> Vec<&'a Pod> {
    let (mut going, mut candidates, mut unavailable) = (Vec::new(), Vec::new(), 0);
    for node in nodes(context) {
        let here = here(context, node);
        match (here.old, here.new) {
            _ if here.crowded => unavailable += 1,
            (None, None) | (Some(_), Some(_)) => unavailable += 1,
            (None, Some(new)) => unavailable += usize::from(!context.is_available(new)),
            (Some(old), None) if context.is_available(old) => candidates.push(old),
            (Some(old), None) => {
                going.push(old);
                unavailable += 1;
            }
        }
    }
    going.extend(candidates.into_iter().take(most.saturating_sub(unavailable)));
    going
}

/// New pods come beside the old ones, which go once those are available.
fn surging(context: &Context<'_>, most: usize, desired: usize) -> Plan {
    let (mut going, mut elsewhere) = (Vec::new(), Vec::new());
    let (mut allowed, mut candidates) = (Vec::new(), Vec::new());
    let (mut surge, mut available) = (0, 0);
    for node in nodes(context) {
        let here = here(context, node);
        if here.crowded {
            surge += 1;
            continue;
        }
        available += usize::from(here.old.or(here.new).is_some_and(|pod| context.is_available(pod)));
        let fit = context.nodes.get(node).map(|(_, fit)| *fit);
        match (here.old, here.new, fit) {
            (None, ..) | (Some(_), None, None) => {}
            (Some(_), Some(new), _) if !context.is_available(new) => surge += 1,
            (Some(old), Some(_), _) => going.push(old),
            (Some(old), None, Some(Fit::Runs)) if context.is_available(old) => candidates.push(node),
            (Some(_), None, Some(Fit::Runs)) => allowed.push(node),
            (Some(old), None, Some(_)) if context.is_available(old) => elsewhere.push(old),
            (Some(old), None, Some(_)) => going.push(old),
        }
    }
    // A pod that no longer belongs on its node is deleted only if enough others are available.
    going.extend(elsewhere.into_iter().take(available.saturating_sub(desired)));
    if !going.is_empty() {
        return context.delete(&going);
    }
    allowed.extend(candidates.into_iter().take(most.saturating_sub(surge)));
    daemon_pod::create_on(context, &allowed)
}
