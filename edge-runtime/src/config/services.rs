//! The `services` section: whether this node serves Services.

use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use crate::net::services::node_ports::NodePorts;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ServicesConfig {
    /// Without it the bridge tells of no Service, and the kernel knows of none.
    pub enabled: bool,
    /// Pods use the node as DNS server, unless `network.cluster-dns` names others.
    pub dns: bool,
    /// Ranges of the node's own addresses at which node ports are served, or `primary`; none for all but loopback.
    pub node_port_addresses: Vec<String>,
}

impl ServicesConfig {
    pub(super) fn checked(self) -> Result<Self, Wrong> {
        NodePorts::read(&self.node_port_addresses, &[]).map_err(|why| wrong("services.node-port-addresses", why))?;
        Ok(self)
    }

    pub fn has_dns(&self) -> bool {
        self.enabled && self.dns
    }
}

impl Default for ServicesConfig {
    fn default() -> Self {
        Self { enabled: true, dns: true, node_port_addresses: Vec::new() }
    }
}
