//! The table of built-in kinds, without the definitions of custom resources: these may not use a name of the table.

use std::sync::Arc;

use super::kind::Kind;
use super::{
    certificate_signing_request, config, controller_revision, cron_job, csi, daemon_set, deployment, disruption_budget,
    endpoint_slice, endpoints, event, horizontal_pod_autoscaler, ingress, ingress_class, ip_address, job, lease,
    limit_range, metrics, namespace, network_policy, node, pod, pod_template, priority_class, rbac, refused,
    replica_set, replication_controller, resource_quota, reviews, runtime_class, service, service_account,
    service_cidr, stateful_set, storage_class, volume,
};
use crate::resource::Resource;

/// The kinds, in discovery order.
pub(super) static KINDS: &[&Kind] = &[
    &config::CONFIG_MAP,
    &endpoints::KIND,
    &event::KIND,
    &limit_range::KIND,
    &namespace::KIND,
    &node::KIND,
    &volume::PERSISTENT_VOLUME_CLAIM,
    &volume::PERSISTENT_VOLUME,
    &pod::KIND,
    &pod_template::KIND,
    &replication_controller::KIND,
    &resource_quota::KIND,
    &config::SECRET,
    &service_account::KIND,
    &service::KIND,
    &controller_revision::KIND,
    &daemon_set::KIND,
    &deployment::KIND,
    &replica_set::KIND,
    &stateful_set::KIND,
    &horizontal_pod_autoscaler::KIND,
    &horizontal_pod_autoscaler::V1,
    &cron_job::KIND,
    &job::KIND,
    &certificate_signing_request::KIND,
    &lease::KIND,
    &endpoint_slice::KIND,
    &event::IN_ITS_GROUP,
    &runtime_class::KIND,
    &rbac::CLUSTER_ROLE_BINDING,
    &rbac::CLUSTER_ROLE,
    &rbac::ROLE_BINDING,
    &rbac::ROLE,
    &ingress_class::KIND,
    &ingress::KIND,
    &ip_address::KIND,
    &network_policy::KIND,
    &service_cidr::KIND,
    &disruption_budget::KIND,
    &priority_class::KIND,
    &csi::DRIVER,
    &csi::NODE,
    &csi::STORAGE_CAPACITY,
    &storage_class::KIND,
    &csi::VOLUME_ATTACHMENT,
    &csi::ATTRIBUTES_CLASS,
];

/// Resources without stored objects, in discovery order.
pub(super) fn without_objects() -> impl Iterator<Item = Arc<Resource>> {
    metrics::resources().into_iter().chain(reviews::resources()).chain(refused::resources())
}

/// Whether a resource of the table has this group and plural.
pub(super) fn has(group: &str, plural: &str) -> bool {
    KINDS.iter().any(|kind| kind.group == group && kind.plural == plural)
        || without_objects().any(|one| one.group == group && one.plural == plural)
}
