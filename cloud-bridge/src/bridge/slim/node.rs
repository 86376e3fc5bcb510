//! A Node as the watch delivers it: only its existence and its state.

use std::net::IpAddr;

use apimachinery::slim::without_managers;
use k8s_openapi::api::core::v1::Node;
use kube::api::ObjectMeta;
use serde::Deserialize;

use crate::bridge::well_known::{SESSION_ANNOTATION, STALE_DEVICES};

/// A node as read from the API.
#[derive(Clone, Debug, Deserialize)]
pub struct SlimNode {
    #[serde(deserialize_with = "without_managers")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: WatchedSpec,
    #[serde(default)]
    status: WatchedStatus,
}

apimachinery::read_as!(SlimNode, Node);

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedSpec {
    #[serde(default, rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedStatus {
    #[serde(default)]
    conditions: Vec<WatchedCondition>,
    #[serde(default)]
    addresses: Vec<WatchedAddress>,
    #[serde(default, rename = "daemonEndpoints")]
    endpoints: WatchedEndpoints,
    #[serde(default, rename = "volumesInUse")]
    volumes_in_use: Vec<String>,
    #[serde(default, rename = "volumesAttached")]
    volumes_attached: Vec<WatchedVolume>,
}

#[derive(Clone, Debug, Deserialize)]
struct WatchedVolume {
    #[serde(default)]
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct WatchedAddress {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    address: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedEndpoints {
    #[serde(default, rename = "kubeletEndpoint")]
    kubelet: WatchedEndpoint,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedEndpoint {
    /// The API accepts numbers that cannot be ports, so this is as wide.
    #[serde(default, rename = "Port")]
    port: Option<i32>,
}

#[derive(Clone, Debug, Deserialize)]
struct WatchedCondition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
}

impl SlimNode {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Fencing number of its newest connection to any bridge.
    pub(in crate::bridge) fn session(&self) -> Option<u64> {
        self.metadata.annotations.as_ref()?.get(SESSION_ANNOTATION)?.parse().ok()
    }

    /// Whether statuses of its devices are marked as stale.
    pub(in crate::bridge) fn has_stale_devices(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(STALE_DEVICES))
    }

    /// Ranges of its pods' addresses, as the cluster has assigned them.
    pub(in crate::bridge) fn pod_cidrs(&self) -> &[String] {
        &self.spec.pod_cidrs
    }

    pub(in crate::bridge) fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// Volumes that it uses or is about to use, as it has reported them.
    pub(in crate::bridge) fn volumes_in_use(&self) -> impl Iterator<Item = &str> {
        self.status.volumes_in_use.iter().map(String::as_str)
    }

    /// Volumes that the attach-detach controller reports to it as attached.
    pub(in crate::bridge) fn volumes_attached(&self) -> impl Iterator<Item = &str> {
        self.status.volumes_attached.iter().map(|volume| volume.name.as_str())
    }

    /// Port of its kubelet API, if that is at this address, which has this type.
    pub fn kubelet_port(&self, kind: &str, address: IpAddr) -> Option<u16> {
        let is_there = |one: &WatchedAddress| one.kind == kind && one.address.parse() == Ok(address);
        let port = self.status.endpoints.kubelet.port.filter(|_| self.status.addresses.iter().any(is_there))?;
        u16::try_from(port).ok().filter(|port| *port != 0)
    }

    /// Status of the Ready condition: `True`, `False`, `Unknown`, or empty.
    pub fn ready(&self) -> &str {
        self.status.conditions.iter().find(|c| c.kind == "Ready").map_or("", |c| &c.status)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kubelet_port_is_that_of_the_address() {
        let port = |kind: &str, address: &str, port: i64| {
            let status = json!({"addresses": [{"type": "Hostname", "address": "n"}, {"type": kind, "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
            let node: SlimNode = serde_json::from_value(json!({"metadata": {"name": "n"}, "status": status})).unwrap();
            node.kubelet_port("InternalIP", "192.0.2.5".parse().unwrap())
        };
        assert_eq!(port("InternalIP", "192.0.2.5", 10_360), Some(10_360));
        assert_eq!(port("InternalIP", "192.0.2.6", 10_360), None, "of another bridge");
        assert_eq!(port("ExternalIP", "192.0.2.5", 10_360), None);
        assert_eq!([0, -1, 70_000].map(|bad| port("InternalIP", "192.0.2.5", bad)), [None; 3]);
        let bare: SlimNode = serde_json::from_value(json!({"metadata": {}})).unwrap();
        assert_eq!(bare.kubelet_port("InternalIP", "192.0.2.5".parse().unwrap()), None);
    }
}
