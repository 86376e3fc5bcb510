//! Values of a Node that the bridge sets instead of its node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use clap::ValueEnum;

use crate::bridge::well_known::{REPLICA_ANNOTATION, RULES_ANNOTATION};

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
    /// The type as Node objects name it.
    pub fn as_str(self) -> &'static str {
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

/// Returns the address at which the kubelet API of a node is served, if it is.
pub type EndpointOf = dyn Fn(&str) -> Option<KubeletEndpoint> + Send + Sync;

/// Values that the bridge sets instead of the node.
#[derive(Clone, Default)]
pub struct NodeOverrides {
    /// Asked before each write of the Node: another bridge may take the port.
    pub kubelet: Option<Arc<EndpointOf>>,
    /// Address of this bridge's listener for rules, for other bridges.
    pub rules_place: Option<String>,
    /// Address of this bridge's port for kubelet requests of other bridges.
    pub replica_place: Option<String>,
    /// Whether a missing Node object is created again. If not, its deletion has revoked the node.
    pub may_register: bool,
}

impl NodeOverrides {
    /// Annotations of a Node with the addresses at which other bridges reach this one.
    pub(super) fn places(&self) -> BTreeMap<&'static str, &str> {
        let all = [(RULES_ANNOTATION, &self.rules_place), (REPLICA_ANNOTATION, &self.replica_place)];
        all.into_iter().filter_map(|(name, place)| Some((name, place.as_deref()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_that_exist_are_written() {
        let place = |port: u16| Some(format!("10.0.0.1:{port}"));
        let overrides = |rules_place, replica_place| NodeOverrides { rules_place, replica_place, ..Default::default() };
        assert!(overrides(None, None).places().is_empty());
        let replica = overrides(None, place(9446));
        assert_eq!(replica.places(), BTreeMap::from([("sampan.dev/replica-address", "10.0.0.1:9446")]));
        let both = overrides(place(9444), place(9446));
        assert_eq!(both.places().into_values().collect::<Vec<_>>(), ["10.0.0.1:9446", "10.0.0.1:9444"]);
    }
}
