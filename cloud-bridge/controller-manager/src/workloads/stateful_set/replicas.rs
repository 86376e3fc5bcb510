//! The pods that are wanted: made one after the other, or all at once (K8s
//! pkg/controller/statefulset/stateful_set_control.go `processReplica`).

use super::context::{Context, Step, is_running_and_ready};
use super::{claims, retention, stateful_pod};
use crate::workloads::limit::limited;
use crate::workloads::plan::Plan;
use crate::workloads::pod::Pod;
use crate::workloads::world::World;

pub(super) fn step(context: &Context<'_>, world: &World) -> Step {
    if context.is_ordered() { in_order(context, world) } else { at_once(context, world) }
}

/// Each pod only when all before it are available.
fn in_order(context: &Context<'_>, world: &World) -> Step {
    for ordinal in context.ordinals() {
        let step = match context.replicas.get(&ordinal) {
            None => missing(context, world, ordinal),
            Some(pod) => match present(context, world, ordinal, pod) {
                Step::Done if !is_running_and_ready(pod) || !context.is_available(pod) => Step::Wait,
                step => step,
            },
        };
        if !matches!(step, Step::Done) {
            return step;
        }
    }
    Step::Done
}

/// All of them, and first the claims that they mount.
fn at_once(context: &Context<'_>, world: &World) -> Step {
    let steps = context.ordinals().map(|ordinal| match context.replicas.get(&ordinal) {
        None => missing(context, world, ordinal),
        Some(pod) => present(context, world, ordinal, pod),
    });
    let actions = steps.flat_map(|step| match step {
        Step::Do(plan) => plan.actions,
        Step::Wait | Step::Done => Vec::new(),
    });
    Step::of(limited(actions))
}

/// Creates the claims of a pod, then the pod.
fn missing(context: &Context<'_>, world: &World, ordinal: i64) -> Step {
    if claims::are_stale(context, world, ordinal) {
        return Step::Wait;
    }
    let claims = claims::create_missing(context, world, ordinal);
    let actions = if claims.is_empty() { vec![stateful_pod::create(context, world, ordinal)] } else { claims };
    Step::Do(Plan::one_by_one(actions))
}

/// Corrects an existing pod. An ended one is deleted for the next one with its name, with back-off after repeated
/// failures.
fn present(context: &Context<'_>, world: &World, ordinal: i64, pod: &Pod) -> Step {
    if pod.is_terminal() {
        return if pod.is_deleting() || !context.keeps_place(pod).is_zero() {
            Step::Wait
        } else {
            Step::Do(Plan::one_by_one(vec![context.delete(pod)]))
        };
    }
    let mut actions =
        if pod.phase() == "Running" { Vec::new() } else { claims::create_missing(context, world, ordinal) };
    actions.extend(retention::of(context, world, ordinal, pod));
    actions.extend(stateful_pod::identify(context, ordinal, pod));
    Step::of(actions)
}
