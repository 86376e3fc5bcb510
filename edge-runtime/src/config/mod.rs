//! The node's configuration: one YAML file and the flags of `run`, made into valid values before
//! anything is opened. Owns defaults and their checks; knows nothing of what the values are used for.

mod defaults;
pub mod devices;
mod file;
mod lenient;
mod print;
mod resources;
mod security;
pub mod swap;
mod traffic;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use defaults::instance_suffix;
pub use file::{ConfigError, ConfigFile, NetworkMode};
pub use resources::{EvictionConfig, ImagesConfig};
pub use security::SecurityConfig;
pub use swap::ResourcesConfig;
pub use traffic::{AtShutdown, PullConfig, ShutdownConfig};

use self::devices::{DeviceClass, Handler};
use crate::image::registry_config::RegistryConfig;
use crate::monitor::client::RUNTIME_TIMEOUT;
use crate::net::Subnet;
use crate::sys::cgroup::{Driver, check_slice_parent};

/// Flags of `edge-runtime run` that override the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub node_name: Option<String>,
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
    pub network: NetworkConfig,
    /// Parent of all pods' cgroups, below the root of each hierarchy.
    pub cgroup_parent: String,
    pub cgroup_driver: Driver,
    pub runtime: RuntimeConfig,
    pub logs: LogConfig,
    pub security: SecurityConfig,
    pub resources: ResourcesConfig,
    /// By resource name.
    pub devices: BTreeMap<String, DeviceClass>,
    /// By name, beside the default one.
    pub runtimes: BTreeMap<String, Handler>,
    pub registries: Vec<RegistryConfig>,
    pub eviction: EvictionConfig,
    pub images: ImagesConfig,
    pub pull: PullConfig,
    pub shutdown: ShutdownConfig,
}

#[derive(Clone, Debug)]
pub struct Reserved {
    pub cpu_millis: u64,
    pub memory_bytes: u64,
    pub storage_bytes: u64,
}

#[derive(Clone, Debug)]
pub struct NetworkConfig {
    pub bridge: String,
    /// Pod subnets of this node: one, or one of each family.
    pub subnets: Vec<Subnet>,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    pub mode: NetworkMode,
    /// Folder of CNI configurations, and folders of plugins in the order of search.
    pub cni_conf_dir: PathBuf,
    pub cni_bin_dirs: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The OCI runtime's command: `runc`, `crun`, `youki` or a path.
    pub command: PathBuf,
    /// How many starts run at once. The peers' measured optimum is two to four on two cores.
    pub parallel: usize,
    /// How long it may take for one thing.
    pub request_timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct LogConfig {
    pub max_bytes: u64,
    pub max_files: u32,
    /// What one container may log; `None` for as much as it likes.
    pub bytes_per_second: Option<u64>,
}

impl Config {
    /// Reads `file` if it is there, applies `overrides`, fills the rest with defaults for this `root`. A node has to run:
    /// keys that are not known are left out. Gives what is to be said of each.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, a value out of range: each names the key.
    pub fn load_lenient(
        file: &Path,
        root: &Path,
        overrides: &Overrides,
        joined_name: Option<&str>,
    ) -> Result<(Self, Vec<String>), ConfigError> {
        let (parsed, left_out) = ConfigFile::read_lenient(file)?;
        Ok((Self::from_file(parsed, file, root, overrides, joined_name)?, left_out))
    }

    /// The same from an already parsed file: pure but for the host's name and memory size.
    ///
    /// # Errors
    /// A value out of range, naming its key.
    pub fn from_file(
        parsed: ConfigFile,
        file: &Path,
        root: &Path,
        overrides: &Overrides,
        joined_name: Option<&str>,
    ) -> Result<Self, ConfigError> {
        let invalid = |key: &str, why: String| ConfigError::Invalid { file: file.into(), key: key.into(), why };
        let suffix = instance_suffix(root);
        let node_name = overrides
            .node_name
            .clone()
            .or(parsed.node_name)
            .or_else(|| joined_name.map(str::to_owned))
            .unwrap_or_else(defaults::host_name);
        defaults::check_node_name(&node_name).map_err(|why| invalid("node-name", why))?;
        let network = parsed.network;
        let (key, subnets) = match (network.subnet, network.pod_cidrs) {
            (Some(_), Some(_)) => {
                return Err(invalid("network.subnet", "is the same as network.pod-cidrs: give only one".into()));
            }
            (_, Some(several)) => ("network.pod-cidrs", several),
            (one, None) => ("network.subnet", vec![one.unwrap_or_else(|| defaults::subnet(root))]),
        };
        let subnets = defaults::parse_subnets(&subnets).map_err(|why| invalid(key, why))?;
        let bridge = network.bridge.unwrap_or_else(|| defaults::bridge_name(suffix.as_deref()));
        // The kernel's IFNAMSIZ is 16 with the terminating zero.
        if bridge.is_empty() || bridge.len() > 15 || bridge.contains(['/', ' ']) {
            return Err(invalid("network.bridge", format!("'{bridge}' is no interface name of 1 to 15 characters")));
        }
        let cgroup_parent = parsed.cgroup_parent.unwrap_or_else(|| defaults::cgroup_parent(suffix.as_deref()));
        if !cgroup_parent.starts_with('/') || cgroup_parent.contains("..") {
            return Err(invalid("cgroup-parent", format!("'{cgroup_parent}' is not an absolute cgroup path")));
        }
        if parsed.cgroup_driver == Driver::Systemd {
            check_slice_parent(&cgroup_parent).map_err(|why| invalid("cgroup-parent", why))?;
        }
        let max_pods = parsed.max_pods.unwrap_or(110);
        if max_pods == 0 {
            return Err(invalid("max-pods", "must be at least 1".into()));
        }
        let parallel = parsed.runtime.parallel.unwrap_or_else(defaults::parallel_starts);
        if !(1..=16).contains(&parallel) {
            return Err(invalid("runtime.parallel", format!("{parallel} is outside 1 to 16")));
        }
        let logs = LogConfig {
            max_bytes: parsed.logs.max_bytes.unwrap_or(10 << 20),
            max_files: parsed.logs.max_files.unwrap_or(5),
            bytes_per_second: match parsed.logs.bytes_per_second {
                Some(0) => None,
                rate => Some(rate.unwrap_or(defaults::LOG_BYTES_PER_SECOND)),
            },
        };
        let request_timeout = parsed.runtime.request_timeout_seconds.map_or(RUNTIME_TIMEOUT, Duration::from_secs);
        if !(1..=3600).contains(&request_timeout.as_secs()) {
            return Err(invalid("runtime.request-timeout-seconds", "must be 1 to 3600".into()));
        }
        if logs.bytes_per_second.is_some_and(|rate| rate < 1024) {
            return Err(invalid("logs.bytes-per-second", "must be at least 1024, or 0 for no limit".into()));
        }
        if logs.max_bytes < 4096 || logs.max_files < 2 {
            return Err(invalid("logs", "max-bytes must be at least 4096 and max-files at least 2".into()));
        }
        for taint in &parsed.taints {
            defaults::check_taint(taint).map_err(|why| invalid("taints", why))?;
        }
        let devices = devices::devices(parsed.devices).map_err(|(key, why)| invalid(&key, why))?;
        let runtimes = devices::runtimes(parsed.runtimes).map_err(|(key, why)| invalid(&key, why))?;
        let security = parsed.security.check().map_err(|(key, why)| invalid(key, why))?;
        let eviction = EvictionConfig::from_file(&parsed.eviction).map_err(|(key, why)| invalid(&key, why))?;
        let mut images = ImagesConfig::from_file(parsed.images).map_err(|(key, why)| invalid(key, why))?;
        let pull = PullConfig::from_file(parsed.pull).map_err(|(key, why)| invalid(key, why))?;
        images.pinned.extend(pull.images.iter().cloned());
        let shutdown = ShutdownConfig::from_file(&parsed.shutdown);
        Ok(Self {
            node_name,
            labels: parsed.labels,
            taints: parsed.taints,
            max_pods,
            reserved: Reserved {
                cpu_millis: parsed.reserved.cpu_millis.unwrap_or(0),
                memory_bytes: parsed.reserved.memory_bytes.unwrap_or(0),
                storage_bytes: parsed.reserved.storage_bytes.unwrap_or(0),
            },
            network: NetworkConfig {
                bridge,
                subnets,
                cluster_dns: network.cluster_dns,
                cluster_domain: network.cluster_domain.unwrap_or_else(|| "cluster.local".into()),
                mode: network.mode,
                cni_conf_dir: network.cni.conf_dir.unwrap_or_else(|| root.join("etc/cni/net.d")),
                cni_bin_dirs: network.cni.bin_dirs.unwrap_or_else(defaults::cni_bin_dirs),
            },
            cgroup_parent,
            cgroup_driver: parsed.cgroup_driver,
            runtime: RuntimeConfig {
                command: parsed.runtime.command.unwrap_or_else(|| "runc".into()),
                parallel,
                request_timeout,
            },
            logs,
            security,
            resources: parsed.resources,
            devices,
            runtimes,
            registries: parsed.registry,
            eviction,
            images,
            pull,
            shutdown,
        })
    }
}

#[cfg(test)]
mod tests;
