//! The `resources` section: swap, what happens where memory cannot be limited, and exclusive CPUs.

use serde::{Deserialize, Serialize};

/// Swap that containers may use (the kubelet's `swapBehavior`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    #[default]
    None,
    /// Burstable containers, in proportion to their memory request.
    Limited,
    /// All that exists: for boards that swap into compressed memory.
    Unlimited,
}

/// A pod with a memory limit on a kernel without the memory controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unlimited {
    /// Runs without the limit, with a Warning event.
    #[default]
    Warn,
    /// Fails.
    Refuse,
}

/// CPUs that containers have for themselves (the kubelet's `cpuManagerPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuManager {
    #[default]
    None,
    /// Containers of Guaranteed pods that request whole CPUs.
    Static,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ResourcesConfig {
    pub swap: Swap,
    pub without_memory_controller: Unlimited,
    pub cpu_manager: CpuManager,
}
