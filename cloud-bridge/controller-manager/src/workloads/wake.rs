//! The objects that a change concerns: the object itself, its controllers before and after, and those that may adopt an
//! orphan. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::key::ObjectKey;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::index::controller_of;
use super::job::is_tracked;
use super::pod_gc;
use super::selector::{selects, selects_or_all};
use super::store::{Cached, Store, key_of};
use super::templated::{ReplicationController, StatefulSet};
use super::world::{Change, Kind, Task, World};

/// The kinds that have a controller here.
const CONTROLLERS: [Kind; 8] = [
    Kind::ReplicaSet,
    Kind::Deployment,
    Kind::ReplicationController,
    Kind::DaemonSet,
    Kind::StatefulSet,
    Kind::PodDisruptionBudget,
    Kind::Job,
    Kind::CronJob,
];

/// What happens to the pods of a Job is looked at together, not one by one (K8s `SyncJobBatchPeriod`).
const JOB_BATCH: Duration = Duration::from_secs(1);

/// How long a key that a change concerns may wait for more of the kind.
pub(crate) fn delay(task: &Task, change: &Change) -> Option<Duration> {
    match task.0 {
        Kind::Job if change.kind == Kind::Pod => Some(JOB_BATCH),
        // All that ended together.
        Kind::Pod if task.1.name.is_empty() => Some(pod_gc::CHECK),
        _ => None,
    }
}

/// The keys to process after a change.
pub(crate) fn tasks(world: &World, change: &Change) -> Vec<Task> {
    if change.kind == Kind::Node {
        let sets = world.daemon_sets.all().map(|set| (Kind::DaemonSet, key_of(set.meta())));
        // Its pods, if it was deleted or has returned.
        return sets.chain([(Kind::Node, change.seen.key.clone())]).collect();
    }
    if change.kind == Kind::PersistentVolumeClaim {
        return claimants(world, &change.seen.key);
    }
    let mut tasks = Vec::new();
    let namespace = &change.seen.key.namespace;
    let named = |name: &str| ObjectKey { namespace: namespace.clone(), name: name.to_owned() };
    if CONTROLLERS.contains(&change.kind) {
        tasks.push((change.kind, change.seen.key.clone()));
    }
    for owner in &change.seen.owners {
        let is_of = |kind: &&Kind| kind.name() == owner.kind && kind.api_version() == owner.api_version;
        tasks.extend(CONTROLLERS.iter().find(is_of).map(|kind| (*kind, named(&owner.name))));
        // A Deployment that recreates waits until no pod of its old ReplicaSets is left.
        if change.kind == Kind::Pod && change.seen.gone {
            let set = world.replica_sets.get(&named(&owner.name));
            let deployment = set.and_then(|set| controller_of(&set.metadata));
            tasks.extend(deployment.map(|deployment| (Kind::Deployment, named(&deployment.name))));
        }
    }
    if let Some(labels) = &change.seen.orphan {
        for kind in CONTROLLERS {
            tasks.extend(takers(world, kind, change.kind, namespace, labels).into_iter().map(|key| (kind, key)));
        }
        // The controller may be deleted without the pod, which its finalizer keeps.
        if change.kind == Kind::Pod && world.pods.get(&change.seen.key).is_some_and(is_tracked) {
            tasks.push((Kind::Pod, change.seen.key.clone()));
        }
    }
    if change.kind == Kind::Pod {
        tasks.extend(pod_gc::tasks_of_pod(world, &change.seen.key));
    }
    tasks.extend(budgets(world, change).into_iter().map(|key| (Kind::PodDisruptionBudget, key)));
    tasks
}

/// The budgets that a change concerns: those that select a pod or did so before, or the pods of a controller whose
/// scale has changed.
fn budgets(world: &World, change: &Change) -> Vec<ObjectKey> {
    let key = &change.seen.key;
    let template = |template: Option<&PodTemplateSpec>| {
        let labels = template.and_then(|template| template.metadata.as_ref()?.labels.clone());
        vec![labels.unwrap_or_default()]
    };
    // For a deleted object, its pods will have events.
    let labels = match change.kind {
        Kind::Pod => change.seen.labels.clone(),
        Kind::Deployment => template(world.deployments.get(key).and_then(|one| Some(&one.spec.as_ref()?.template))),
        Kind::ReplicaSet => template(world.replica_sets.get(key).and_then(|one| one.spec.as_ref()?.template.as_ref())),
        Kind::StatefulSet => template(world.stateful_sets.get(key).and_then(|one| Some(&one.spec.as_ref()?.template))),
        Kind::ReplicationController => {
            template(world.replication_controllers.get(key).and_then(|one| one.spec.as_ref()?.template.as_ref()))
        }
        _ => return Vec::new(),
    };
    let selects = |one: &&PodDisruptionBudget| {
        let selector = one.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| labels.iter().any(|labels| selects_or_all(selector, Some(labels))))
    };
    world.disruption_budgets.in_namespace(&key.namespace).filter(selects).map(|one| key_of(&one.metadata)).collect()
}

/// The objects of kind `controller` that select an orphan of kind `orphan` with these labels.
fn takers(
    world: &World,
    controller: Kind,
    orphan: Kind,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Vec<ObjectKey> {
    match (controller, orphan) {
        (Kind::ReplicaSet, Kind::Pod) => {
            selecting(&world.replica_sets, namespace, labels, |set| set.spec.as_ref().map(|spec| &spec.selector))
        }
        (Kind::Deployment, Kind::ReplicaSet) => {
            selecting(&world.deployments, namespace, labels, |one| one.spec.as_ref().map(|spec| &spec.selector))
        }
        (Kind::ReplicationController, Kind::Pod) => {
            let selects = |one: &&ReplicationController| {
                let wanted = one.spec.as_ref().and_then(|spec| spec.selector.clone());
                selects(&LabelSelector { match_labels: wanted, match_expressions: None }, Some(labels))
            };
            let takers = world.replication_controllers.in_namespace(namespace).filter(selects);
            takers.map(|one| key_of(&one.metadata)).collect()
        }
        (Kind::DaemonSet, Kind::Pod | Kind::ControllerRevision) => {
            selecting(&world.daemon_sets, namespace, labels, |one| one.spec.as_ref().map(|spec| &spec.selector))
        }
        (Kind::StatefulSet, Kind::Pod | Kind::ControllerRevision) => {
            selecting(&world.stateful_sets, namespace, labels, |one| one.spec.as_ref().map(|spec| &spec.selector))
        }
        (Kind::Job, Kind::Pod) => {
            selecting(&world.jobs, namespace, labels, |job| job.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
        }
        _ => Vec::new(),
    }
}

/// The StatefulSets one of whose claims this is, by its name.
fn claimants(world: &World, claim: &ObjectKey) -> Vec<Task> {
    let owns = |set: &&StatefulSet| {
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let mut prefixes = set.claims().map(|template| format!("{template}-{name}-"));
        prefixes.any(|prefix| claim.name.starts_with(&prefix))
    };
    let sets = world.stateful_sets.in_namespace(&claim.namespace).filter(owns);
    sets.map(|set| (Kind::StatefulSet, key_of(&set.metadata))).collect()
}

fn selecting<T: Cached>(
    store: &Store<T>,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    selector: impl Fn(&T) -> Option<&LabelSelector>,
) -> Vec<ObjectKey> {
    let matching =
        store.in_namespace(namespace).filter(|one| selector(one).is_some_and(|wanted| selects(wanted, Some(labels))));
    matching.map(|one| key_of(one.meta())).collect()
}
