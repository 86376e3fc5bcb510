//! The built-in kinds: a folder or a file for each with its value, and the table of them. And the kind of custom
//! resources.

mod bare;
mod columns;
mod config;
mod controller_revision;
mod cron_job;
pub(crate) mod custom;
mod daemon_set;
mod defaults;
mod deployment;
mod endpoint_slice;
mod endpoints;
mod event;
mod job;
mod kind;
mod lease;
pub(crate) mod metrics;
mod namespace;
pub(crate) mod node;
pub(crate) mod pod;
mod pod_template;
mod rbac;
mod refused;
mod replica_set;
mod replication_controller;
mod reviews;
mod runtime_class;
pub(crate) mod service;
mod service_account;
mod stateful_set;
mod volume;
mod workload;

use std::sync::Arc;

use crate::resource::Resource;
use kind::Kind;

/// The kinds, in discovery order.
static KINDS: &[&Kind] = &[
    &config::CONFIG_MAP,
    &endpoints::KIND,
    &event::KIND,
    &namespace::KIND,
    &node::KIND,
    &volume::PERSISTENT_VOLUME_CLAIM,
    &volume::PERSISTENT_VOLUME,
    &pod::KIND,
    &pod_template::KIND,
    &replication_controller::KIND,
    &config::SECRET,
    &service_account::KIND,
    &service::KIND,
    &controller_revision::KIND,
    &daemon_set::KIND,
    &deployment::KIND,
    &replica_set::KIND,
    &stateful_set::KIND,
    &cron_job::KIND,
    &job::KIND,
    &lease::KIND,
    &endpoint_slice::KIND,
    &event::IN_ITS_GROUP,
    &runtime_class::KIND,
    &rbac::CLUSTER_ROLE_BINDING,
    &rbac::CLUSTER_ROLE,
    &rbac::ROLE_BINDING,
    &rbac::ROLE,
    &custom::definition::KIND,
];

/// The built-in resources, in discovery order.
pub fn resources() -> Vec<Arc<Resource>> {
    let without_objects = metrics::resources().into_iter().chain(reviews::resources()).chain(refused::resources());
    KINDS.iter().map(|kind| kind.resource()).chain(without_objects).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::codec::messages;

    #[test]
    fn each_kind_has_names_of_its_own_a_type_and_a_shape() {
        let mut names = BTreeSet::new();
        for kind in KINDS {
            assert!(names.insert((kind.group, kind.plural)) && names.insert((kind.group, kind.kind)), "{}", kind.kind);
            assert!(kind.check.is_some(), "{} has no typed check", kind.kind);
            let shape = messages::message(&messages::message_name(kind.group, kind.kind));
            assert!(shape.is_some(), "{}: run scripts/proto-messages", kind.kind);
        }
        for short in KINDS.iter().flat_map(|kind| kind.short_names) {
            assert!(names.insert(("", short)) || *short == "ev", "{short} stands for two kinds");
        }
    }
}
