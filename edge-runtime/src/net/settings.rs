//! Names and addresses of the pod network of one node.

use std::net::IpAddr;

use super::Subnet;

/// Settings of the pod network.
#[derive(Clone, Debug)]
pub struct NetworkSettings {
    /// Name of the bridge (and of the nft table), at most 15 characters. Nodes on one host need different ones.
    pub bridge: String,
    /// Pod subnets of this node, one or one of each family. The bridge has the first host address of each. Empty until
    /// the cluster has assigned them.
    pub subnets: Vec<Subnet>,
    /// Destination ranges of the routes to the pods of other nodes; `None` without such routes.
    pub neighbours: Option<Vec<Subnet>>,
}

impl NetworkSettings {
    /// Hardware address of the bridge.
    pub fn hardware_address(&self) -> [u8; 6] {
        self.subnets.first().map_or([0x0a, 0x58, 0, 0, 0, 1], |subnet| hardware_address(subnet.gateway()))
    }
}

/// Locally administered unicast address that carries the address (the end of it, of IPv6): a reused address keeps
/// its neighbours' ARP entries right.
pub fn hardware_address(ip: IpAddr) -> [u8; 6] {
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            [a, b, c, d]
        }
    };
    [0x0a, 0x58, a, b, c, d]
}
