//! The built-in kinds: a folder or a file for each with its value, and the table of them (`table`). And the kind of custom
//! resources.

mod bare;
pub(crate) mod certificate_signing_request;
pub(crate) mod cidr;
mod columns;
mod conditions;
mod config;
mod controller_revision;
mod cron_job;
mod csi;
pub(crate) mod custom;
mod daemon_set;
mod defaults;
mod deployment;
pub(crate) mod disruption_budget;
mod endpoint_slice;
mod endpoints;
pub(crate) mod event;
mod horizontal_pod_autoscaler;
mod ingress;
mod ingress_class;
pub(crate) mod ip_address;
mod job;
mod kind;
mod lease;
pub(crate) mod limit_range;
pub(crate) mod metrics;
mod namespace;
mod network_policy;
pub(crate) mod node;
pub(crate) mod pod;
mod pod_template;
pub(crate) mod priority_class;
mod rbac;
mod refused;
mod replica_set;
mod replication_controller;
pub(crate) mod resource_quota;
mod reviews;
mod runtime_class;
pub(crate) mod service;
mod service_account;
pub(crate) mod service_cidr;
mod stateful_set;
pub(crate) mod storage_class;
mod table;
pub(crate) mod volume;
mod workload;

use std::sync::Arc;

use crate::resource::Resource;
use kind::Kind;
use table::{KINDS, without_objects};

/// The kinds with objects, in discovery order.
fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().chain([&custom::definition::KIND])
}

/// The built-in resources, in discovery order.
pub fn resources() -> Vec<Arc<Resource>> {
    kinds().map(|kind| kind.resource()).chain(without_objects()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::codec::messages;

    #[test]
    fn each_kind_has_names_of_its_own_a_type_and_a_shape() {
        let mut names = BTreeSet::new();
        for kind in kinds() {
            let (group, version) = (kind.group, kind.version);
            let new = names.insert((group, version, kind.plural)) && names.insert((group, version, kind.kind));
            assert!(new, "{}", kind.kind);
            assert!(kind.check.is_some(), "{} has no typed check", kind.kind);
            let shape = messages::message(&messages::message_name(kind.group, kind.version, kind.kind));
            assert!(shape.is_some(), "{}: run scripts/proto-messages", kind.kind);
        }
        for short in kinds().flat_map(|kind| kind.short_names) {
            assert!(names.insert(("", "", short)) || matches!(*short, "ev" | "hpa"), "{short} stands for two kinds");
        }
    }
}
