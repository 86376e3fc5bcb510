//! What a pod is on this node and what to do next about it, as pure functions over values.
//!
//! The road of one change: the node loop takes an event, [`transition::apply`] makes the next
//! [`record::PodRecord`], [`reconcile::reconcile`] decides the next [`step::Step`]s, the loop commits the record
//! and then executes the steps, whose outcome comes back as events. [`status::publish`] turns the record into
//! what the API shows. Nothing here does I/O, reads a clock or knows runc, the store or the link.

pub mod admission;
pub mod affinity;
pub mod backoff;
pub mod clock;
pub mod dns;
pub mod env;
pub mod ephemeral;
pub mod event;
pub mod extended_resources;
pub mod id;
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
