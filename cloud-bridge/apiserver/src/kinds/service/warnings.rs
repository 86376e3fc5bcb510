//! Warnings about a valid Service (K8s pkg/api/service/warnings.go). Pure.

use serde_json::Value;

use crate::kinds::cidr;
use apimachinery::json::{items, text};

/// Maximum number of warnings.
const TOLD_MAX: usize = 32;

pub(super) fn of(service: &Value) -> Vec<String> {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let spec = &service["spec"];
    let (kind, outside) = (text(spec, "type"), items(spec, "externalIPs"));
    let headless = kind == "ClusterIP" && text(spec, "clusterIP") == "None";
    let mut told = Vec::new();
    if service["metadata"]["annotations"].get(HINTS).is_some() {
        told.push(format!("annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"));
    }
    if !matches!(text(spec, "clusterIP"), "" | "None") {
        told.extend(addresses("spec.clusterIPs", items(spec, "clusterIPs")));
    }
    if headless {
        for (field, ignored) in [
            ("loadBalancerIP", !text(spec, "loadBalancerIP").is_empty()),
            ("externalIPs", !outside.is_empty()),
            ("SessionAffinity", text(spec, "sessionAffinity") != "None"),
        ] {
            told.extend(ignored.then(|| format!("spec.{field} is ignored for headless services")));
        }
    }
    told.extend(addresses("spec.externalIPs", outside));
    if !outside.is_empty() && !headless && kind != "ExternalName" {
        told.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    told.extend(cidr::ip_warning("spec.loadBalancerIP", text(spec, "loadBalancerIP")));
    for (i, range) in items(spec, "loadBalancerSourceRanges").iter().enumerate() {
        let path = format!("spec.loadBalancerSourceRanges[{i}]");
        told.extend(cidr::warnings(&path, range.as_str().unwrap_or_default()));
    }
    if kind == "ExternalName" && !outside.is_empty() {
        told.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(spec, "externalName").is_empty() {
        told.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        told.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    told.truncate(TOLD_MAX);
    told
}

fn addresses<'a>(path: &'a str, list: &'a [Value]) -> impl Iterator<Item = String> + 'a {
    let indexed = list.iter().enumerate();
    indexed.filter_map(move |(i, one)| cidr::ip_warning(&format!("{path}[{i}]"), one.as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_warning_has_kubernetes_words() {
        let headless = json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "None"});
        assert!(of(&json!({ "spec": headless })).is_empty());
        for (spec, expected) in [
            (
                json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP"}),
                "spec.SessionAffinity is ignored for headless services",
            ),
            (
                json!({"type": "ClusterIP", "externalIPs": ["1.2.3.4"]}),
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            ),
            (
                json!({"type": "ExternalName", "externalIPs": ["1.2.3.4"]}),
                "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
            ),
            (
                json!({"type": "ClusterIP", "externalName": "a.b"}),
                "spec.externalName is ignored when spec.type is not \"ExternalName\"",
            ),
            (
                json!({"type": "ClusterIP", "trafficDistribution": "PreferClose"}),
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ),
            (
                json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]}),
                "spec.loadBalancerSourceRanges[0]: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \
                 \"10.0.0.0/8\" or \"10.0.0.1/32\"?)",
            ),
        ] {
            assert_eq!(of(&json!({ "spec": spec })), [expected]);
        }
        let annotated = json!({"metadata": {"annotations": {"service.kubernetes.io/topology-aware-hints": "auto"}}});
        assert!(of(&annotated)[0].contains("topology-mode"));
    }
}
