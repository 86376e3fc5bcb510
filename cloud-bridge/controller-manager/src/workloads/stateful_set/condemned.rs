//! The pods beyond the desired number: the highest ordinal is deleted first (K8s
//! pkg/controller/statefulset/stateful_set_control.go `processCondemned`).

use super::context::{Context, Step};
use crate::workloads::plan::{Plan, WRITES};
use crate::workloads::world::World;

pub(super) fn step(context: &Context<'_>, _world: &World) -> Step {
    let going = context.condemned.values().rev();
    if !context.is_ordered() {
        let alive = going.filter(|pod| !pod.is_deleting()).take(WRITES);
        return Step::of(alive.map(|pod| context.delete(pod)).collect());
    }
    let Some(last) = context.condemned.values().next_back() else { return Step::Done };
    // All desired pods are available by now. Of the others, an unavailable one with the lowest ordinal is deleted
    // first.
    let unavailable = context.condemned.values().find(|pod| !context.is_available(pod));
    let is_first = unavailable.is_some_and(|pod| pod.metadata.uid == last.metadata.uid);
    if last.is_deleting() || !context.is_available(last) && !is_first {
        return Step::Wait;
    }
    Step::Do(Plan::one_by_one(vec![context.delete(last)]))
}
