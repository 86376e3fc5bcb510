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

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use serde_json::{Value, json};

    use super::*;
    use crate::pod::ports::Protocol;
    use crate::pod::record::{ConditionMark, Deletion, PodRecord, Sandbox, SandboxState, Terminal};

    fn ready() -> Sandbox {
        Sandbox { state: SandboxState::Ready { since: jiff::Timestamp::UNIX_EPOCH }, ..Sandbox::default() }
    }

    /// A pod with a sandbox and an address of its own.
    fn entry(spec: Value) -> Entry {
        let pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let (namespace, ips) = ("ns".to_owned(), vec!["10.0.0.2".parse().unwrap()]);
        Entry::new(Rc::new(pod), PodRecord { namespace, ips, sandbox: ready(), ..PodRecord::default() })
    }

    #[test]
    fn pod_is_there_from_its_sandbox_to_its_end() {
        let (_folder, cx) = Context::in_a_folder();
        let mut entry = entry(json!({"containers": []}));
        assert!(local_pod(&cx, &entry).is_some());
        entry.record.sandbox.state = SandboxState::Preparing;
        assert!(local_pod(&cx, &entry).is_none());
        entry.record.sandbox = ready();
        entry.record.terminal = Some(Terminal { succeeded: true, reason: String::new(), message: String::new() });
        assert!(local_pod(&cx, &entry).is_none());
        entry.record.terminal = None;
        entry.record.ips.clear();
        assert!(local_pod(&cx, &entry).is_none(), "nothing leads to it");
    }

    #[test]
    fn pod_on_the_nodes_network_has_the_nodes_addresses() {
        let (_folder, mut cx) = Context::in_a_folder();
        let entry = entry(json!({"containers": [], "hostNetwork": true}));
        assert_eq!(local_pod(&cx, &entry), None);
        cx.host.host_ips = vec!["192.0.2.1".parse().unwrap()];
        assert_eq!(local_pod(&cx, &entry).map(|pod| pod.ips), Some(cx.host.host_ips.clone()));
    }

    #[test]
    fn readiness_is_the_condition_and_deletion_ends_it() {
        let (_folder, cx) = Context::in_a_folder();
        let mut entry = entry(json!({"containers": []}));
        let state = |entry: &Entry| local_pod(&cx, entry).map(|pod| (pod.ready, pod.terminating));
        assert_eq!(state(&entry), Some((false, false)), "no condition yet");
        for (status, expected) in [("True", true), ("False", false), ("Unknown", false)] {
            let mark = ConditionMark { status: status.to_owned(), since: jiff::Timestamp::UNIX_EPOCH };
            entry.record.conditions.insert("Ready".to_owned(), mark);
            assert_eq!(state(&entry), Some((expected, false)), "{status}");
        }
        let deletion = Deletion { requested_at: Default::default(), grace_s: 1, object_gone: false, reported: false };
        entry.record.deletion = Some(deletion);
        assert_eq!(state(&entry), Some((false, true)));
    }

    #[test]
    fn named_ports_are_those_of_containers_that_last() {
        let (_folder, cx) = Context::in_a_folder();
        let port = |name: &str, number: u32| json!({"name": name, "containerPort": number});
        let entry = entry(json!({
            "initContainers": [
                {"name": "init", "ports": [port("setup", 1)]},
                {"name": "side", "restartPolicy": "Always", "ports": [port("metrics", 2)]},
            ],
            "containers": [{"name": "c", "ports": [
                port("web", 3), {"containerPort": 4}, port("beyond", 70_000),
                {"name": "dns", "containerPort": 5, "protocol": "UDP"},
                {"name": "odd", "containerPort": 6, "protocol": "ICMP"},
            ]}],
        }));
        let expected = [("metrics", Protocol::Tcp, 2_u16), ("web", Protocol::Tcp, 3), ("dns", Protocol::Udp, 5)];
        let expected = expected.map(|(name, protocol, number)| (name.to_owned(), protocol, number));
        assert_eq!(local_pod(&cx, &entry).unwrap().ports, expected);
    }
}
