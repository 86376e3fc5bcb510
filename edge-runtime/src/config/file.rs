//! The shape of `config.yaml`: every key optional, an unknown one refused (or, see `lenient`, left out). Knows no defaults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::devices::{DeviceFile, HandlerFile};
use super::security::SecurityFile;
use super::swap::ResourcesConfig;
use super::traffic::{PullFile, ShutdownFile};
use crate::image::registry_config::RegistryConfig;
use crate::sys::cgroup::Driver;

/// What was typed, before defaults and checks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ConfigFile {
    pub node_name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<String>,
    pub max_pods: Option<u32>,
    pub reserved: ReservedFile,
    pub network: NetworkFile,
    pub cgroup_parent: Option<String>,
    pub cgroup_driver: Driver,
    pub runtime: RuntimeFile,
    pub logs: LogFile,
    pub security: SecurityFile,
    pub resources: ResourcesConfig,
    pub devices: BTreeMap<String, DeviceFile>,
    pub runtimes: BTreeMap<String, HandlerFile>,
    pub registry: Vec<RegistryConfig>,
    pub eviction: EvictionFile,
    pub images: ImagesFile,
    pub pull: PullFile,
    pub shutdown: ShutdownFile,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ReservedFile {
    pub cpu_millis: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub storage_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NetworkFile {
    pub bridge: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_cidrs: Option<Vec<String>>,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: Option<String>,
    pub mode: NetworkMode,
    pub cni: CniFile,
}

/// Who connects pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// The built-in bridge.
    Builtin,
    /// CNI plugins; the node is not ready without a configuration of theirs.
    Cni,
    /// CNI plugins if there is a configuration, else the built-in bridge.
    #[default]
    Auto,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CniFile {
    pub conf_dir: Option<PathBuf>,
    pub bin_dirs: Option<Vec<PathBuf>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RuntimeFile {
    pub command: Option<PathBuf>,
    pub parallel: Option<usize>,
    pub request_timeout_seconds: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LogFile {
    pub max_bytes: Option<u64>,
    pub max_files: Option<u32>,
    pub bytes_per_second: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct EvictionFile {
    /// Threshold by signal, as the kubelet's `evictionHard`.
    pub hard: BTreeMap<String, String>,
    pub pressure_transition_seconds: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ImagesFile {
    pub gc_high_percent: Option<u64>,
    pub gc_low_percent: Option<u64>,
    pub gc_min_age_seconds: Option<u64>,
    pub pinned: Vec<String>,
}

/// Why the configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read config file {}: {source}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("config file {}: {message}", file.display())]
    Parse { file: PathBuf, message: String },
    #[error("config file {}, key {key}: {why}", file.display())]
    Invalid { file: PathBuf, key: String, why: String },
}

impl ConfigFile {
    /// An absent file is an empty one.
    ///
    /// # Errors
    /// The file cannot be read, is not YAML, or has an unknown key (named with its line).
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(&text, file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { file: file.into(), source }),
        }
    }

    /// # Errors
    /// As [`ConfigFile::read`]; `file` is only named in them.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_yaml_ng::from_str(text)
            .map_err(|error| ConfigError::Parse { file: file.into(), message: error.to_string().trim().to_owned() })
    }
}
