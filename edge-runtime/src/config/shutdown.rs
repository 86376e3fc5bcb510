//! The `shutdown` section: what becomes of pods at the end of the machine.

use serde::{Deserialize, Serialize};

use super::number::Number;

/// How pods end when the machine shuts down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtShutdown {
    /// Pods continue at the next boot.
    #[default]
    Resume,
    /// Pods end as `Failed`, as with a kubelet: for nodes whose pods are replaced on other nodes.
    Fail,
}

/// How long pods get when the machine shuts down.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ShutdownConfig {
    /// Time for pods that are not critical, which stop first.
    pub grace_seconds: Number<u32, 20>,
    /// Time for critical pods, which stop last.
    pub critical_grace_seconds: Number<u32, 10>,
    pub pods: AtShutdown,
}
