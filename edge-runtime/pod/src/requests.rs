//! Requests and limits of a pod, over all its containers (K8s component-helpers/resource, `PodRequests` and
//! `PodLimits`). Pure; does not know the node's resources.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::quantity;
use super::record::ContainerKind;
use super::spec::with_kinds;

/// Resources that can be requested for the pod as a whole (K8s component-helpers/resource,
/// `supportedPodLevelResources`).
const POD_LEVEL: [&str; 2] = ["cpu", "memory"];

/// Thousandths of a cpu, whole units of all else. `None` if malformed.
pub fn amount(resource: &str, Quantity(text): &Quantity) -> Option<i64> {
    if resource == "cpu" { quantity::milli(text) } else { quantity::value(text) }
}

/// Request of a container, or of a pod as a whole; defaults to its limit.
pub fn request(resources: Option<&ResourceRequirements>, resource: &str) -> Option<i64> {
    let resources = resources?;
    let given = resources.requests.as_ref().and_then(|list| list.get(resource));
    amount(resource, given.or_else(|| resources.limits.as_ref()?.get(resource))?)
}

/// Limit of a container, or of a pod as a whole.
pub fn limit(resources: Option<&ResourceRequirements>, resource: &str) -> Option<i64> {
    amount(resource, resources?.limits.as_ref()?.get(resource)?)
}

/// Request of the whole pod, including the overhead of the runtime.
pub fn pod_request(pod: &Pod, resource: &str) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let whole = POD_LEVEL.contains(&resource).then(|| request(spec.resources.as_ref(), resource)).flatten();
    let sum = || together(spec, |container| request(container.resources.as_ref(), resource).unwrap_or(0));
    whole.unwrap_or_else(sum).saturating_add(overhead(spec, resource))
}

/// What the whole pod is limited to, if anything.
pub fn pod_limit(pod: &Pod, resource: &str) -> Option<i64> {
    let spec = pod.spec.as_ref()?;
    let sum = || Some(walk(spec, limits(resource)).0).filter(|sum| *sum > 0);
    let limit = limit(spec.resources.as_ref(), resource).filter(|_| POD_LEVEL.contains(&resource)).or_else(sum)?;
    Some(limit.saturating_add(overhead(spec, resource)))
}

/// Same as [`pod_limit`], if the pod as a whole or every container is limited: otherwise the pod's cgroup has no limit
/// (K8s pkg/kubelet/cm/helpers_linux.go, `ResourceConfigForPod`).
pub fn enforced_limit(pod: &Pod, resource: &str) -> Option<i64> {
    let spec = pod.spec.as_ref()?;
    let whole = limit(spec.resources.as_ref(), resource).is_some_and(|limit| limit > 0);
    (whole || walk(spec, limits(resource)).1).then(|| pod_limit(pod, resource)).flatten()
}

fn limits(resource: &str) -> impl Fn(&Container) -> i64 {
    move |container| limit(container.resources.as_ref(), resource).unwrap_or(0)
}

fn overhead(spec: &PodSpec, resource: &str) -> i64 {
    spec.overhead.as_ref().and_then(|list| amount(resource, list.get(resource)?)).unwrap_or(0)
}

/// App containers and sidecars together, or more while an init container runs beside the sidecars started before it.
pub fn together(spec: &PodSpec, of: impl Fn(&Container) -> i64) -> i64 {
    walk(spec, of).0
}

/// Same as [`together`], and whether every app container, and each init container or a sidecar beside it, has a value.
fn walk(spec: &PodSpec, of: impl Fn(&Container) -> i64) -> (i64, bool) {
    let (mut lasting, mut peak, mut always) = (0i64, 0i64, true);
    for (container, kind) in with_kinds(spec) {
        let own = of(container);
        let with = lasting.saturating_add(own);
        if kind != ContainerKind::Init {
            lasting = with;
        }
        peak = peak.max(with);
        always &= if kind == ContainerKind::App { own > 0 } else { with > 0 };
    }
    (peak, always)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// K8s component-helpers/resource/helpers_test.go: an init container has the sidecars beside it that were started
    /// before it.
    #[test]
    fn the_most_at_any_time() {
        let container = |kind: &str, n: i64| {
            let policy = if kind == "sidecar" { json!("Always") } else { json!(null) };
            json!({"name": n.to_string(), "image": "i", "restartPolicy": policy})
        };
        for (init, apps, most) in [
            (vec![], vec![1, 2], 3),
            (vec![("init", 10)], vec![1, 2], 10),
            (vec![("sidecar", 5), ("init", 10)], vec![1, 2], 15),
            (vec![("init", 10), ("sidecar", 5)], vec![1, 2], 10),
            (vec![("init", 7), ("sidecar", 5)], vec![1, 2], 8),
            (vec![("sidecar", 5), ("init", 1), ("sidecar", 6), ("init", 4)], vec![1], 15),
        ] {
            let init: Vec<_> = init.into_iter().map(|(kind, n)| container(kind, n)).collect();
            let apps: Vec<_> = apps.into_iter().map(|n| container("app", n)).collect();
            let spec: PodSpec = serde_json::from_value(json!({"containers": apps, "initContainers": init})).unwrap();
            assert_eq!(together(&spec, |c| c.name.parse().unwrap()), most, "{spec:?}");
        }
    }

    fn pod(init: &serde_json::Value, limits: &[serde_json::Value]) -> Pod {
        let of = |limits: &serde_json::Value| json!({"name": "c", "resources": {"limits": limits}});
        let apps: Vec<_> = limits.iter().map(of).collect();
        serde_json::from_value(json!({"spec": {"initContainers": init, "containers": apps}})).unwrap()
    }

    #[test]
    fn a_pod_is_limited_where_all_of_it_is() {
        let limit = |n: &str| json!({"memory": n});
        let none = json!([]);
        assert_eq!(enforced_limit(&pod(&none, &[limit("1"), limit("2")]), "memory"), Some(3));
        for open in [json!({}), limit("0")] {
            let half = pod(&none, &[limit("1"), open]);
            assert_eq!((enforced_limit(&half, "memory"), pod_limit(&half, "memory")), (None, Some(1)));
        }
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"limits": limit("5")}});
        let open = json!({"name": "i"});
        assert_eq!(enforced_limit(&pod(&json!([sidecar, open]), &[limit("1")]), "memory"), Some(6));
        assert_eq!(enforced_limit(&pod(&json!([open, sidecar]), &[limit("1")]), "memory"), None);
        let mut whole = pod(&none, &[limit("1"), json!({})]);
        whole.spec.as_mut().unwrap().resources = serde_json::from_value(json!({"limits": limit("9")})).unwrap();
        whole.spec.as_mut().unwrap().overhead = serde_json::from_value(limit("4")).unwrap();
        assert_eq!((enforced_limit(&whole, "memory"), pod_request(&whole, "memory")), (Some(13), 13));
        assert_eq!((pod_limit(&whole, "cpu"), pod_request(&whole, "cpu")), (None, 0));
    }
}
