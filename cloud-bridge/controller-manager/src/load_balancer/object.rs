//! Objects as far as load balancers need them.

use std::net::IpAddr;

use apimachinery::typed::list;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ObjectMeta;
use serde::Deserialize;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label with the site of a node, or of the nodes for an object.
const SITE: &str = "sampan.dev/site";
/// Address from which a node has connected, as the bridge sees it.
const PEER_ADDRESS: &str = "sampan.dev/peer-address";
/// Label of a node that gets no external traffic (K8s core/v1, `LabelNodeExcludeBalancers`).
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Service {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: ServiceSpec,
    #[serde(default)]
    status: ServiceStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServiceSpec {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) load_balancer_class: Option<String>,
    #[serde(deserialize_with = "list")]
    pub(super) ip_families: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceStatus {
    load_balancer: Option<LoadBalancer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    #[serde(deserialize_with = "list")]
    ingress: Vec<Ingress>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Ingress {
    ip: Option<String>,
}

apimachinery::read_as!(Service, core::Service);

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Slice {
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "list")]
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoint {
    node_name: Option<String>,
    conditions: Option<Conditions>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
}

apimachinery::read_as!(Slice, EndpointSlice);

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Node {
    metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    #[serde(deserialize_with = "list")]
    addresses: Vec<Address>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

apimachinery::read_as!(Node, core::Node);

impl Service {
    /// The site whose nodes it wants: from its annotation, else its label.
    pub(super) fn site(&self) -> Option<&str> {
        let annotation = self.metadata.annotations.as_ref().and_then(|all| all.get(SITE));
        annotation.or_else(|| self.metadata.labels.as_ref()?.get(SITE)).map(String::as_str)
    }

    /// The addresses that its status names.
    pub(super) fn ingress(&self) -> Vec<IpAddr> {
        let all = self.status.load_balancer.iter().flat_map(|balancer| &balancer.ingress);
        all.filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
    }
}

impl Slice {
    /// The Service it belongs to.
    pub(super) fn service(&self) -> Option<(String, String)> {
        let name = self.metadata.labels.as_ref()?.get(SERVICE_NAME)?.clone();
        Some((self.metadata.namespace.clone().unwrap_or_default(), name))
    }

    /// Nodes of ready endpoints. A missing condition counts as true (K8s discovery/v1).
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        let ready = |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|all| all.ready).unwrap_or(true);
        self.endpoints.iter().filter(ready).filter_map(|endpoint| endpoint.node_name.as_deref())
    }
}

impl Node {
    /// Where it is, and where it is reached; nowhere if it is not to be.
    pub(super) fn facts(&self) -> (Option<&str>, Vec<IpAddr>) {
        let labels = self.metadata.labels.as_ref();
        let site = labels.and_then(|labels| labels.get(SITE)).map(String::as_str);
        let excluded =
            labels.is_some_and(|labels| labels.contains_key(EXCLUDED)) || self.metadata.deletion_timestamp.is_some();
        let peer = self.metadata.annotations.as_ref().and_then(|all| all.get(PEER_ADDRESS)?.parse().ok());
        let internal = self.status.addresses.iter().filter(|one| one.kind == "InternalIP" && !excluded);
        let ips = internal.filter_map(|one| one.address.parse().ok());
        (site, ips.filter(|ip| is_private(ip) || peer.as_ref() == Some(ip)).collect())
    }
}

/// Whether an address is valid only within its own network. A node reports its own addresses, so a public one is
/// accepted only if the node has connected from it: nodes forward traffic for a load balancer's address to its Service.
fn is_private(ip: &IpAddr) -> bool {
    match ip {
        // RFC 1918, RFC 6598, RFC 3927.
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private() || ip.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        // RFC 4193, RFC 4291.
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}
