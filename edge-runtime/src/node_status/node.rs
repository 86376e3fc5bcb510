//! Builds the Node: identity, capacity, addresses, versions, images. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use edge_protocol::build::KUBELET;
use k8s_openapi::api::core::v1::{
    ContainerImage, Node, NodeAddress, NodeCondition, NodeFeatures, NodeRuntimeHandler, NodeSpec, NodeStatus,
    NodeSwapStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::sys::gather::Gather;
use crate::sys::host::HostFacts;
use crate::sys::sort::sort_by;

/// The kubelet's `nodeStatusMaxImages`: keeps the object small on nodes that hold many images.
const MAX_IMAGES: usize = 50;
/// Names per image, as the kubelet reports.
const MAX_IMAGE_NAMES: usize = 5;

/// What configuration and environment say about this node.
#[derive(Clone, Debug, Default)]
pub struct NodeSettings {
    pub name: String,
    /// Added to, and winning over, the standard labels.
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub max_pods: u32,
    /// One of each family at most, the main one first.
    pub internal_ips: Vec<IpAddr>,
    /// What pods may use.
    pub allocatable_cpu_milli: u64,
    pub allocatable_memory_bytes: u64,
    pub allocatable_storage_bytes: u64,
    /// Size of the file system that holds the pods.
    pub storage_bytes: u64,
    /// Extended resources, by name. Of two with one name the last one counts.
    pub devices: Vec<(String, Amount)>,
    pub runtime_handlers: Vec<NodeRuntimeHandler>,
    /// `runc://1.1.5`
    pub runtime_version: String,
    /// The node's pod subnets, told as `spec.podCIDRs`; the first one is `spec.podCIDR` too. The bridge does not write
    /// them: they are a cluster's to give (docs/network.md).
    pub pod_cidrs: Vec<String>,
}

/// How much there is of an extended resource, and how much of that pods may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub capacity: u64,
    pub allocatable: u64,
}

/// One image on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeImage {
    pub names: Vec<String>,
    pub size_bytes: u64,
}

/// `v1.36.0-sampan-0.1.0`.
pub fn kubelet_version() -> String {
    KUBELET.to_owned()
}

/// The complete Node object to register or update.
pub fn node_object(
    facts: &HostFacts,
    settings: &NodeSettings,
    images: &[NodeImage],
    conditions: Vec<NodeCondition>,
) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(settings.name.clone()),
            labels: Some(standard_labels(facts, &settings.name, &settings.labels)),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            pod_cidr: settings.pod_cidrs.first().cloned(),
            pod_cidrs: (!settings.pod_cidrs.is_empty()).then(|| settings.pod_cidrs.clone()),
            taints: (!settings.taints.is_empty()).then(|| settings.taints.clone()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(resources(
                u64::from(facts.cpus) * 1000,
                facts.memory_bytes,
                settings.storage_bytes,
                settings,
                |amount| amount.capacity,
            )),
            allocatable: Some(resources(
                settings.allocatable_cpu_milli,
                settings.allocatable_memory_bytes,
                settings.allocatable_storage_bytes,
                settings,
                |amount| amount.allocatable,
            )),
            addresses: Some(addresses(settings)),
            conditions: Some(conditions),
            images: Some(largest(images)),
            node_info: Some(node_info(facts, settings)),
            runtime_handlers: Some(settings.runtime_handlers.clone()).filter(|all| !all.is_empty()),
            features: Some(NodeFeatures { supplemental_groups_policy: Some(true) }),
            ..NodeStatus::default()
        }),
    }
}

/// What a node says of itself, and `more`, which wins.
pub fn standard_labels(facts: &HostFacts, name: &str, more: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let standard = [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", facts.architecture),
        ("kubernetes.io/hostname", name),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", facts.architecture),
    ];
    let mut labels: BTreeMap<String, String> =
        standard.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).into_map();
    labels.extend(more.clone());
    labels
}

fn resources(
    cpu_milli: u64,
    memory: u64,
    storage: u64,
    settings: &NodeSettings,
    of_device: fn(&Amount) -> u64,
) -> BTreeMap<String, Quantity> {
    // Canonical forms: an API server rewrites others, and the object would then differ from what was sent.
    let cpu = if cpu_milli.is_multiple_of(1000) { (cpu_milli / 1000).to_string() } else { format!("{cpu_milli}m") };
    let bytes = |bytes: u64| if bytes.is_multiple_of(1024) { format!("{}Ki", bytes / 1024) } else { bytes.to_string() };
    let pods = settings.max_pods.to_string();
    [("cpu", cpu), ("memory", bytes(memory)), ("ephemeral-storage", bytes(storage)), ("pods", pods)]
        .into_iter()
        .map(|(name, amount)| (name.to_string(), Quantity(amount)))
        .chain(settings.devices.iter().map(|(name, amount)| (name.clone(), Quantity(of_device(amount).to_string()))))
        .into_map()
}

fn addresses(settings: &NodeSettings) -> Vec<NodeAddress> {
    let address = |type_: &str, address: String| NodeAddress { type_: type_.to_string(), address };
    let internal = settings.internal_ips.iter().map(|ip| address("InternalIP", ip.to_string()));
    internal.chain([address("Hostname", settings.name.clone())]).collect()
}

fn node_info(facts: &HostFacts, settings: &NodeSettings) -> NodeSystemInfo {
    NodeSystemInfo {
        machine_id: facts.machine_id.clone(),
        system_uuid: facts.system_uuid.clone(),
        boot_id: facts.boot_id.clone(),
        kernel_version: facts.kernel_version.clone(),
        os_image: facts.os_image.clone(),
        container_runtime_version: settings.runtime_version.clone(),
        kubelet_version: kubelet_version(),
        // The field is deprecated but required; kubelets without a proxy leave it empty.
        kube_proxy_version: String::new(),
        operating_system: "linux".to_string(),
        architecture: facts.architecture.to_string(),
        swap: (facts.swap_bytes > 0)
            .then(|| NodeSwapStatus { capacity: Some(i64::try_from(facts.swap_bytes).unwrap_or(i64::MAX)) }),
    }
}

/// The largest first, as the kubelet sorts: the scheduler's image locality cares for big ones.
fn largest(images: &[NodeImage]) -> Vec<ContainerImage> {
    let mut images: Vec<&NodeImage> = images.iter().collect();
    sort_by(&mut images, |a, b| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.names.cmp(&b.names)));
    let reported = images.into_iter().take(MAX_IMAGES).map(|image| ContainerImage {
        names: Some(image.names.iter().take(MAX_IMAGE_NAMES).cloned().collect()),
        size_bytes: Some(i64::try_from(image.size_bytes).unwrap_or(i64::MAX)),
    });
    reported.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> HostFacts {
        HostFacts { cpus: 4, memory_bytes: 512 << 20, architecture: "arm64", ..HostFacts::default() }
    }

    fn settings() -> NodeSettings {
        NodeSettings {
            name: "edge-1".into(),
            max_pods: 110,
            allocatable_cpu_milli: 3900,
            allocatable_memory_bytes: 448 << 20,
            storage_bytes: 1 << 30,
            internal_ips: vec!["192.168.1.7".parse().unwrap()],
            runtime_version: "runc://1.1.5".into(),
            labels: BTreeMap::from([("site".to_string(), "roof".to_string())]),
            ..NodeSettings::default()
        }
    }

    #[test]
    fn capacity_and_allocatable_differ() {
        let status = node_object(&facts(), &settings(), &[], Vec::new()).status.unwrap();
        let (capacity, allocatable) = (status.capacity.unwrap(), status.allocatable.unwrap());
        assert_eq!(capacity["cpu"].0, "4");
        assert_eq!(allocatable["cpu"].0, "3900m");
        assert_eq!(allocatable["memory"].0, format!("{}Ki", 448 << 10));
        assert_eq!(capacity["pods"].0, "110");
    }

    #[test]
    fn labels_addresses_and_versions() {
        let node = node_object(&facts(), &settings(), &[], Vec::new());
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["kubernetes.io/arch"], "arm64");
        assert_eq!(labels["site"], "roof");
        assert!(!labels.keys().any(|key| key.starts_with("node-role.")), "NodeRestriction: the bridge sets the role");
        let status = node.status.unwrap();
        let addresses = status.addresses.unwrap();
        assert_eq!((addresses[0].type_.as_str(), addresses[0].address.as_str()), ("InternalIP", "192.168.1.7"));
        assert_eq!((addresses[1].type_.as_str(), addresses[1].address.as_str()), ("Hostname", "edge-1"));
        let version = status.node_info.unwrap().kubelet_version;
        assert!(version.starts_with("v1.36.") && version.contains("-sampan-"), "{version}");
    }

    #[test]
    fn at_most_fifty_images_the_largest_first() {
        let images: Vec<NodeImage> =
            (0..60).map(|n| NodeImage { names: vec![format!("i{n}")], size_bytes: n }).collect();
        let reported = node_object(&facts(), &settings(), &images, Vec::new()).status.unwrap().images.unwrap();
        assert_eq!(reported.len(), 50);
        assert_eq!(reported[0].size_bytes, Some(59));
    }
}
