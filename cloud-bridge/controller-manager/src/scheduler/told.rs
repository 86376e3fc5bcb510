//! Events of the scheduler's decisions. Pure.

use k8s_openapi::api::core::v1::ObjectReference;

use super::cluster::Failure;
use super::pod::Pod;
use crate::events::event::Event;

/// Name of this scheduler as the component of its events.
pub(super) const NAME: &str = "default-scheduler";

/// A pod was bound to a node.
pub(super) fn bound(pod: &Pod, node: &str) -> Event {
    let (namespace, name) = &pod.key;
    let message = format!("Successfully assigned {namespace}/{name} to {node}");
    Event { about: about(pod), kind: "Normal", reason: "Scheduled", message, component: NAME, action: Some("Binding") }
}

/// A pod has no node.
pub(super) fn failed(failure: &Failure) -> Event {
    Event {
        about: about(&failure.pod),
        kind: "Warning",
        reason: "FailedScheduling",
        message: failure.message.clone(),
        component: NAME,
        action: Some("Scheduling"),
    }
}

/// A pod is deleted for a more important one.
pub(super) fn preempted(victim: &Pod, preemptor: &Pod, node: &str) -> Event {
    Event {
        about: about(victim),
        kind: "Normal",
        reason: "Preempted",
        message: format!("Preempted by pod {} on node {node}", preemptor.uid),
        component: NAME,
        action: Some("Preempting"),
    }
}

fn about(pod: &Pod) -> ObjectReference {
    let (namespace, name) = pod.key.clone();
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace),
        name: Some(name),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_is_told_about_the_victim() {
        let pod = |name: &str| Pod { key: ("a".into(), name.into()), uid: format!("u-{name}"), ..Pod::default() };
        let event = preempted(&pod("low"), &pod("high"), "n");
        assert_eq!(event.message, "Preempted by pod u-high on node n");
        let about = event.about;
        let parts = [about.kind, about.namespace, about.name, about.uid].map(Option::unwrap_or_default);
        assert_eq!(parts, ["Pod", "a", "low", "u-low"]);
    }
}
