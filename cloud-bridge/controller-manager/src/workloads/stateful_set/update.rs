//! How a new template gets to the pods: the highest ordinal first, each once those above it are available, down to the
//! partition (K8s pkg/controller/statefulset/stateful_set_control.go). `maxUnavailable` is off in 1.36, and dropped by the API.

use super::context::{Context, Step, label_of, revision_of};
use crate::workloads::plan::Plan;
use crate::workloads::world::World;

pub(super) fn step(context: &Context<'_>, _world: &World) -> Step {
    if !context.is_rolling() {
        return Step::Done;
    }
    let wanted = context.ordinals();
    let lowest = wanted.start.saturating_add(context.partition().unwrap_or_default());
    for ordinal in (lowest..wanted.end).rev() {
        let Some(pod) = context.replicas.get(&ordinal) else { return Step::Wait };
        if revision_of(pod) != Some(label_of(context.update)) && !pod.is_deleting() {
            return Step::Do(Plan::one_by_one(vec![context.delete(pod)]));
        }
        if !context.is_available(pod) {
            return Step::Wait;
        }
    }
    Step::Done
}
