//! A ReplicationController as the ReplicaSet that it is (K8s pkg/controller/replication/conversion.go).

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{ReplicationController, ReplicationControllerCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(super) fn as_set(controller: &ReplicationController) -> ReplicaSet {
    let spec = controller.spec.clone().map(|spec| ReplicaSetSpec {
        min_ready_seconds: spec.min_ready_seconds,
        replicas: spec.replicas,
        selector: LabelSelector { match_labels: spec.selector, match_expressions: None },
        template: spec.template,
    });
    let status = controller.status.clone().map(|status| ReplicaSetStatus {
        available_replicas: status.available_replicas,
        conditions: status.conditions.map(|all| all.into_iter().map(as_set_condition).collect()),
        fully_labeled_replicas: status.fully_labeled_replicas,
        observed_generation: status.observed_generation,
        ready_replicas: status.ready_replicas,
        replicas: status.replicas,
        terminating_replicas: None,
    });
    ReplicaSet { metadata: controller.metadata.clone(), spec, status }
}

fn as_set_condition(condition: ReplicationControllerCondition) -> ReplicaSetCondition {
    ReplicaSetCondition {
        last_transition_time: condition.last_transition_time,
        message: condition.message,
        reason: condition.reason,
        status: condition.status,
        type_: condition.type_,
    }
}
