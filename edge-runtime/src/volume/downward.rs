//! Values a pod may read about itself: `fieldRef` and `resourceFieldRef`, for environment and files alike. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::pod::quantity::{milli, value};
use crate::pod::spec::containers;

/// Values beside the pod object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DownwardFacts {
    pub node_name: String,
    pub host_ips: Vec<String>,
    pub pod_ips: Vec<String>,
    /// Stand in for a container's missing limits.
    pub allocatable_cpu_milli: u64,
    pub allocatable_memory_bytes: u64,
    pub allocatable_storage_bytes: u64,
    /// Limit of the pod as a whole, if it has one.
    pub pod_memory_limit: Option<u64>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownwardError {
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    #[error("fieldPath {0:?} does not support subscript")]
    Subscript(String),
    #[error("unsupported container resource: {0}")]
    Resource(String),
    #[error("container {0} not found")]
    Container(String),
    #[error("{0:?} is no usable quantity")]
    Quantity(String),
}

/// Value of a `fieldRef.fieldPath`.
pub fn field_value(pod: &Pod, path: &str, facts: &DownwardFacts) -> Result<String, DownwardError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return Err(DownwardError::Subscript(path.to_string())),
        };
        return Ok(map.and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Ok(match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => format_map(meta.labels.as_ref()),
        "metadata.annotations" => format_map(meta.annotations.as_ref()),
        "spec.nodeName" => spec
            .and_then(|spec| spec.node_name.clone())
            .filter(|name| !name.is_empty())
            .unwrap_or(facts.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" => facts.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => facts.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(DownwardError::Field(path.to_string())),
    })
}

/// `metadata.labels['a.b/c']` to `("metadata.labels", "a.b/c")`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// One `key="value"` a line, sorted; the value quoted as Go's `%q` does.
fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Value of a `resourceFieldRef` (`limits.cpu`, `requests.memory`, ...) of a container, in units of `divisor`
/// (default 1), rounded up. A missing limit reads as the pod's, or as the node's allocatable without that; a missing
/// request as 0.
pub fn resource_value(
    pod: &Pod,
    container: &str,
    resource: &str,
    divisor: Option<&Quantity>,
    facts: &DownwardFacts,
) -> Result<String, DownwardError> {
    let resources = resources_of(pod, container).ok_or_else(|| DownwardError::Container(container.to_string()))?;
    let unknown = || DownwardError::Resource(resource.to_string());
    let (list, name) = resource.split_once('.').ok_or_else(unknown)?;
    let known = name == "cpu" || name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-");
    if !known || !matches!(list, "limits" | "requests") {
        return Err(unknown());
    }
    let in_milli = name == "cpu";
    let number = |text: &str| {
        let number = if in_milli { milli(text) } else { value(text) };
        number.ok_or_else(|| DownwardError::Quantity(text.to_string()))
    };
    let given = |from: Option<&ResourceRequirements>| {
        let lists = from.and_then(|r| if list == "limits" { r.limits.as_ref() } else { r.requests.as_ref() });
        lists.and_then(|map| map.get(name)).map(|quantity| number(&quantity.0)).transpose()
    };
    // A limit of the pod as a whole stands before the node (K8s pkg/kubelet/kubelet_resources.go).
    let whole = || given(pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()));
    let amount = match given(resources)? {
        Some(amount) if amount != 0 || list == "requests" => amount,
        _ if list == "limits" => whole()?.filter(|amount| *amount != 0).unwrap_or_else(|| allocatable(name, facts)),
        _ => 0,
    };
    let divisor = divisor.map(|divisor| number(&divisor.0)).transpose()?.filter(|divisor| *divisor > 0);
    let divisor = divisor.unwrap_or(if in_milli { 1000 } else { 1 });
    Ok((amount.div_euclid(divisor) + i64::from(amount.rem_euclid(divisor) != 0)).to_string())
}

fn allocatable(name: &str, facts: &DownwardFacts) -> i64 {
    let amount = match name {
        "cpu" => facts.allocatable_cpu_milli,
        "memory" => facts.allocatable_memory_bytes,
        "ephemeral-storage" => facts.allocatable_storage_bytes,
        _ => 0,
    };
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Resources of the container with this name. An ephemeral container does not have any.
fn resources_of<'a>(pod: &'a Pod, name: &str) -> Option<Option<&'a ResourceRequirements>> {
    let spec = pod.spec.as_ref()?;
    let found = containers(spec).find(|container| container.name == name).map(|container| container.resources.as_ref());
    found.or_else(|| spec.ephemeral_containers.iter().flatten().any(|c| c.name == name).then_some(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1",
                "labels": {"app": "web", "a.b/c": "x"}, "annotations": {"note": "say \"hi\"\nthere"}},
            "spec": {"serviceAccountName": "robot", "initContainers": [{"name": "init"}],
                "containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "65Mi"}}}]}
        }))
        .unwrap()
    }

    fn facts() -> DownwardFacts {
        DownwardFacts {
            node_name: "edge-1".into(),
            host_ips: vec!["192.168.1.7".into()],
            pod_ips: vec!["10.88.0.2".into()],
            allocatable_cpu_milli: 3900,
            allocatable_memory_bytes: 400 << 20,
            allocatable_storage_bytes: 5,
            pod_memory_limit: None,
        }
    }

    #[test]
    fn fields_of_the_pod_and_the_node() {
        let cases = [
            ("metadata.name", "web"),
            ("metadata.uid", "u1"),
            ("metadata.labels['a.b/c']", "x"),
            ("metadata.labels['none']", ""),
            ("metadata.labels", "a.b/c=\"x\"\napp=\"web\""),
            ("metadata.annotations", "note=\"say \\\"hi\\\"\\nthere\""),
            ("spec.nodeName", "edge-1"),
            ("spec.serviceAccountName", "robot"),
            ("status.podIP", "10.88.0.2"),
            ("status.hostIP", "192.168.1.7"),
        ];
        for (path, expected) in cases {
            assert_eq!(field_value(&pod(), path, &facts()).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn unknown_fields_are_named() {
        assert_eq!(field_value(&pod(), "spec.x", &facts()), Err(DownwardError::Field("spec.x".into())));
        assert!(field_value(&pod(), "spec.nodeName['x']", &facts()).is_err());
    }

    #[test]
    fn resources_round_up_and_default_to_allocatable() {
        let get = |container, resource, divisor: Option<&str>| {
            let divisor = divisor.map(|text| Quantity(text.to_string()));
            resource_value(&pod(), container, resource, divisor.as_ref(), &facts()).unwrap()
        };
        assert_eq!(get("c", "limits.cpu", None), "2");
        assert_eq!(get("c", "limits.cpu", Some("1m")), "1500");
        assert_eq!(get("c", "limits.memory", Some("1Mi")), "400");
        assert_eq!(get("c", "requests.memory", None), (65 << 20).to_string());
        assert_eq!(get("c", "requests.memory", Some("10Mi")), "7");
        assert_eq!(get("init", "limits.cpu", None), "4");
        assert_eq!(get("init", "requests.cpu", None), "0");
        assert_eq!(get("c", "limits.cpu", Some("0")), "2");
    }

    #[test]
    fn limit_of_the_pod_precedes_that_of_the_node() {
        let mut pod = pod();
        let spec = pod.spec.as_mut().unwrap();
        spec.resources = serde_json::from_value(json!({"limits": {"memory": "64Mi", "cpu": "250m"}})).unwrap();
        spec.ephemeral_containers = serde_json::from_value(json!([{"name": "debugger"}])).unwrap();
        let get = |container, resource| resource_value(&pod, container, resource, None, &facts()).unwrap();
        assert_eq!(get("c", "limits.memory"), (64 << 20).to_string());
        assert_eq!(get("c", "limits.cpu"), "2", "its own limit, 1500m");
        assert_eq!(get("init", "limits.cpu"), "1");
        assert_eq!(get("init", "limits.ephemeral-storage"), "5");
        assert_eq!(get("debugger", "limits.memory"), (64 << 20).to_string());
        assert_eq!(get("debugger", "requests.memory"), "0");
    }

    #[test]
    fn unknown_resources_and_containers_are_named() {
        assert!(resource_value(&pod(), "c", "limits.gpu", None, &facts()).is_err());
        assert!(resource_value(&pod(), "zz", "limits.cpu", None, &facts()).is_err());
    }
}
