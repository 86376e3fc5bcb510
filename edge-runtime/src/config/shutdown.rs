//! The `shutdown` section: what becomes of pods at the end of the machine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// As typed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ShutdownFile {
    pub grace_seconds: Option<u32>,
    pub critical_grace_seconds: Option<u32>,
    pub pods: AtShutdown,
}

/// What becomes of pods when the machine shuts down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtShutdown {
    /// They go on at the next boot.
    #[default]
    Resume,
    /// They end as `Failed`, as with a kubelet: for nodes whose pods are replaced elsewhere.
    Fail,
}

/// How long pods get when the machine shuts down.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownConfig {
    /// For pods that are not critical, which stop first.
    pub grace: Duration,
    /// For critical ones, after the others.
    pub critical_grace: Duration,
    pub pods: AtShutdown,
}

impl ShutdownConfig {
    pub(super) fn from_file(file: &ShutdownFile) -> Self {
        let seconds = |given: Option<u32>, default| Duration::from_secs(given.unwrap_or(default).into());
        Self {
            grace: seconds(file.grace_seconds, 20),
            critical_grace: seconds(file.critical_grace_seconds, 10),
            pods: file.pods,
        }
    }
}
