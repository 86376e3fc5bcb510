//! Values of a Node that the bridge sets instead of its node.

use std::net::IpAddr;

use clap::ValueEnum;

/// Types of a Node's addresses (core/v1 `NodeAddressType`) that an API server dials and that are not the node's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AddressType {
    #[default]
    #[value(name = "InternalIP")]
    InternalIp,
    #[value(name = "ExternalIP")]
    ExternalIp,
    #[value(name = "InternalDNS")]
    InternalDns,
    #[value(name = "ExternalDNS")]
    ExternalDns,
}

impl AddressType {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
        }
    }
}

/// Where the API server finds the kubelet API of a node, when a bridge serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeletEndpoint {
    /// Type of the address. Addresses of this type that the node reports are dropped.
    pub kind: AddressType,
    pub address: IpAddr,
    pub port: u16,
}

/// Values that the bridge sets instead of the node.
#[derive(Clone, Debug, Default)]
pub struct NodeOverrides {
    pub kubelet: Option<KubeletEndpoint>,
    /// Address of this bridge's listener for rules, for other bridges.
    pub rules_place: Option<String>,
    /// Whether a missing Node object is created again. If not, its deletion has revoked the node.
    pub may_register: bool,
}
