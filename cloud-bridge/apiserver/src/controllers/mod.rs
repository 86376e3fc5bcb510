//! Controllers that belong to the API itself: garbage collection, namespaces, definitions, volumes, quotas, ranges of
//! Services, aggregated roles, and the default objects of every namespace. Each controller follows the storage in its
//! own task; the code that writes does not know them.

pub(crate) mod bootstrap;
pub(crate) mod bootstrap_policy;
mod cluster_role_aggregation;
mod contents;
mod definitions;
mod garbage_collector;
mod namespaces;
mod queue;
mod resource_quota;
mod root_ca;
mod runner;
mod service_accounts;
mod service_cidrs;
mod volume_binder;

use std::sync::Arc;

use crate::state::Inner;

/// Starts them all on the current tokio runtime; they end with the storage.
pub(crate) fn start(inner: &Arc<Inner>) {
    runner::start::<service_accounts::ServiceAccounts>(inner);
    runner::start::<root_ca::RootCa>(inner);
    runner::start::<namespaces::Namespaces>(inner);
    runner::start::<definitions::Definitions>(inner);
    runner::start::<cluster_role_aggregation::ClusterRoleAggregation>(inner);
    runner::start::<service_cidrs::ServiceCidrs>(inner);
    runner::start::<volume_binder::VolumeBinder>(inner);
    runner::start::<resource_quota::ResourceQuota>(inner);
    runner::start::<garbage_collector::GarbageCollector>(inner);
}
