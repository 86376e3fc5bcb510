//! The cluster, as the daemon sends it to the helper. Values only.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The cluster, or changes of it, as the daemon sends it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cluster {
    /// Usually `cluster.local`.
    pub domain: String,
    /// Addresses of the helper. A helper with other addresses is outdated, and ends.
    pub listen: Vec<IpAddr>,
    pub services: Vec<Service>,
    /// `services` has only the changes since the last message, and `gone` the deleted Services.
    pub partial: bool,
    pub gone: Vec<(String, String)>,
    /// The daemon sends changes to a helper that accepts them.
    pub offers_parts: bool,
    /// Addresses of this node's pods, and their namespaces.
    pub pods: Vec<(IpAddr, String)>,
    /// Namespaces whose Services are complete; an empty name means all namespaces.
    pub followed: Vec<String>,
    /// The subset of `followed` that is followed because a pod has looked up a name.
    pub interests: Vec<String>,
    /// The bridge can be asked about namespaces that are not followed.
    pub online: bool,
    /// Further addresses that lead to the helper, beside `listen`.
    pub own: Vec<IpAddr>,
    pub health: Vec<Health>,
}

/// Health check of a Service, for load balancers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    pub namespace: String,
    pub name: String,
    /// `healthCheckNodePort`.
    pub port: u16,
    /// Number of ready endpoints of this node.
    pub local: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    /// Empty for a headless Service.
    pub ips: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_name: Option<String>,
    pub ports: Vec<Port>,
    /// Those that take traffic.
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    pub ip: IpAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default)]
    pub ports: Vec<Port>,
}

impl Endpoint {
    /// Label below the name of its Service: its host name, or its address with dashes.
    pub(super) fn label(&self) -> String {
        let dashed = || {
            let text = self.ip.to_string().replace(['.', ':'], "-");
            // A label must not begin or end with a dash.
            let end = if text.ends_with('-') { "0" } else { "" };
            let begin = if text.starts_with('-') { "0" } else { "" };
            format!("{begin}{text}{end}")
        };
        self.hostname.clone().unwrap_or_else(dashed)
    }
}
