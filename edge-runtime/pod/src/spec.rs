//! Accessors for fields of a pod: its containers, their kinds, grace period, priority and name.
//!
//! The one place that walks a manifest. What its containers ask for is in [`super::requests`].

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::record::ContainerKind;

/// Marks the API's copy of a static pod; its value is the static pod's uid.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Where a kubelet has a pod from: `file`, `http` or `api`.
pub const SOURCE: &str = "kubernetes.io/config.source";

/// The kubelet's `SystemCriticalPriority`.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// `DefaultTerminationGracePeriodSeconds`.
pub const DEFAULT_GRACE_S: u32 = 30;

/// Init containers and then app containers, each in the spec's order.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Same as [`containers`], for a pod that may lack a spec.
pub fn containers_of(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(containers)
}

/// Same as [`containers`], with the kind of each.
pub fn with_kinds(spec: &PodSpec) -> impl Iterator<Item = (&Container, ContainerKind)> {
    let init = spec.init_containers.iter().flatten().map(|one| (one, kind_in_init(one)));
    init.chain(spec.containers.iter().map(|one| (one, ContainerKind::App)))
}

/// Kind of a container in `initContainers`: with `restartPolicy: Always` it is a sidecar.
pub fn kind_in_init(container: &Container) -> ContainerKind {
    match container.restart_policy.as_deref() {
        Some("Always") => ContainerKind::Sidecar,
        _ => ContainerKind::Init,
    }
}

/// The containers that live as long as the pod: sidecars, then app containers.
pub fn lasting(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    with_kinds(spec).filter(|(_, kind)| *kind != ContainerKind::Init).map(|(container, _)| container)
}

/// `metadata.uid`; empty if absent.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// `metadata.name`; empty if absent.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// `metadata.namespace`; empty if absent.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// `NAME_NAMESPACE(UID)`, as the kubelet names pods in messages (K8s pkg/kubelet/util/format).
pub fn pod_ref(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// The pod has the node's own network.
pub fn host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
}

/// The container may do on the node whatever root may.
pub fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|context| context.privileged) == Some(true)
}

/// Returns the grace period of a field: 30 s by default, and the minimum for a negative one (K8s
/// pkg/registry/core/pod/strategy.go, `CheckGracefulDelete`).
pub fn grace_s(seconds: Option<i64>) -> u32 {
    seconds.map_or(DEFAULT_GRACE_S, |seconds| u32::try_from(seconds.max(0)).unwrap_or(u32::MAX))
}

/// `spec.terminationGracePeriodSeconds`, read by [`grace_s`].
pub fn termination_grace_s(pod: &Pod) -> u32 {
    grace_s(pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds))
}

/// `spec.priority`; static pods name their class only, which no API server has resolved (K8s pkg/apis/scheduling).
pub fn priority(pod: &Pod) -> i32 {
    let Some(spec) = &pod.spec else { return 0 };
    spec.priority.unwrap_or(match spec.priority_class_name.as_deref() {
        Some("system-node-critical") => CRITICAL_PRIORITY + 1000,
        Some("system-cluster-critical") => CRITICAL_PRIORITY,
        _ => 0,
    })
}

/// Pods that are never evicted or refused (K8s pkg/kubelet/types, `IsCriticalPod`). Static pods are not admitted again
/// after an end, so they count.
pub fn is_critical(pod: &Pod, is_static: bool) -> bool {
    is_static || annotation(pod, MIRROR).is_some() || priority(pod) >= CRITICAL_PRIORITY
}

/// Returns the value of an annotation.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn containers_have_an_order_and_a_kind() {
        let pod = pod(json!({"spec": {
            "containers": [{"name": "app", "restartPolicy": "Always"}],
            "initContainers": [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}, {"name": "once", "restartPolicy": "Never"}],
        }}));
        let spec = pod.spec.as_ref().unwrap();
        let kinds: Vec<_> = with_kinds(spec).map(|(container, kind)| (container.name.as_str(), kind)).collect();
        let expected = [
            ("first", ContainerKind::Init),
            ("side", ContainerKind::Sidecar),
            ("once", ContainerKind::Init),
            ("app", ContainerKind::App),
        ];
        assert_eq!(kinds, expected);
        assert!(containers_of(&pod).map(|c| c.name.as_str()).eq(["first", "side", "once", "app"]));
        assert!(lasting(spec).map(|c| c.name.as_str()).eq(["side", "app"]));
        assert_eq!(containers_of(&Pod::default()).count(), 0);
    }

    #[test]
    fn a_pod_has_a_name_in_messages() {
        let named = pod(json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}}));
        assert_eq!(pod_ref(&named), "web_shop(u1)");
        assert_eq!(pod_ref(&Pod::default()), "_()");
    }

    #[test]
    fn the_pods_grace_holds() {
        assert_eq!([None, Some(-1), Some(i64::MIN), Some(0), Some(7)].map(grace_s), [30, 0, 0, 0, 7]);
        assert_eq!(grace_s(Some(i64::MAX)), u32::MAX);
        let of = |seconds| {
            termination_grace_s(&pod(json!({"spec": {"containers": [], "terminationGracePeriodSeconds": seconds}})))
        };
        assert_eq!([of(None), of(Some(-5)), of(Some(3))], [30, 0, 3]);
    }

    #[test]
    fn critical_are_the_systems_own_static_ones_and_their_mirrors() {
        let of = |spec: serde_json::Value| is_critical(&pod(json!({"spec": spec})), false);
        assert!(of(json!({"containers": [], "priority": CRITICAL_PRIORITY})));
        assert!(of(json!({"containers": [], "priorityClassName": "system-cluster-critical"})));
        assert!(!of(json!({"containers": [], "priority": CRITICAL_PRIORITY - 1})));
        assert!(is_critical(&Pod::default(), true) && !is_critical(&Pod::default(), false));
        assert!(is_critical(&pod(json!({"metadata": {"annotations": {MIRROR: "u"}}})), false));
    }

    #[test]
    fn shared_host_namespaces_of_a_pod() {
        let of =
            |value: serde_json::Value| host_network(&pod(json!({"spec": {"containers": [], "hostNetwork": value}})));
        assert_eq!([of(json!(true)), of(json!(false)), of(json!(null))], [true, false, false]);
        let of = |value: serde_json::Value| {
            is_privileged(&serde_json::from_value(json!({"name": "c", "securityContext": value})).unwrap())
        };
        assert!(of(json!({"privileged": true})) && !of(json!({"privileged": false})) && !of(json!(null)));
    }
}
