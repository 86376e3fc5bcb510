//! ReplicaSets: as many pods of a template as are wanted (K8s pkg/controller/replicaset). Decisions only.

mod replication_controller;
mod status;
#[cfg(test)]
mod tests;
pub(super) mod victims;

use std::time::Duration;

use apimachinery::key::ObjectKey;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::back_off::BackOff;
use super::claim::{claim, controller_reference};
use super::limit::limited;
use super::now::Now;
use super::plan::{Action, Failure, Plan, Teller, WRITES};
use super::pod::Pod;
use super::selector::selects;
use super::template;
use super::world::{Kind, World};

/// The next step for a ReplicaSet.
pub(crate) fn plan(world: &World, back_off: &BackOff, key: &ObjectKey, failure: Option<&Failure>, now: Now) -> Plan {
    let set = world.replica_sets.get(key);
    set.map(|set| plan_for(Kind::ReplicaSet, set, world, back_off, failure, now)).unwrap_or_default()
}

/// The next step for a ReplicationController, which is a ReplicaSet with a simpler selector (K8s
/// pkg/controller/replication).
pub(crate) fn plan_replication_controller(
    world: &World,
    back_off: &BackOff,
    key: &ObjectKey,
    failure: Option<&Failure>,
    now: Now,
) -> Plan {
    let set = world.replication_controllers.get(key).map(|controller| replication_controller::as_set(controller));
    set.map(|set| plan_for(Kind::ReplicationController, &set, world, back_off, failure, now)).unwrap_or_default()
}

fn plan_for(
    kind: Kind,
    set: &ReplicaSet,
    world: &World,
    back_off: &BackOff,
    failure: Option<&Failure>,
    now: Now,
) -> Plan {
    let Some(spec) = &set.spec else { return Plan::default() };
    let meta = &set.metadata;
    let selected = |pod: &ObjectMeta| selects(&spec.selector, pod.labels.as_ref());
    let pods =
        claim(&world.pods, Kind::Pod, (kind, meta), spec.selector.match_labels.as_ref(), selected, Pod::is_active);
    if !pods.actions.is_empty() && failure.is_none() {
        return Plan::one_by_one(pods.actions);
    }
    let terminating = pods.uncounted.iter().filter(|pod| pod.is_terminating() && selected(&pod.metadata)).count();
    let pods = pods.claimed;
    let mut again = None;
    if meta.deletion_timestamp.is_none() && failure.is_none() {
        let plan = manage(kind, (world, back_off), set, spec, &pods, now);
        if !plan.actions.is_empty() {
            return plan;
        }
        again = plan.again;
    }
    let old = set.status.clone().unwrap_or_default();
    let mut new = status::status(set, spec, &old, status::Pods { active: &pods, terminating }, failure, now);
    if kind == Kind::ReplicationController {
        // Its status has no such field.
        new.terminating_replicas = None;
    }
    let action = Action::status(kind, meta, &old, &new);
    Plan::one_by_one(action.into_iter().collect())
        .again(again.into_iter().chain(next_available(spec, &pods, &new, now)).min())
}

/// Creates or deletes pods up to the desired number. After repeated failures pods are created one at a time, with
/// pauses.
fn manage(
    kind: Kind,
    (world, back_off): (&World, &BackOff),
    set: &ReplicaSet,
    spec: &ReplicaSetSpec,
    pods: &[&Pod],
    now: Now,
) -> Plan {
    let meta = &set.metadata;
    let component = if kind == Kind::ReplicaSet { "replicaset-controller" } else { "replication-controller" };
    let teller = Teller::new(component, kind, meta);
    let wanted = usize::try_from(replicas(spec)).unwrap_or_default();
    if pods.len() < wanted {
        if spec.template.is_none() {
            return Plan::default();
        }
        let wait = back_off.wait(meta, "", now.passed);
        if !wait.is_zero() {
            return Plan::default().again(Some(wait));
        }
        let Some(template) = world.template(kind, meta) else {
            return Plan::one_by_one(vec![Action::read(kind, meta)]);
        };
        let most = if back_off.is_trying(meta) { 1 } else { WRITES };
        let prefix = template::prefix(meta.name.as_deref().unwrap_or_default());
        let owner = controller_reference(kind, meta);
        let names = (None, prefix.as_str());
        let pod = template::pod(names, template.metadata.clone(), json!({}), &template.spec, &owner);
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let count = (wanted - pods.len()).min(most);
        return Plan::slow_start(limited((0..count).map(|_| teller.create_pod(namespace, pod.clone()))));
    }
    let surplus = (pods.len() - wanted).min(WRITES);
    if surplus == 0 {
        return Plan::default();
    }
    let chosen = victims::choose(pods, &victims::related(world, set), surplus, now);
    Plan::all_at_once(chosen.into_iter().map(|pod| teller.delete_pod(&pod.metadata)).collect())
}

/// The desired number of pods; 1 by default.
pub(crate) fn replicas(spec: &ReplicaSetSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

/// When the next pod has been ready for long enough.
fn next_available(spec: &ReplicaSetSpec, pods: &[&Pod], status: &ReplicaSetStatus, now: Now) -> Option<Duration> {
    let wanted = spec.min_ready_seconds.unwrap_or_default();
    if wanted <= 0 || status.ready_replicas == status.available_replicas {
        return None;
    }
    pods.iter().filter_map(|pod| pod.available_in(wanted, now)).filter(|wait| !wait.is_zero()).min()
}
