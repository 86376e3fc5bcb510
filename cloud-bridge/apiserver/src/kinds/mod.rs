//! The built-in kinds: a folder or a file for each with its value, and the table of them. And the kind of custom
//! resources.

mod columns;
mod config;
pub(crate) mod custom;
mod defaults;
mod deployment;
mod endpoint_slice;
mod endpoints;
mod event;
mod kind;
mod lease;
pub(crate) mod metrics;
mod namespace;
pub(crate) mod node;
pub(crate) mod pod;
mod runtime_class;
pub(crate) mod service;
mod service_account;
mod volume;

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
    &config::SECRET,
    &service_account::KIND,
    &service::KIND,
    &deployment::KIND,
    &lease::KIND,
    &endpoint_slice::KIND,
    &event::IN_ITS_GROUP,
    &runtime_class::KIND,
    &custom::definition::KIND,
];

/// The built-in resources, in discovery order.
pub fn resources() -> Vec<Arc<Resource>> {
    KINDS.iter().map(|kind| kind.resource()).chain(metrics::resources()).collect()
}
