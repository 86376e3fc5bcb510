//! Which old ReplicaSets of a Deployment are forgotten.

use super::annotations::revision;
use super::context::Context;
use super::sets::{age, wanted};
use crate::workloads::plan::Action;
use crate::workloads::templated::ReplicaSet;
use crate::workloads::world::{Kind, World};

/// Deletes the oldest revisions beyond the limit, of those without pods.
pub(super) fn clean_up(context: &Context<'_>, _world: &World) -> Vec<Action> {
    let Some(limit) = context.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else { return Vec::new() };
    let alive = context.sets.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none());
    let mut alive: Vec<&&ReplicaSet> = alive.collect();
    let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
    alive.sort_by_key(|set| (revision(&set.metadata), age(set)));
    let empty = |set: &ReplicaSet| {
        let status = set.status.as_ref();
        let observed = status.and_then(|status| status.observed_generation).unwrap_or_default();
        wanted(set) == 0
            && status.is_none_or(|status| status.replicas == 0)
            && set.metadata.generation.unwrap_or_default() <= observed
    };
    let forgotten = alive.into_iter().take(surplus).filter(|set| empty(set));
    forgotten.map(|set| Action::delete(Kind::ReplicaSet, &set.metadata)).collect()
}
