//! Deployments: one ReplicaSet for each template, the newest of which takes the place of the others (K8s
//! pkg/controller/deployment). Decisions only.

mod progress;
mod revision;
mod rollout;
mod scale;
mod sets;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use apimachinery::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus};

use super::Failure;
use super::claim::claim;
use super::plan::{Action, Plan, Teller};
use super::selector::selects;
use super::world::{Kind, World};
use sets::Sets;

const COMPONENT: &str = "deployment-controller";

/// One step: what it has to do, if anything.
type Step = fn(&Context<'_>, &World) -> Vec<Action>;

/// A Deployment, and what a plan for it is made of.
pub(super) struct Context<'a> {
    deployment: &'a Deployment,
    spec: &'a DeploymentSpec,
    status: DeploymentStatus,
    sets: Sets<'a>,
    now: Timestamp,
}

/// What is to be done next about a Deployment.
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
        |set| selects(&spec.selector, set.labels.as_ref()),
        |_| true,
    );
    if !sets.actions.is_empty() && failure.is_none() {
        return Plan::one_by_one(sets.actions);
    }
    let status = deployment.status.clone().unwrap_or_default();
    let context = Context { deployment, spec, status, sets: Sets::new(spec, sets.claimed), now };
    match failure {
        Some(failure) => context.failed(failure),
        None => context.next(world),
    }
}

impl<'a> Context<'a> {
    /// The steps in their order: the first that has something to do is the next.
    fn next(&self, world: &World) -> Plan {
        if self.deployment.metadata.deletion_timestamp.is_some() {
            return self.write_status(status::counted(self));
        }
        if let Some(status) = progress::paused(self) {
            return self.write_status(status);
        }
        let steps: &[Step] = if self.is_paused() {
            &[revision::sync, scale::in_proportion, sets::clean_up]
        } else if scale::is_wanted(self) {
            &[revision::sync, scale::in_proportion]
        } else if self.is_rolling() {
            &[revision::sync, rollout::new_set, rollout::grow, rollout::shrink, rollout::clean_up]
        } else {
            &[revision::sync, rollout::stop_old, rollout::new_set_after_old, rollout::start_new, rollout::clean_up]
        };
        for step in steps {
            let actions = step(self, world);
            if !actions.is_empty() {
                return Plan::one_by_one(actions);
            }
        }
        if self.is_paused() || scale::is_wanted(self) {
            return self.write_status(status::counted(self));
        }
        let status = progress::estimated(self);
        let again = progress::next_check(self, &status);
        self.write_status(status).again(again)
    }

    /// Tells that a ReplicaSet could not be made.
    fn failed(&self, failure: &Failure) -> Plan {
        match (&self.sets.new, progress::create_error(self, failure)) {
            (None, Some(status)) => self.write_status(status),
            _ => Plan::default(),
        }
    }

    fn write_status(&self, status: DeploymentStatus) -> Plan {
        let action = Action::status(Kind::Deployment, &self.deployment.metadata, &self.status, &status);
        Plan::one_by_one(action.into_iter().collect())
    }

    fn name(&self) -> &'a str {
        self.deployment.metadata.name.as_deref().unwrap_or_default()
    }

    /// The wanted number of pods; 1 unless said.
    fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1).into()
    }

    fn is_paused(&self) -> bool {
        self.spec.paused == Some(true)
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
        strategy.unwrap_or("RollingUpdate") == "RollingUpdate"
    }

    fn teller(&self) -> Teller {
        Teller::new(COMPONENT, Kind::Deployment, &self.deployment.metadata)
    }

    /// How long it may go without progress, if that is bounded.
    fn deadline(&self) -> Option<Duration> {
        let seconds = self.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }
}
