//! What the containers of a pod ask for together at any time of its life (K8s component-helpers/resource,
//! `AggregateContainerRequests`). Pure; knows nothing of what is asked for.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::reconcile::kind_of;
use super::record::ContainerKind;

/// App containers and sidecars together, or more while an init container runs beside the sidecars started before it.
pub fn together(spec: &PodSpec, of: impl Fn(&Container) -> i64) -> i64 {
    let (mut sidecars, mut peak) = (0i64, 0i64);
    for container in spec.init_containers.iter().flatten() {
        let with = sidecars.saturating_add(of(container));
        if kind_of(container, true) == ContainerKind::Sidecar {
            sidecars = with;
        }
        peak = peak.max(with);
    }
    spec.containers.iter().map(of).fold(sidecars, i64::saturating_add).max(peak)
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
}
