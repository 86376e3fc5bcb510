//! A pod of this node as Services see it, from what the node remembers of it.

use k8s_openapi::api::core::v1::Pod;

use crate::net::services::LocalPod;
use crate::net::services::view::protocol;
use crate::node::context::Context;
use crate::node::pods::Entry;
use crate::pod::spec::{host_network, lasting};

/// `None` for a pod that is not yet, or no longer, there.
pub(super) fn local_pod(cx: &Context, entry: &Entry) -> Option<LocalPod> {
    let (pod, record): (&Pod, _) = (&entry.pod, &entry.record);
    let spec = pod.spec.as_ref()?;
    let ips = if host_network(pod) { &cx.host.host_ips } else { &record.ips };
    if record.terminal.is_some() || !entry.sandbox_ready() || ips.is_empty() {
        return None;
    }
    let ports = lasting(spec).flat_map(|container| container.ports.iter().flatten()).filter_map(|port| {
        let number = u16::try_from(port.container_port).ok()?;
        Some((port.name.clone()?, protocol(port.protocol.as_deref().unwrap_or_default())?, number))
    });
    Some(LocalPod {
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        hostname: spec.hostname.clone(),
        subdomain: spec.subdomain.clone(),
        ips: ips.clone(),
        ready: record.conditions.get("Ready").is_some_and(|mark| mark.status == "True"),
        terminating: record.deletion.is_some(),
        ports: ports.collect(),
    })
}
