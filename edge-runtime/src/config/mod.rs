//! The node's configuration: one YAML file and the flags of `run`, converted into valid values before anything is
//! opened. One file per section has its keys, their meaning, defaults and checks. Does not know how the values are
//! used.

pub mod devices;
mod error;
mod eviction;
mod file;
mod images;
mod lenient;
mod local_api;
mod logs;
mod metrics;
mod network;
mod node;
mod number;
mod plugins;
mod print;
mod proxy;
mod pull;
pub mod resources;
mod runtime;
mod security;
mod services;
mod shutdown;
mod upgrade;

use std::collections::BTreeMap;
use std::path::Path;

pub use error::ConfigError;
pub use eviction::EvictionConfig;
pub use file::{ConfigFile, read_text};
pub use images::ImagesConfig;
pub use local_api::{Listen, LocalApiConfig};
pub use logs::LogConfig;
pub use metrics::MetricsConfig;
pub use network::{NetworkConfig, NetworkMode, Routes};
pub use node::{Reserved, instance_suffix};
pub use plugins::PluginsConfig;
pub use pull::{PullConfig, Window};
pub use resources::ResourcesConfig;
pub use runtime::RuntimeConfig;
pub use security::SecurityConfig;
pub use services::ServicesConfig;
pub use shutdown::{AtShutdown, ShutdownConfig};
pub use upgrade::UpgradeConfig;

use self::devices::{DeviceClass, Handler};
use self::error::Wrong;
use crate::image::registry_config::RegistryConfig;
use crate::net::proxy::Proxy;
use crate::pod::cpus::CpuSet;
use crate::sys::cgroup::Driver;

/// Inputs beside the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// A flag of `edge-runtime run`, which overrides the file.
    pub node_name: Option<String>,
    /// The name under which the node has joined: used if the file does not name the node.
    pub joined: Option<String>,
}

/// A valid configuration. Every field has its effective value.
#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    pub labels: BTreeMap<String, String>,
    /// `key=value:Effect`, as kubelet's `--register-with-taints`.
    pub taints: Vec<String>,
    pub max_pods: u32,
    /// Kept back from allocatable for the runtime and the system.
    pub reserved: Reserved,
    /// CPUs that no container has for itself; none: the lowest.
    pub reserved_cpus: Option<CpuSet>,
    pub network: NetworkConfig,
    /// Parent of all pods' cgroups, below the root of each hierarchy.
    pub cgroup_parent: String,
    pub cgroup_driver: Driver,
    pub runtime: RuntimeConfig,
    pub logs: LogConfig,
    pub metrics: MetricsConfig,
    pub security: SecurityConfig,
    pub resources: ResourcesConfig,
    /// Device classes by resource name.
    pub devices: BTreeMap<String, DeviceClass>,
    /// Section as typed; the helper interprets it. `None`: no devices.
    pub device_twin: Option<serde_json::Value>,
    /// Handlers by name, beside the default one.
    pub runtimes: BTreeMap<String, Handler>,
    pub registries: Vec<RegistryConfig>,
    pub eviction: EvictionConfig,
    pub images: ImagesConfig,
    pub pull: PullConfig,
    pub proxy: Proxy,
    pub services: ServicesConfig,
    pub local_api: LocalApiConfig,
    pub plugins: PluginsConfig,
    pub shutdown: ShutdownConfig,
}

impl Config {
    /// Reads `file` if it exists, applies `overrides`, fills the rest with defaults for this `root`. Unknown keys and
    /// labels that the node may not have are left out, since the node must run. Returns a warning for each.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, a value out of range: each names the key.
    pub fn load_lenient(file: &Path, root: &Path, overrides: &Overrides) -> Result<(Self, Vec<String>), ConfigError> {
        let (parsed, left_out) = ConfigFile::read_lenient(file)?;
        Ok((Self::from_file(parsed, file, root, overrides)?, left_out))
    }

    /// The same from an already parsed file: pure but for the host's name and memory size.
    ///
    /// # Errors
    /// A value out of range, naming its key.
    pub fn from_file(parsed: ConfigFile, file: &Path, root: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let invalid = |(key, why)| ConfigError::Invalid { file: file.into(), key, why };
        Self::checked(parsed, root, overrides.clone()).map_err(invalid)
    }

    fn checked(file: ConfigFile, root: &Path, overrides: Overrides) -> Result<Self, Wrong> {
        node::check_labels(&file.labels)?;
        let pull = file.pull.check()?;
        let mut images = file.images.check()?;
        images.pinned.extend(pull.images.iter().cloned());
        let (reserved, reserved_cpus) = file.reserved.checked(file.resources.cpu_manager)?;
        Ok(Self {
            node_name: node::name(overrides.node_name.or(file.node_name).or(overrides.joined))?,
            labels: file.labels,
            taints: node::check_taints(file.taints)?,
            max_pods: node::max_pods(file.max_pods)?,
            reserved,
            reserved_cpus,
            network: NetworkConfig::from_file(file.network, root)?,
            cgroup_parent: node::cgroup_parent(file.cgroup_parent, file.cgroup_driver, root)?,
            cgroup_driver: file.cgroup_driver,
            runtime: file.runtime.check()?,
            logs: file.logs.check()?,
            metrics: file.metrics.check()?,
            security: file.security.check()?,
            resources: file.resources,
            devices: devices::devices(file.devices)?,
            device_twin: file.device_twin,
            runtimes: devices::runtimes(file.runtimes)?,
            registries: file.registry,
            eviction: EvictionConfig::from_file(&file.eviction)?,
            images,
            pull,
            proxy: proxy::checked(file.proxy)?,
            services: file.services.checked()?,
            local_api: file.local_api.checked()?,
            plugins: file.plugins.checked()?,
            shutdown: file.shutdown,
        })
    }
}

#[cfg(test)]
mod tests;
