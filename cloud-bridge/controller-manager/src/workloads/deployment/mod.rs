//! Deployments: one ReplicaSet for each template, the newest of which replaces the others (K8s
//! pkg/controller/deployment). Decisions only.

mod annotations;
mod bounds;
mod context;
mod history;
mod progress;
mod revision;
mod rollout;
mod scale;
mod sets;
mod status;
#[cfg(test)]
mod tests;

use apimachinery::key::ObjectKey;
use jiff::Timestamp;

use super::claim::claim;
use super::plan::{Action, Failure, Plan};
use super::selector::selects;
use super::templated::Templated as _;
use super::world::{Kind, World};
use context::Context;
use sets::Sets;

/// One step: its actions, if any.
type Step = fn(&Context<'_>, &World) -> Vec<Action>;

/// The next step for a Deployment.
pub(crate) fn plan(world: &World, key: &ObjectKey, failure: Option<&Failure>, now: Timestamp) -> Plan {
    let Some((deployment, spec)) = world.deployments.get(key).and_then(|one| Some((one, one.spec.as_ref()?))) else {
        return Plan::default();
    };
    let meta = &deployment.metadata;
    let owner = (Kind::Deployment, meta);
    let sets = claim(
        &world.replica_sets,
        Kind::ReplicaSet,
        owner,
        None,
        |set| selects(&spec.selector, set.labels.as_ref()),
        |_| true,
    );
    if !sets.actions.is_empty() && failure.is_none() {
        return Plan::one_by_one(sets.actions);
    }
    let status = deployment.status.clone().unwrap_or_default();
    let context = Context { deployment, spec, status, sets: Sets::new(deployment.digest(), sets.claimed), now };
    match failure {
        Some(failure) => failed(&context, failure),
        None => next(&context, world),
    }
}

/// The steps in their order: the first that has something to do is the next.
fn next(context: &Context<'_>, world: &World) -> Plan {
    if context.deployment.metadata.deletion_timestamp.is_some() {
        return context.write_status(status::counted(context));
    }
    if let Some(status) = progress::paused(context) {
        return context.write_status(status);
    }
    let scaling = context.is_paused() || scale::is_wanted(context);
    let steps: &[Step] = if context.is_paused() {
        &[revision::sync, scale::in_proportion, history::clean_up]
    } else if scaling {
        &[revision::sync, scale::in_proportion]
    } else if context.is_rolling() {
        &[revision::sync, rollout::new_set, rollout::grow, rollout::shrink, rollout::clean_up]
    } else {
        &[revision::sync, rollout::stop_old, rollout::new_set_after_old, rollout::start_new, rollout::clean_up]
    };
    for step in steps {
        let actions = step(context, world);
        if !actions.is_empty() {
            return Plan::one_by_one(actions);
        }
    }
    if scaling {
        return context.write_status(status::counted(context));
    }
    let status = progress::estimated(context);
    let again = progress::next_check(context, &status);
    context.write_status(status).again(again)
}

/// Reports that a ReplicaSet could not be created.
fn failed(context: &Context<'_>, failure: &Failure) -> Plan {
    match (&context.sets.new, progress::create_error(context, failure)) {
        (None, Some(status)) => context.write_status(status),
        _ => Plan::default(),
    }
}
