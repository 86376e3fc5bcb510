//! Environment, command and arguments of a container, resolved from the pod, ConfigMaps and Secrets. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use thiserror::Error;

/// A reference that cannot be resolved now. The text is the kubelet's: it becomes the message of
/// `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct EnvError(pub String);

/// Where referenced values come from; each asked by name in the pod's namespace.
pub struct Sources<'a> {
    pub config_map: &'a dyn Fn(&str) -> Option<ConfigMap>,
    pub secret: &'a dyn Fn(&str) -> Option<Secret>,
    /// Value of a `fieldRef` path (`metadata.name`, `status.podIP`, ...).
    pub field: &'a dyn Fn(&str) -> Result<String, String>,
    /// Value of a `resourceFieldRef`: container name, resource, divisor.
    pub resource: &'a dyn Fn(&str, &str, Option<&str>) -> Result<String, String>,
}

/// The resolved environment in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub vars: Vec<(String, String)>,
    /// Keys of `envFrom` that are no valid names, per source: for a Warning event
    /// `InvalidEnvironmentVariableNames`.
    pub invalid: Vec<String>,
}

/// `env` and `envFrom` of one container, in the kubelet's order and with `$(VAR)` expanded.
///
/// # Errors
/// A missing object or key that is not optional, or a field that cannot be had.
pub fn environment(pod: &Pod, container: &Container, sources: &Sources<'_>) -> Result<Environment, EnvError> {
    let _ = (pod, container, sources);
    Ok(Environment::default())
}

/// The process to run: `command` replaces the entrypoint and drops the image's cmd, `args` replaces the cmd;
/// `$(VAR)` is expanded from `vars` in the container's own words, never in the image's.
pub fn argv(container: &Container, entrypoint: &[String], cmd: &[String], vars: &[(String, String)]) -> Vec<String> {
    let _ = (container, entrypoint, cmd, vars, BTreeMap::<String, String>::new());
    Vec::new()
}
