//! What the bridge tells of a Service: its own fields by their own names (K8s `ServiceSpec`), and the endpoints that are
//! not pods of this node. Shapes only.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::pod::ports::Protocol;

/// Ports of one Service that a node takes.
pub const PORTS_OF_A_SERVICE: usize = 250;

/// Kinds of the objects in which they come.
pub const SERVICE_VIEW: &str = "ServiceView";
pub const ENDPOINT_VIEW: &str = "EndpointView";
/// Kind of an object that marks a namespace, or the cluster if it names none, as complete: all its Services were sent.
pub const SERVICE_NAMESPACE: &str = "ServiceNamespace";

/// A Service with addresses or names. Omitted fields mean the same as in Kubernetes: nothing, or the default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceView {
    /// `None` alone for a headless one.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs", deserialize_with = "addresses")]
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[*].ip`.
    #[serde(rename = "ingressIPs", deserialize_with = "addresses")]
    pub ingress_ips: Vec<IpAddr>,
    pub external_name: Option<String>,
    pub ports: Vec<ServicePort>,
    pub selector: BTreeMap<String, String>,
    pub publish_not_ready_addresses: bool,
    /// The cluster's DNS.
    pub dns: bool,
    /// Timeout of session affinity `ClientIP`.
    pub affinity_seconds: Option<u32>,
    /// `Local`, else `Cluster`.
    pub external_traffic_policy: Policy,
    pub internal_traffic_policy: Policy,
    /// `PreferSameZone`, `PreferSameNode`, or the older name `PreferClose` for the first.
    pub traffic_distribution: Option<String>,
    /// Clients that may use `ingress_ips`; `None` allows all.
    pub load_balancer_source_ranges: Vec<String>,
    pub health_check_node_port: u16,
    /// `metadata.creationTimestamp`, in UTC and with seconds; empty from a bridge that does not tell it.
    pub created: String,
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
    #[serde(deserialize_with = "number")]
    pub port: u16,
    pub target_port: TargetPort,
    #[serde(deserialize_with = "number")]
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

/// Endpoints of a Service from the slices of the API: endpoints that are not pods, and pods of this node's site.
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
    #[serde(deserialize_with = "number")]
    pub port: u16,
}

/// Conditions that are not said are true, but for `terminating` (K8s discovery/v1, `EndpointConditions`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    #[serde(deserialize_with = "addresses")]
    pub addresses: Vec<IpAddr>,
    /// It is one, of whichever node.
    pub pod: bool,
    pub node_name: Option<String>,
    pub hostname: Option<String>,
    pub not_ready: bool,
    pub not_serving: bool,
    pub terminating: bool,
    /// Zones of its hints; empty for all zones.
    pub for_zones: Vec<String>,
    pub for_nodes: Vec<String>,
}

impl ServiceView {
    /// Parses the object's body.
    ///
    /// # Errors
    /// A field has another type than here.
    pub fn read(body: &Value) -> Result<Self, serde_json::Error> {
        let mut view = Self::deserialize(&body["spec"])?;
        // One more tells that there are too many.
        view.ports.truncate(PORTS_OF_A_SERVICE + 1);
        view.ports.shrink_to_fit();
        Ok(view)
    }

    /// Returns the reduced form of a Service that is too large for this node: its names, and its addresses inside the
    /// cluster.
    pub fn bare(&self) -> Self {
        Self {
            cluster_ips: self.cluster_ips.clone(),
            external_name: self.external_name.clone(),
            dns: self.dns,
            ..Self::default()
        }
    }

    pub fn is_headless(&self) -> bool {
        self.cluster_ips.first().is_some_and(|ip| ip == "None")
    }

    /// Addresses of others that are to lead to it.
    pub fn outside(&self) -> impl Iterator<Item = &IpAddr> {
        self.external_ips.iter().chain(&self.ingress_ips)
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
    /// `None` for a protocol that kernels do not know.
    pub fn protocol(&self) -> Option<Protocol> {
        protocol(&self.protocol)
    }
}

impl EndpointView {
    /// Parses the object's body.
    ///
    /// # Errors
    /// A field has another type than here.
    pub fn read(body: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(body)
    }
}

/// Parses addresses and skips other texts: slices may have host names (K8s discovery/v1, `AddressType` FQDN).
fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_array().into_iter().flatten().filter_map(|ip| ip.as_str()?.parse().ok()).collect())
}

/// 0 for null, which is not a port: a slice may have a port of null (K8s discovery/v1, `EndpointPort`).
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_u64().and_then(|number| number.try_into().ok()).unwrap_or_default())
}

/// Parses a protocol's name in the API.
pub fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "" | "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn malformed_addresses_and_ports_are_left_out() {
        let view = EndpointView::read(&json!({"slices": [
            {"ports": [{"name": "any", "port": null}, {"port": 80}], "endpoints": [{"addresses": ["host.example"]},
                {"addresses": ["192.0.2.1", 7, "192.0.2.256"]}, {"addresses": "192.0.2.2"}]}]}))
        .unwrap();
        let ports: Vec<u16> = view.slices[0].ports.iter().map(|port| port.port).collect();
        let ips: Vec<usize> = view.slices[0].endpoints.iter().map(|endpoint| endpoint.addresses.len()).collect();
        assert_eq!((ports, ips), (vec![0, 80], vec![0, 1, 0]));
        let view = ServiceView::read(&json!({"spec": {"clusterIPs": ["10.96.0.1"], "externalIPs": ["x", "192.0.2.1"],
            "ports": [{"port": 65_535}, {"port": 65_536}, {"port": -1}, {"port": "80"}, {"port": 80, "nodePort": 1e9}]}}))
        .unwrap();
        let ports: Vec<u16> = view.ports.iter().map(|port| port.port).collect();
        assert_eq!((view.external_ips.len(), ports), (1, vec![65_535, 0, 0, 0, 80]));
    }

    #[test]
    fn other_types_are_refused_as_a_whole() {
        for spec in [
            json!({"clusterIPs": "10.96.0.1"}),
            json!({"ports": 80}),
            json!({"ports": [{"targetPort": [1]}]}),
            json!({"selector": ["a"]}),
            json!({"affinitySeconds": -1}),
            json!({"externalTrafficPolicy": "Everywhere"}),
            json!(7),
        ] {
            assert!(ServiceView::read(&json!({ "spec": spec })).is_err(), "{spec}");
        }
        assert!(EndpointView::read(&json!([1])).is_err() && EndpointView::read(&json!({"slices": {}})).is_err());
    }
}
