//! Validation of built-in kinds: field paths and wording as the API server's, so that what kubectl prints is
//! what its users know. Follows pkg/apis/core/validation of Kubernetes 1.36. Pure; an object is expected to
//! have passed its typed decoding and its defaults.

pub(super) mod affinity;
pub(super) mod config;
pub(super) mod container;
pub(super) mod env;
pub(super) mod metadata;
pub(super) mod mount;
pub(super) mod network;
pub(super) mod node;
pub(super) mod pod;
mod pod_annotations;
pub(super) mod pod_ephemeral;
pub(super) mod pod_resize;
pub(super) mod pod_status;
pub(super) mod pod_update;
pub(super) mod probe;
pub(super) mod resources;
pub(super) mod runtime_class;
pub(super) mod security;
pub(super) mod storage;
pub(super) mod volume;

pub use metadata::{validate_object_meta, validate_object_meta_update};
