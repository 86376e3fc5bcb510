//! The parts of a Service that determine its endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{self as core, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Service {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: ServiceSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    selector: Option<BTreeMap<String, String>>,
    ports: Option<Vec<ServicePort>>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    ip_families: Option<Vec<String>>,
    publish_not_ready_addresses: Option<bool>,
    traffic_distribution: Option<String>,
}

apimachinery::read_as!(Service, core::Service);

/// A family of addresses, as EndpointSlices name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    IPv4,
    IPv6,
}

impl Family {
    pub(crate) fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Self::IPv4 } else { Self::IPv6 }
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "IPv4" => Some(Self::IPv4),
            "IPv6" => Some(Self::IPv6),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
        }
    }
}

impl Service {
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_load_balancer(&self) -> bool {
        self.spec.kind.as_deref() == Some("LoadBalancer")
    }

    /// Whether its endpoints are computed from pods: it has a selector and is not an ExternalName.
    pub(crate) fn selects_pods(&self) -> bool {
        self.spec.kind.as_deref() != Some("ExternalName")
            && self.spec.selector.as_ref().is_some_and(|selector| !selector.is_empty())
    }

    pub(crate) fn selector(&self) -> Option<&BTreeMap<String, String>> {
        self.spec.selector.as_ref()
    }

    /// Whether it selects a pod with these labels.
    pub(crate) fn selects(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let value = |name: &String| labels.and_then(|labels| labels.get(name));
        self.selects_pods() && self.spec.selector.iter().flatten().all(|(name, wanted)| value(name) == Some(wanted))
    }

    pub(crate) fn ports(&self) -> &[ServicePort] {
        self.spec.ports.as_deref().unwrap_or_default()
    }

    fn cluster_ip(&self) -> &str {
        self.spec.cluster_ip.as_deref().unwrap_or_default()
    }

    pub(crate) fn has_no_cluster_ip(&self) -> bool {
        matches!(self.cluster_ip(), "" | "None")
    }

    /// It wants none, which allows it to have no ports.
    pub(crate) fn is_headless(&self) -> bool {
        self.cluster_ip() == "None"
    }

    pub(crate) fn publishes_unready(&self) -> bool {
        self.spec.publish_not_ready_addresses == Some(true)
    }

    /// Whether endpoints are hinted to their zone, and to their node. Hints by the older annotation are not made.
    pub(crate) fn hints(&self) -> (bool, bool) {
        const ANNOTATIONS: [&str; 2] =
            ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];
        let annotations = self.metadata.annotations.as_ref();
        let mode = ANNOTATIONS.iter().find_map(|name| annotations?.get(*name)).map(String::as_str);
        match self.spec.traffic_distribution.as_deref() {
            _ if matches!(mode, Some("Auto" | "auto")) => (false, false),
            Some("PreferClose" | "PreferSameZone") => (true, false),
            Some("PreferSameNode") => (true, true),
            _ => (false, false),
        }
    }

    /// The families of its slices (K8s `getAddressTypesForService`).
    pub(crate) fn families(&self) -> BTreeSet<Family> {
        let named: BTreeSet<_> = self.named_families().collect();
        match self.family_of_its_address() {
            _ if !named.is_empty() => named,
            Some(family) => BTreeSet::from([family]),
            None if self.has_no_cluster_ip() => BTreeSet::from([Family::IPv4, Family::IPv6]),
            None => BTreeSet::from([Family::IPv4]),
        }
    }

    /// The family of its Endpoints, unless that follows the pod's first address.
    pub(crate) fn first_family(&self) -> Option<Family> {
        self.named_families().next().or_else(|| self.family_of_its_address())
    }

    fn named_families(&self) -> impl Iterator<Item = Family> {
        self.spec.ip_families.iter().flatten().filter_map(|name| Family::named(name))
    }

    fn family_of_its_address(&self) -> Option<Family> {
        self.cluster_ip().parse().ok().map(|address: IpAddr| Family::of(&address))
    }
}
