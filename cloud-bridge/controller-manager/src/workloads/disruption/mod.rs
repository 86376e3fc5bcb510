//! PodDisruptionBudgets: how many of the selected pods may be evicted now (K8s pkg/controller/disruption). The eviction
//! reads this status and counts it down. Decisions only.

mod scales;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apimachinery::key::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::amount::scaled;
use super::index::controller_of;
use super::now::Now;
use super::plan::{Action, Plan};
use super::pod::Pod;
use super::selector::selects_or_all;
use super::world::{Kind, World};
pub(super) use scales::Scales;

/// Time for which a pod counts as gone after its eviction was allowed (K8s `DeletionTimeout`).
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// The next step for a budget: its status.
pub(crate) fn plan(world: &World, scales: &Scales, key: &ObjectKey, time: Now) -> Plan {
    let now = time.clock;
    let Some((budget, spec)) = world.disruption_budgets.get(key).and_then(|one| Some((one, one.spec.as_ref()?))) else {
        return Plan::default();
    };
    let old = budget.status.clone().unwrap_or_default();
    let pods: Vec<&Pod> = selected(world, &key.namespace, spec);
    let disrupted = still_disrupted(&old, &pods, now);
    let again = disrupted.values().filter_map(|time| left(time.0, now)).min();
    let new = match expected(world, scales, spec, &pods) {
        Ok(expected) => counted(budget, &old, &pods, expected, disrupted, now),
        Err(message) => failed(&old, message, now),
    };
    let action = Action::status(Kind::PodDisruptionBudget, &budget.metadata, &old, &new);
    // Changes of the scales that are read cause no event.
    let strangers = strangers(spec, &pods);
    let read = scales.due(strangers.iter().map(|owner| owner.uid.as_str()), time.passed);
    // A second later, because times are kept in seconds.
    let again = again.into_iter().chain(read).min();
    Plan::one_by_one(action.into_iter().collect()).again(again.map(|left| left + Duration::from_secs(1)))
}

/// The controllers whose scale must be read before the budget is evaluated.
pub(crate) fn unread(world: &World, scales: &Scales, key: &ObjectKey, now: Now) -> Vec<OwnerReference> {
    let spec = world.disruption_budgets.get(key).and_then(|one| one.spec.as_ref());
    let strangers = spec.map(|spec| strangers(spec, &selected(world, &key.namespace, spec)));
    scales.unread(strangers.unwrap_or_default(), now.passed)
}

/// The controllers of the pods that no store here has, where the budget depends on how many pods they want.
fn strangers(spec: &PodDisruptionBudgetSpec, pods: &[&Pod]) -> Vec<OwnerReference> {
    if spec.max_unavailable.is_none() && !matches!(spec.min_available, Some(IntOrString::String(_))) {
        return Vec::new();
    }
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let owners = pods.iter().filter_map(|pod| controller_of(&pod.metadata)).filter(|owner| !is_ours(owner));
    owners.filter(|owner| known.insert(&owner.uid)).cloned().collect()
}

/// Whether a store here has the controllers of this kind.
fn is_ours(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split('/').next();
    matches!(
        (group, owner.kind.as_str()),
        (Some("apps"), "ReplicaSet" | "StatefulSet") | (Some("v1"), "ReplicationController")
    )
}

/// The pods that a budget is about.
fn selected<'a>(world: &'a World, namespace: &'a str, spec: &PodDisruptionBudgetSpec) -> Vec<&'a Pod> {
    let Some(selector) = &spec.selector else { return Vec::new() };
    let pods = world.pods.labelled(namespace, selector.match_labels.as_ref());
    pods.filter(|pod| selects_or_all(selector, pod.metadata.labels.as_ref())).collect()
}

/// How many pods are expected, and how many of them have to be healthy.
struct Expected {
    pods: i64,
    healthy: i64,
}

fn expected(world: &World, scales: &Scales, spec: &PodDisruptionBudgetSpec, pods: &[&Pod]) -> Result<Expected, String> {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let expected = expected_scale(world, scales, pods)?;
            Ok(Expected { pods: expected, healthy: (expected - scaled(Some(most), expected, true)).max(0) })
        }
        (None, Some(IntOrString::Int(least))) => {
            Ok(Expected { pods: i64::try_from(pods.len()).unwrap_or(i64::MAX), healthy: (*least).into() })
        }
        (None, least @ Some(IntOrString::String(_))) => {
            let expected = expected_scale(world, scales, pods)?;
            Ok(Expected { pods: expected, healthy: scaled(least.as_ref(), expected, true) })
        }
        (None, None) => Ok(Expected { pods: 0, healthy: 0 }),
    }
}

/// The pods that the controllers of these want together. Pods without a controller are not counted.
fn expected_scale(world: &World, known: &Scales, pods: &[&Pod]) -> Result<i64, String> {
    let mut scales: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller_of(&pod.metadata).filter(|owner| !scales.contains_key(owner.uid.as_str())) else {
            continue;
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let found = match known.of(&owner.uid).filter(|_| !is_ours(owner)) {
            Some(Ok(scale)) => Ok((owner.uid.as_str(), scale)),
            Some(Err(why)) => Err(format!(": {why}")),
            None => scale(world, namespace, owner).ok_or_else(String::new),
        };
        let (uid, scale) = found.map_err(|why| {
            format!("found no controllers for pod {:?}{why}", pod.metadata.name.as_deref().unwrap_or_default())
        })?;
        scales.insert(owner.uid.as_str(), 0);
        scales.insert(uid, scale);
    }
    Ok(scales.values().sum())
}

/// The controller that decides how many pods there are, and how many it wants: of a ReplicaSet, its Deployment.
fn scale<'a>(world: &'a World, namespace: &str, owner: &'a OwnerReference) -> Option<(&'a str, i64)> {
    let key = |name: &str| ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    let count = |replicas: Option<i32>| i64::from(replicas.unwrap_or(1));
    let same = |uid: Option<&str>| uid == Some(owner.uid.as_str());
    match (owner.api_version.split('/').next(), owner.kind.as_str()) {
        (Some("apps"), "ReplicaSet") => {
            let set = world.replica_sets.get(&key(&owner.name)).filter(|set| same(set.metadata.uid.as_deref()))?;
            match controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment") {
                Some(above) => {
                    let deployment = world.deployments.get(&key(&above.name))?;
                    let is = deployment.metadata.uid.as_deref() == Some(above.uid.as_str());
                    is.then(|| (above.uid.as_str(), count(deployment.spec.as_ref().and_then(|spec| spec.replicas))))
                }
                None => Some((&owner.uid, count(set.spec.as_ref()?.replicas))),
            }
        }
        (Some("apps"), "StatefulSet") => {
            let set = world.stateful_sets.get(&key(&owner.name)).filter(|set| same(set.metadata.uid.as_deref()))?;
            Some((&owner.uid, count(set.spec.as_ref()?.replicas)))
        }
        (Some("v1"), "ReplicationController") => {
            let one = world.replication_controllers.get(&key(&owner.name));
            let one = one.filter(|one| same(one.metadata.uid.as_deref()))?;
            Some((&owner.uid, count(one.spec.as_ref()?.replicas)))
        }
        _ => None,
    }
}

/// How long an eviction that was allowed at this time still counts.
fn left(time: Timestamp, now: Timestamp) -> Option<Duration> {
    let passed = now.duration_since(time);
    // From a clock that was ahead: it would count for as long as that.
    if -passed > SignedDuration::try_from(DELETION_TIMEOUT).unwrap_or_default() {
        return None;
    }
    DELETION_TIMEOUT.checked_sub(Duration::try_from(passed).unwrap_or_default())
}

/// The evictions that were allowed and are still awaited.
fn still_disrupted(old: &PodDisruptionBudgetStatus, pods: &[&Pod], now: Timestamp) -> BTreeMap<String, Time> {
    let mut told = old.disrupted_pods.clone().unwrap_or_default();
    told.retain(|_, time| left(time.0, now).is_some());
    if told.is_empty() {
        return told;
    }
    let staying = pods.iter().filter(|pod| !pod.is_deleting());
    let awaited: BTreeSet<&str> = staying.filter_map(|pod| pod.metadata.name.as_deref()).collect();
    told.retain(|name, _| awaited.contains(name.as_str()));
    told
}

fn counted(
    budget: &PodDisruptionBudget,
    old: &PodDisruptionBudgetStatus,
    pods: &[&Pod],
    expected: Expected,
    disrupted: BTreeMap<String, Time>,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let goes =
        |pod: &Pod| pod.is_deleting() || pod.metadata.name.as_ref().is_some_and(|name| disrupted.contains_key(name));
    let healthy = pods.iter().filter(|pod| pod.is_ready() && !goes(pod)).count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    // A budget without pods allows nothing: the first may be created before the next evaluation.
    let allowed = if expected.pods <= 0 { 0 } else { (healthy - expected.healthy).max(0) };
    let number = |count: i64| Some(i32::try_from(count).unwrap_or(i32::MAX));
    let (value, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let generation = budget.metadata.generation;
    let condition = condition(old, value, reason, String::new(), generation, now);
    PodDisruptionBudgetStatus {
        conditions: Some(with(old, condition)),
        current_healthy: number(healthy),
        desired_healthy: number(expected.healthy),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: number(allowed),
        expected_pods: number(expected.pods),
        observed_generation: generation,
    }
}

/// Allows no eviction while the number of allowed ones is unknown.
fn failed(old: &PodDisruptionBudgetStatus, message: String, now: Timestamp) -> PodDisruptionBudgetStatus {
    let condition = condition(old, "False", "SyncFailed", message, old.observed_generation, now);
    PodDisruptionBudgetStatus { conditions: Some(with(old, condition)), disruptions_allowed: Some(0), ..old.clone() }
}

fn condition(
    old: &PodDisruptionBudgetStatus,
    value: &str,
    reason: &str,
    message: String,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let before = old.conditions.iter().flatten().find(|one| one.type_ == DISRUPTION_ALLOWED);
    let since = before.filter(|before| before.status == value).map(|before| before.last_transition_time.clone());
    Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: since.unwrap_or(Time(now)),
    }
}

/// The conditions with this one in the place of the one before.
fn with(old: &PodDisruptionBudgetStatus, condition: Condition) -> Vec<Condition> {
    let others = old.conditions.clone().unwrap_or_default().into_iter();
    others.filter(|one| one.type_ != DISRUPTION_ALLOWED).chain([condition]).collect()
}
