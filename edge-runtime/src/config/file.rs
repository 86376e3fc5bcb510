//! The shape of `config.yaml`: every key optional, an unknown one refused (or, see `lenient`, left out). A section that needs nothing of
//! the host for its defaults has them at once; the others are checked and filled when the configuration is made.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::devices::{DeviceFile, Handler};
use super::error::ConfigError;
use super::eviction::EvictionFile;
use super::images::ImagesConfig;
use super::local_api::LocalApiConfig;
use super::logs::LogConfig;
use super::metrics::MetricsConfig;
use super::network::NetworkFile;
use super::node::Reserved;
use super::plugins::PluginsConfig;
use super::pull::PullConfig;
use super::resources::ResourcesConfig;
use super::runtime::RuntimeConfig;
use super::security::SecurityConfig;
use super::services::ServicesConfig;
use super::shutdown::ShutdownConfig;
use super::upgrade::UpgradeConfig;
use crate::image::registry_config::RegistryConfig;
use crate::net::proxy::Proxy;
use crate::sys::cgroup::Driver;

/// Bytes of the file.
const LONGEST: u64 = 1 << 20;

/// The file as it is.
///
/// # Errors
/// It cannot be read, is not a regular file, or is too long.
pub fn read_text(file: &Path) -> io::Result<String> {
    sampan_file::read_text(file, LONGEST)
}

/// The file as typed, before defaults and checks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ConfigFile {
    pub node_name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<String>,
    pub max_pods: Option<u32>,
    pub reserved: Reserved,
    pub network: NetworkFile,
    pub cgroup_parent: Option<String>,
    pub cgroup_driver: Driver,
    pub runtime: RuntimeConfig,
    pub logs: LogConfig,
    pub metrics: MetricsConfig,
    pub security: SecurityConfig,
    pub resources: ResourcesConfig,
    pub devices: BTreeMap<String, DeviceFile>,
    pub device_twin: Option<serde_json::Value>,
    pub runtimes: BTreeMap<String, Handler>,
    pub registry: Vec<RegistryConfig>,
    pub eviction: EvictionFile,
    pub images: ImagesConfig,
    pub pull: PullConfig,
    pub proxy: Proxy,
    pub services: ServicesConfig,
    pub local_api: LocalApiConfig,
    pub plugins: PluginsConfig,
    pub shutdown: ShutdownConfig,
    pub upgrade: UpgradeConfig,
}

impl ConfigFile {
    /// An absent file is an empty one.
    ///
    /// # Errors
    /// The file cannot be read, is not YAML, or has an unknown key (named with its line).
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        match read_text(file) {
            Ok(text) => Self::parse(&text, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { file: file.into(), source }),
        }
    }

    /// # Errors
    /// Same as [`ConfigFile::read`]; `file` only names the file in them.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_yaml_ng::from_str(text)
            .map_err(|error| ConfigError::Parse { file: file.into(), message: error.to_string().trim().to_owned() })
    }
}
