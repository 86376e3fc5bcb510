//! The status of a ReplicaSet (K8s pkg/controller/replicaset/replica_set_utils.go).

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Pod;
use crate::workloads::now::Now;
use crate::workloads::plan::Failure;

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The pods that the status counts.
pub(super) struct Pods<'a> {
    pub(super) active: &'a [&'a Pod],
    pub(super) terminating: usize,
}

/// The desired status. `failure` is the last error with the pods.
pub(super) fn status(
    set: &ReplicaSet,
    spec: &ReplicaSetSpec,
    old: &ReplicaSetStatus,
    pods: Pods<'_>,
    failure: Option<&Failure>,
    now: Now,
) -> ReplicaSetStatus {
    let count = |counts: &dyn Fn(&Pod) -> bool| number(pods.active.iter().filter(|pod| counts(pod)).count());
    let wanted = spec.template.as_ref().and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    let labelled = |pod: &Pod| {
        let has =
            |name: &String, value: &String| pod.metadata.labels.as_ref().and_then(|all| all.get(name)) == Some(value);
        wanted.into_iter().flatten().all(|(name, value)| has(name, value))
    };
    let min_ready = spec.min_ready_seconds.unwrap_or_default();
    ReplicaSetStatus {
        replicas: number(pods.active.len()),
        fully_labeled_replicas: filled(count(&labelled)),
        ready_replicas: filled(count(&Pod::is_ready)),
        available_replicas: filled(count(&|pod| pod.is_available(min_ready, now))),
        terminating_replicas: Some(number(pods.terminating)),
        observed_generation: set.metadata.generation,
        conditions: conditions(spec, old, pods.active.len(), failure, now),
    }
}

fn conditions(
    spec: &ReplicaSetSpec,
    old: &ReplicaSetStatus,
    active: usize,
    failure: Option<&Failure>,
    now: Now,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = old.conditions.clone().unwrap_or_default();
    match failure.filter(|failure| !failure.namespace_ends) {
        // The first reason stays until it is over.
        Some(failure) if conditions.iter().all(|one| one.type_ != REPLICA_FAILURE) => {
            let too_few = number(active) < super::replicas(spec);
            conditions.push(ReplicaSetCondition {
                type_: REPLICA_FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some(if too_few { "FailedCreate" } else { "FailedDelete" }.to_owned()),
                message: Some(failure.message.clone()),
                last_transition_time: Some(Time(now.clock)),
            });
        }
        Some(_) => {}
        None => conditions.retain(|one| one.type_ != REPLICA_FAILURE),
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// A count; zero is left out, as Kubernetes does.
fn filled(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
