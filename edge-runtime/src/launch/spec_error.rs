//! Why the OCI configuration of a container, or the values of its cgroup, cannot be made from the pod.

use std::path::PathBuf;

use thiserror::Error;

/// Each is a `CreateContainerConfigError` or `CreateContainerError` to the pod.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    #[error("no command specified")]
    NoCommand,
    #[error("mount path {0} is not absolute")]
    RelativeMount(PathBuf),
    #[error("unknown capability \"{0}\"")]
    UnknownCapability(String),
    #[error("invalid quantity \"{value}\" in {field}")]
    Quantity { field: String, value: String },
}
