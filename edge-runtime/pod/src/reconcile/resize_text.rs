//! Texts of the events about a resize, as tools read them. Pure; knows nothing of how a resize goes.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use serde::Serialize;

/// Fields and their order as in K8s pkg/kubelet/events/resize.go, `podResourceSummary`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Allocation<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Allocation<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct Allocation<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

/// `what`: `started`, `completed`, `error`, or the reason why it waits. `generation`: `metadata.generation` of the resize.
pub fn text(spec: &PodSpec, what: &str, generation: i64, error: &str) -> String {
    fn of(c: &Container) -> Allocation<'_> {
        Allocation { name: &c.name, resources: c.resources.clone().unwrap_or_default() }
    }
    let summary = Summary {
        init_containers: spec.init_containers.iter().flatten().map(of).collect(),
        containers: spec.containers.iter().map(of).collect(),
        generation,
        error,
    };
    format!("Pod resize {what}: {}", serde_json::to_string(&summary).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::pod;

    #[test]
    fn texts_are_the_kubelets() {
        let pod = pod(json!({"initContainers": [{"name": "i", "image": "x"}],
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "24m"}, "limits": {"cpu": "48m"}}}]}));
        let spec = pod.spec.as_ref().unwrap();
        let expected = r#"Pod resize OutOfcpu: {"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"c","resources":{"limits":{"cpu":"48m"},"requests":{"cpu":"24m"}}}],"generation":2,"error":"no \"room\""}"#;
        assert_eq!(text(spec, "OutOfcpu", 2, "no \"room\""), expected);
        let bare = super::super::super::testing::pod(json!({"containers": [{"name": "c", "image": "x"}]}));
        let expected = r#"Pod resize started: {"containers":[{"name":"c","resources":{}}],"generation":1}"#;
        assert_eq!(text(bare.spec.as_ref().unwrap(), "started", 1, ""), expected);
    }
}
