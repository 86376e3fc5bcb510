//! What the bridge tells of a Service: its own fields by their own names (K8s `ServiceSpec`), and the endpoints that are
//! not pods of this node. Shapes only.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use crate::pod::ports::Protocol;

/// Kinds of the objects in which they come.
pub const SERVICE_VIEW: &str = "ServiceView";
pub const ENDPOINT_VIEW: &str = "EndpointView";
/// Says of a namespace, or of the cluster if it names none, that all its Services are told.
pub const SERVICE_NAMESPACE: &str = "ServiceNamespace";

/// A Service that has addresses or names. What is not said is as in Kubernetes: none, or the default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceView {
    /// `None` alone for a headless one.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[*].ip`.
    #[serde(rename = "ingressIPs")]
    pub ingress_ips: Vec<IpAddr>,
    pub external_name: Option<String>,
    pub ports: Vec<ServicePort>,
    pub selector: BTreeMap<String, String>,
    pub publish_not_ready_addresses: bool,
    /// The cluster's DNS.
    pub dns: bool,
    /// Of session affinity `ClientIP`.
    pub affinity_seconds: Option<u32>,
    /// `Local`, else `Cluster`.
    pub external_traffic_policy: Policy,
    pub internal_traffic_policy: Policy,
    pub health_check_node_port: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Policy {
    #[default]
    Cluster,
    Local,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    pub name: String,
    /// `TCP` if empty.
    pub protocol: String,
    pub port: u16,
    pub target_port: TargetPort,
    pub node_port: u16,
}

/// `IntOrString`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    Number(u16),
    Name(String),
}

impl Default for TargetPort {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// Endpoints of a Service as the slices of the API have them, those of pods of this node left out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointView {
    pub slices: Vec<Slice>,
}

/// Endpoints with the same ports.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<SliceEndpoint>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlicePort {
    pub name: String,
    pub protocol: String,
    pub port: u16,
}

/// Conditions that are not said are true, but for `terminating` (K8s discovery/v1, `EndpointConditions`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    pub addresses: Vec<IpAddr>,
    pub node_name: Option<String>,
    pub hostname: Option<String>,
    pub not_ready: bool,
    pub not_serving: bool,
    pub terminating: bool,
}

impl ServiceView {
    /// Of the object's body.
    ///
    /// # Errors
    /// A field has another type than here.
    pub fn read(body: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(&body["spec"])
    }

    pub fn is_headless(&self) -> bool {
        self.cluster_ips.first().is_some_and(|ip| ip == "None")
    }

    /// Where load balancers ask whether there are endpoints here.
    pub fn health_check_port(&self) -> Option<u16> {
        let asked = self.external_traffic_policy == Policy::Local && self.health_check_node_port != 0;
        asked.then_some(self.health_check_node_port)
    }

    /// Its addresses inside the cluster.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.cluster_ips.iter().filter_map(|ip| ip.parse().ok())
    }
}

impl ServicePort {
    /// `None` for one that no kernel knows.
    pub fn protocol(&self) -> Option<Protocol> {
        protocol(&self.protocol)
    }
}

impl EndpointView {
    /// Of the object's body.
    ///
    /// # Errors
    /// A field has another type than here.
    pub fn read(body: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(body)
    }
}

/// By its name in the API.
pub fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "" | "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        _ => None,
    }
}
