//! Pods of this node and its bridge, as rules of policies need them.

use std::net::IpAddr;

use crate::launch::Launch;
use crate::net::hardware_address;
use crate::net::policy::{Link, LocalPod};
use crate::net::services::view::protocol;
use crate::node::context::Context;
use crate::node::pods::Entry;
use crate::pod::spec::{host_network, with_kinds};
use crate::sys::vec_map::VecMap;

/// The pod as policies see it; `None` for one without its own addresses. `coming` has the addresses of pods that are
/// being connected.
pub(super) fn local_pod(
    cx: &Context,
    launch: &Launch,
    coming: &VecMap<String, Vec<IpAddr>>,
    uid: &str,
) -> Option<LocalPod> {
    let entry: &Entry = cx.pods.get(uid)?;
    let (pod, record) = (&entry.pod, &entry.record);
    let ips = if entry.sandbox_ready() { &record.ips } else { coming.get(uid)? };
    if host_network(pod) || ips.is_empty() {
        return None;
    }
    let containers = pod.spec.iter().flat_map(with_kinds).flat_map(|(container, _)| container.ports.iter().flatten());
    let ports = containers.filter_map(|port| {
        let number = u16::try_from(port.container_port).ok()?;
        Some((port.name.clone()?, protocol(port.protocol.as_deref().unwrap_or_default())?, number))
    });
    let teardown = &launch.sandboxes.teardown;
    Some(LocalPod {
        namespace: record.namespace.clone(),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        ips: ips.clone(),
        ports: ports.collect(),
        link: (!teardown.is_attached(uid)).then(|| Link {
            name: teardown.network.link_of(uid),
            mac: ips.first().copied().map(hardware_address).unwrap_or_default(),
        }),
    })
}

/// The present hardware address of the bridge: a bridge that was made for another subnet keeps its own.
pub(super) fn bridge_mac(bridge: &str) -> Option<[u8; 6]> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{bridge}/address")).ok()?;
    let bytes: Vec<u8> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}
