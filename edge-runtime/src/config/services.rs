//! The `services` section: whether this node serves Services.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ServicesConfig {
    /// Without it the bridge tells of no Service, and the kernel knows of none.
    pub enabled: bool,
    /// Pods ask the node for names, unless `network.cluster-dns` says whom.
    pub dns: bool,
}

impl ServicesConfig {
    pub fn has_dns(&self) -> bool {
        self.enabled && self.dns
    }
}

impl Default for ServicesConfig {
    fn default() -> Self {
        Self { enabled: true, dns: true }
    }
}
