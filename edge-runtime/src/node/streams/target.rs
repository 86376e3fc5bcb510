//! Finds the pod and container that a request names. Reads records only.

use crate::node::context::Context;
use crate::node::pods::Entry;
use crate::pod::record::{ContainerRecord, ContainerState};

/// The pod of this name, which `uid` (if any) confirms: its own, or that of its mirror.
pub(super) fn pod<'a>(cx: &'a Context, namespace: &str, pod: &str, uid: &str) -> Result<&'a Entry, String> {
    let by_uid = cx.pods.by_api_uid(uid).and_then(|uid| cx.pods.get(uid));
    let entry = by_uid.or_else(|| cx.pods.by_name(namespace, pod).filter(|_| uid.is_empty()));
    entry.ok_or_else(|| format!("pod {namespace}/{pod} is not on this node"))
}

/// The container of this name. The words are the kubelet's (K8s pkg/kubelet/kubelet_pods.go).
pub(super) fn container<'a>(entry: &'a Entry, name: &str) -> Result<&'a ContainerRecord, String> {
    entry.record.containers.get(name).ok_or_else(|| format!("container not found (\"{name}\")"))
}

/// Id of the container of this name, which runs.
pub(super) fn running(entry: &Entry, name: &str) -> Result<String, String> {
    let record = container(entry, name)?;
    let id = match &record.state {
        ContainerState::Running { id, .. } | ContainerState::Stopping { id, pid: 1.., .. } => Some(id),
        _ => None,
    };
    id.cloned().ok_or_else(|| format!("container {name} of pod {} is not running", entry.record.name))
}
