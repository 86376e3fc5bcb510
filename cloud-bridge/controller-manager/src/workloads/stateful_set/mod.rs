//! StatefulSets: pods with names, in order, each with its own claims (K8s pkg/controller/statefulset). Decisions only.
//!
//! A pod keeps its name until it is gone, so that there is never a second one with it: a deleted pod on an offline node
//! stays until that node reports that it has ended.

mod claims;
mod condemned;
mod context;
mod identity;
mod replicas;
mod retention;
mod revision;
mod stateful_pod;
mod status;
#[cfg(test)]
mod tests;
mod update;

use apimachinery::key::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::back_off::BackOff;
use super::claim::claim;
use super::now::Now;
use super::plan::{Failure, Plan};
use super::selector::selects;
use super::world::{Kind, World};
use context::{Context, Step};
use revision::Revisions;

/// The next step for a StatefulSet.
pub(crate) fn plan(world: &World, back_off: &BackOff, key: &ObjectKey, failure: Option<&Failure>, now: Now) -> Plan {
    let Some((set, spec)) = world.stateful_sets.get(key).and_then(|set| Some((set, set.spec.as_ref()?))) else {
        return Plan::default();
    };
    let meta = &set.metadata;
    let member = |one: &ObjectMeta| {
        let parent = identity::parent_and_ordinal(one).map(|(parent, _)| parent);
        selects(&spec.selector, one.labels.as_ref()) && parent == meta.name.as_deref()
    };
    let revisions = Revisions::new(world, set, spec);
    if !revisions.actions.is_empty() && failure.is_none() {
        return Plan::one_by_one(revisions.actions);
    }
    let claim =
        claim(&world.pods, Kind::Pod, (Kind::StatefulSet, meta), spec.selector.match_labels.as_ref(), member, |_| true);
    if !claim.actions.is_empty() && failure.is_none() {
        return Plan::one_by_one(claim.actions);
    }
    let (Some(current), Some(update)) = (revisions.current, revisions.update) else { return Plan::default() };
    let context = Context::new((set, spec), current, update, claim.claimed, back_off, now);
    if failure.is_none() && meta.deletion_timestamp.is_none() {
        for step in [replicas::step, retention::of_condemned, condemned::step, update::step] {
            match step(&context, world) {
                Step::Do(plan) => return plan,
                Step::Wait => break,
                Step::Done => {}
            }
        }
    }
    let status = status::write(&context);
    if !status.actions.is_empty() || failure.is_some() {
        return status;
    }
    Plan { actions: revisions.clean_up(spec, &context), ..status }
}
