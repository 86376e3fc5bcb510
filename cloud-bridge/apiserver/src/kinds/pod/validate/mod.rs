//! Validation of pods: field paths and wording as the API server's, so that what kubectl prints is what its users
//! know. Follows pkg/apis/core/validation of Kubernetes 1.36. Pure; an object is expected to have passed its typed
//! decoding and its defaults.

pub(crate) mod affinity;
mod annotations;
mod container;
mod env;
pub(crate) mod ephemeral;
mod mount;
pub(crate) mod probe;
pub(crate) mod resize;
pub(crate) mod resources;
mod security;
pub(crate) mod spec;
pub(crate) mod status;
pub(crate) mod update;
mod volume;
