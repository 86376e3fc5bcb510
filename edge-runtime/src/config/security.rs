//! The `security` section: defaults of pods, and further permissions by the administrator.

use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use crate::pod::sysctls;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SecurityConfig {
    /// A container without a seccomp profile gets `RuntimeDefault` (the kubelet's `seccompDefault`).
    pub seccomp_default: bool,
    /// Names and patterns ending in `*` (the kubelet's `allowedUnsafeSysctls`); namespaced ones only.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Most processes and threads of a pod (the kubelet's `podPidsLimit`); none: unlimited.
    pub pod_pids_limit: Option<u64>,
    /// Bodies of Secrets are not written to disk: pods that need them wait for the bridge after a restart.
    pub secrets_in_memory: bool,
}

impl SecurityConfig {
    /// The key and what is wrong with its value.
    pub(super) fn check(self) -> Result<Self, Wrong> {
        for pattern in &self.allowed_unsafe_sysctls {
            sysctls::check_pattern(pattern).map_err(|why| wrong("security.allowed-unsafe-sysctls", why))?;
        }
        if self.pod_pids_limit == Some(0) {
            return Err(wrong("security.pod-pids-limit", "must be at least 1"));
        }
        Ok(self)
    }
}
