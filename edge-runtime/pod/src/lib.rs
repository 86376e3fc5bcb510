//! State of a pod on this node and decisions about it, as pure functions over values.
//!
//! Path of one change: the node loop takes an event. [`transition::apply`] computes the next [`record::PodRecord`], and
//! [`reconcile::reconcile`] decides the next [`step::Step`]s. The loop commits the record and then executes the steps,
//! whose results return as events. [`status::publish`] converts the record into the API status. Nothing here does I/O,
//! reads a clock or knows runc, the store or the link.

pub mod admission;
pub mod affinity;
pub mod backoff;
pub mod clock;
pub mod cpus;
pub mod dns;
pub mod env;
pub mod ephemeral;
pub mod event;
pub mod extended_resources;
pub mod hold;
pub mod id;
pub mod local_api;
pub mod notice;
pub mod pause;
pub mod ports;
pub mod qos;
pub mod quantity;
pub mod reconcile;
pub mod record;
pub mod recursive_read_only;
pub mod refusal;
pub mod requests;
pub mod restart_policy;
pub mod services;
pub mod spec;
pub mod static_pod;
pub mod status;
pub mod step;
pub mod stop_signal;
pub mod strict;
pub mod support;
pub mod sysctls;
#[cfg(test)]
mod testing;
pub mod token;
pub mod transition;
