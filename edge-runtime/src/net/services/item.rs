//! What the table of a family can hold: its sets, chains and elements, by name. Pure.

use std::net::IpAddr;

use crate::pod::ports::Protocol;

/// Items that one transaction changes. The kernel's time is quadratic in the sets of a transaction
/// (`nft_set_lookup_global`, `__nft_set_trans_bind`), and it holds up everything else that uses netlink meanwhile.
pub const TRANSACTION: usize = 1000;
/// Bytes of the text of these items, of which endpoints are the most: `nft` takes a second for them on a board (Cortex-A53).
pub const TEXT: usize = 128 << 10;

/// An object of the nft table, and its address family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    pub v6: bool,
    pub what: What,
}

/// Kind and name of an object, in the order of their references to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// A set of its own, by name. Its text is its specification.
    Set(Box<str>),
    /// A chain, by name. Its text is its rules, a line each.
    Chain(Box<str>),
    /// An element of one of the table's sets and maps. Its text is the verdict of the map.
    Element(Element),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    ClusterIp(IpAddr),
    Service(IpAddr, Protocol, u16),
    NodePort(Protocol, u16),
    /// A destination without endpoints.
    NoEndpoints(IpAddr, Protocol, u16),
    NoNodeEndpoints(Protocol, u16),
    /// Only some clients are permitted.
    Firewall(IpAddr, Protocol, u16),
}

impl Element {
    /// Name of the set or map.
    pub fn set(self) -> &'static str {
        match self {
            Self::ClusterIp(_) => "cluster-ips",
            Self::Service(..) => "service-ips",
            Self::NodePort(..) => "service-nodeports",
            Self::NoEndpoints(..) => "no-endpoint-services",
            Self::NoNodeEndpoints(..) => "no-endpoint-nodeports",
            Self::Firewall(..) => "firewall-ips",
        }
    }

    pub fn key(self) -> String {
        match self {
            Self::ClusterIp(ip) => ip.to_string(),
            Self::Service(ip, protocol, port)
            | Self::NoEndpoints(ip, protocol, port)
            | Self::Firewall(ip, protocol, port) => {
                format!("{ip} . {protocol} . {port}")
            }
            Self::NodePort(protocol, port) | Self::NoNodeEndpoints(protocol, port) => format!("{protocol} . {port}"),
        }
    }
}

/// Name of the table in each family.
pub fn table(bridge: &str) -> String {
    format!("services-{bridge}")
}

/// `ip` or `ip6`.
pub fn family(v6: bool) -> &'static str {
    if v6 { "ip6" } else { "ip" }
}
