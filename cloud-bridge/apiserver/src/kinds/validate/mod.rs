//! Validation of built-in kinds: field paths and wording as the API server's, so that what kubectl prints is
//! what its users know. Follows pkg/apis/core/validation of Kubernetes 1.36. Pure; an object is expected to
//! have passed its typed decoding and its defaults.

pub(crate) mod affinity;
pub(crate) mod config;
pub(crate) mod container;
pub(crate) mod env;
pub(crate) mod mount;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod pod;
mod pod_annotations;
pub(crate) mod pod_ephemeral;
pub(crate) mod pod_resize;
pub(crate) mod pod_status;
pub(crate) mod pod_update;
pub(crate) mod probe;
pub(crate) mod resources;
pub(crate) mod runtime_class;
pub(crate) mod security;
pub(crate) mod storage;
pub(crate) mod volume;
