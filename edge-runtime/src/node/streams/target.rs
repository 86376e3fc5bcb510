//! Finds the pod and container that a request names. Reads records only.

use crate::node::context::Context;
use crate::node::pods::Entry;
use crate::pod::record::ContainerRecord;

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
    let process = container(entry, name)?.state.process();
    process
        .map(|(id, _)| id.to_owned())
        .ok_or_else(|| format!("container {name} of pod {} is not running", entry.record.name))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::pod::clock::{Mono, Now};
    use crate::pod::record::{ContainerKind, ContainerState, PodRecord, PodSource, SignalState, StopReason};

    #[test]
    fn command_runs_in_a_container_with_a_process() {
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        let stopping = |pid| ContainerState::Stopping {
            id: "i".into(),
            pid,
            started_at: None,
            because: StopReason::Deleted,
            kill_at: Mono(0),
            spare_until: None,
            signal: SignalState::Stop,
        };
        let of = |state| {
            let mut entry = Entry::new(Rc::default(), PodRecord::new("u", "ns", "p", PodSource::Api, &now));
            let record = ContainerRecord { state, ..ContainerRecord::new(ContainerKind::App) };
            entry.record.containers.insert("c".into(), record);
            running(&entry, "c")
        };
        let state = ContainerState::Running { id: "i".into(), pid: 1, started_at: now.wall, since: Mono(0) };
        assert_eq!(of(state).as_deref(), Ok("i"));
        assert_eq!(of(stopping(1)).as_deref(), Ok("i"), "until its end");
        let refused = Err("container c of pod p is not running".to_owned());
        assert_eq!(of(stopping(0)), refused, "its start has not answered");
        assert_eq!(of(ContainerState::waiting()), refused);
        let entry = Entry::new(Rc::default(), PodRecord::new("u", "ns", "p", PodSource::Api, &now));
        assert_eq!(running(&entry, "c"), Err("container not found (\"c\")".to_owned()));
    }
}
