//! DaemonSets: a pod of a template on each node that it fits (K8s pkg/controller/daemon). Decisions only.

mod context;
mod daemon_pod;
mod fit;
mod manage;
mod revision;
mod status;
#[cfg(test)]
mod tests;
mod update;

use apimachinery::key::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::back_off::BackOff;
use super::claim::claim;
use super::history;
use super::now::Now;
use super::plan::{Failure, Plan};
use super::selector::selects;
use super::world::{Kind, World};
use context::Context;
use revision::Revisions;

/// The next step for a DaemonSet.
pub(crate) fn plan(world: &World, back_off: &BackOff, key: &ObjectKey, failure: Option<&Failure>, now: Now) -> Plan {
    let Some((set, spec)) = world.daemon_sets.get(key).and_then(|set| Some((set, set.spec.as_ref()?))) else {
        return Plan::default();
    };
    let meta = &set.metadata;
    if meta.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let selected = |one: &ObjectMeta| selects(&spec.selector, one.labels.as_ref());
    let claim =
        claim(&world.pods, Kind::Pod, (Kind::DaemonSet, meta), spec.selector.match_labels.as_ref(), selected, |_| true);
    if !claim.actions.is_empty() && failure.is_none() {
        return Plan::one_by_one(claim.actions);
    }
    let revisions = Revisions::new(world, set, spec, &claim.claimed);
    if !revisions.actions.is_empty() && failure.is_none() {
        return Plan::one_by_one(revisions.actions);
    }
    let Some(current) = revisions.current else { return Plan::default() };
    let context = Context::new(world, set, spec, &claim.claimed, history::hash(current), now);
    if failure.is_some() {
        return status::write(&context);
    }
    let manage = manage::plan(&context, back_off);
    if !manage.actions.is_empty() {
        return manage;
    }
    let again = manage.again;
    let update = update::plan(&context);
    if !update.actions.is_empty() {
        return update.again(again);
    }
    let forgotten = revisions.clean_up(spec, &claim.claimed);
    if !forgotten.is_empty() {
        return Plan::one_by_one(forgotten);
    }
    let status = status::write(&context);
    let again = status.again.into_iter().chain(again).min();
    status.again(again)
}
