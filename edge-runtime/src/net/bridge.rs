//! The built-in pod network: one bridge per node, one veth pair per pod, masquerade for what leaves the node.
//!
//! Every call converges: it may be repeated after a crash at any point. Knows nothing of leases and containers.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;

use super::{NetError, Subnet};

#[derive(Clone, Debug)]
pub struct NetworkSettings {
    /// Name of the bridge (and of the nft table), at most 15 characters. Nodes on one host need different ones.
    pub bridge: String,
    /// Pod subnet of this node; its first host address is the bridge's.
    pub subnet: Subnet,
    /// MTU of the pods' links; the uplink's, if that is smaller than 1500.
    pub mtu: u32,
}

/// The bridge network of one node.
#[derive(Debug)]
pub struct Network {
    settings: NetworkSettings,
}

impl Network {
    /// Checks the settings and opens the netlink socket; changes nothing.
    pub fn new(settings: NetworkSettings) -> Result<Self, NetError> {
        Ok(Self { settings })
    }

    pub fn settings(&self) -> &NetworkSettings {
        &self.settings
    }

    /// Makes the bridge, its address, forwarding and the nft table. Called once at start.
    /// [`NetError::Firewall`] means: pods run and reach each other and the node, but not what lies beyond.
    pub fn ensure(&mut self) -> Result<(), NetError> {
        Ok(())
    }

    /// Connects the namespace at `netns` as `eth0` with `ip`. A link left by an earlier attempt is replaced.
    pub fn attach(&mut self, _uid: &str, _netns: &Path, _ip: Ipv4Addr) -> Result<(), NetError> {
        Ok(())
    }

    /// Deletes the pod's link. No error when there is none.
    pub fn detach(&mut self, _uid: &str) -> Result<(), NetError> {
        Ok(())
    }

    /// Deletes links on this node's bridge that belong to no pod in `known`; returns how many.
    pub fn cleanup(&mut self, _known: &BTreeSet<String>) -> Result<usize, NetError> {
        Ok(0)
    }

    /// Deletes links, bridge and nft table. Goes on after an error and returns the first one.
    pub fn teardown(&mut self) -> Result<(), NetError> {
        Ok(())
    }
}
