//! Scaling a Deployment while a roll-out is under way or paused: each ReplicaSet gets its share (K8s
//! pkg/controller/deployment/sync.go `scale`).

use serde_json::json;

use super::annotations::{DESIRED, MAX, annotation, replica_annotations};
use super::bounds::max_surge;
use super::context::Context;
use super::sets::{available, by_size, wanted};
use crate::workloads::plan::Action;
use crate::workloads::templated::ReplicaSet;
use crate::workloads::world::{Kind, World};

/// Whether the desired number of pods differs from that in the ReplicaSets' annotations.
pub(super) fn is_wanted(context: &Context<'_>) -> bool {
    context.sets.active().iter().any(|set| number(set, DESIRED).is_some_and(|desired| desired != context.replicas()))
}

/// A number in an annotation of a ReplicaSet.
fn number(set: &ReplicaSet, name: &str) -> Option<i64> {
    let number: i32 = annotation(&set.metadata, name)?.parse().ok()?;
    (number >= 0).then_some(number.into())
}

/// Scales a ReplicaSet to this size, and notes the desired number of the Deployment. `None` if it has the size; with
/// `note`, only if the note is also up to date.
pub(super) fn set_size(context: &Context<'_>, set: &ReplicaSet, size: i64, note: bool) -> Option<Action> {
    let before = wanted(set);
    let size = size.clamp(0, i32::MAX.into());
    let notes = replica_annotations(context);
    let noted = notes.iter().all(|(name, value)| annotation(&set.metadata, name) == Some(value));
    if before == size && (noted || !note) {
        return None;
    }
    let notes: serde_json::Map<_, _> = notes.into_iter().map(|(name, value)| (name, value.into())).collect();
    let patch = json!({"metadata": {"annotations": notes}, "spec": {"replicas": size}});
    let direction = if before < size { "up" } else { "down" };
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let message = format!("Scaled {direction} replica set {name} from {before} to {size}");
    let done = (before != size).then(|| context.teller().normal("ScalingReplicaSet", message));
    Some(Action { done, ..Action::merge(Kind::ReplicaSet, &set.metadata, patch) })
}

/// Brings the ReplicaSets to the wanted number together, and notes that on each of them. Kubernetes notes it only where a size
/// changes, and so holds up a roll-out forever whose one ReplicaSet with pods has the new size already (kubernetes#138036).
pub(super) fn in_proportion(context: &Context<'_>, _world: &World) -> Vec<Action> {
    let sets = &context.sets;
    let active = sets.active();
    if active.len() < 2 {
        // Without pods the newest one gets them.
        let one = active.first().copied().or(sets.new).or(sets.old.last().copied());
        // Noted, too, where the size is right already: a note of another size would be a scaling without an end.
        return one.and_then(|set| set_size(context, set, context.replicas(), true)).into_iter().collect();
    }
    if is_saturated(context) {
        return sets.active_old().into_iter().filter_map(|set| set_size(context, set, 0, false)).collect();
    }
    if !context.is_rolling() {
        // A roll-out that became `Recreate` scales none of them, and ends the scaling.
        return active.into_iter().filter_map(|set| set_size(context, set, wanted(set), true)).collect();
    }
    let allowed = if context.replicas() > 0 { context.replicas() + max_surge(context) } else { 0 };
    let to_add = allowed - active.iter().map(|set| wanted(set)).sum::<i64>();
    let sizes = shares(context, active, to_add);
    sizes.into_iter().filter_map(|(set, size)| set_size(context, set, size, true)).collect()
}

/// The new ReplicaSet has all that is wanted, and all of it is available.
fn is_saturated(context: &Context<'_>) -> bool {
    let wants = context.replicas();
    context
        .sets
        .new
        .is_some_and(|set| wanted(set) == wants && number(set, DESIRED) == Some(wants) && available(set) == wants)
}

/// The sizes of these ReplicaSets after `to_add` pods were divided among them in proportion; the largest gets the
/// remainder.
fn shares<'a>(context: &Context<'_>, mut active: Vec<&'a ReplicaSet>, to_add: i64) -> Vec<(&'a ReplicaSet, i64)> {
    if to_add == 0 {
        return active.into_iter().map(|set| (set, wanted(set))).collect();
    }
    by_size(&mut active, to_add > 0);
    let mut added = 0_i64;
    let mut sizes: Vec<_> = active
        .into_iter()
        .map(|set| {
            let left = to_add - added;
            let part = fraction(context, set);
            let part = if to_add > 0 { part.min(left) } else { part.max(left) };
            added += part;
            (set, wanted(set) + part)
        })
        .collect();
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = (*largest + to_add - added).max(0);
    }
    sizes
}

/// The change of a ReplicaSet that keeps its share of all pods (K8s `getReplicaSetFraction`).
fn fraction(context: &Context<'_>, set: &ReplicaSet) -> i64 {
    let size = wanted(set);
    if context.replicas() == 0 {
        return -size;
    }
    let most = context.replicas() + max_surge(context);
    let before =
        number(set, MAX).filter(|most| *most > 0).unwrap_or_else(|| context.status.replicas.unwrap_or_default().into());
    if before <= 0 {
        return 0;
    }
    // Rounded to the nearest.
    size.saturating_mul(most).saturating_add(before / 2) / before - size
}
