//! A Service as a node sees it: the fields that affect packets or DNS answers, with their own names. Pure.

use edge_protocol::message::Object;
use kube::api::DynamicObject;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::slim::made_object;
use super::told::groups::{DNS_LABEL, DNS_NAMESPACE};
use super::told::kinds::Kind;

/// Label with the name of another proxy that serves the Service (K8s pkg/proxy/apis/well_known_labels.go).
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// `None` for a Service that another proxy serves, or without address and name.
pub(super) fn service_view(service: &DynamicObject) -> Option<Object> {
    let labels = service.metadata.labels.as_ref();
    if labels.is_some_and(|labels| labels.contains_key(PROXY_NAME)) {
        return None;
    }
    let from = &service.data["spec"];
    let mut spec = json!({});
    let mut copy = |field: &str| {
        let value = &from[field];
        let empty = value.is_null() || *value == json!([]) || *value == json!({}) || *value == json!(false);
        if !empty {
            spec.set(field, value.clone());
        }
    };
    ["externalIPs", "selector", "publishNotReadyAddresses", "trafficDistribution", "loadBalancerSourceRanges"]
        .into_iter()
        .for_each(&mut copy);
    if from["type"] == "ExternalName" {
        copy("externalName");
    }
    let single = from["clusterIP"].as_str().filter(|ip| !ip.is_empty()).map(|ip| json!([ip]));
    match &from["clusterIPs"] {
        Value::Array(ips) if !ips.is_empty() => spec.set("clusterIPs", from["clusterIPs"].clone()),
        _ => single.into_iter().for_each(|ips| spec.set("clusterIPs", ips)),
    }
    for policy in ["externalTrafficPolicy", "internalTrafficPolicy"] {
        if from[policy] == "Local" {
            spec.set(policy, "Local".into());
        }
    }
    if from["sessionAffinity"] == "ClientIP" {
        let seconds = from["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].as_u64().unwrap_or(10_800);
        spec.set("affinitySeconds", seconds.into());
    }
    let ingress = service.data["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    let ingress: Vec<&Value> = ingress.filter(|at| at["ipMode"] != "Proxy").map(|at| &at["ip"]).collect();
    if ingress.iter().any(|ip| ip.is_string()) {
        spec.set("ingressIPs", ingress.into_iter().filter(|ip| ip.is_string()).cloned().collect());
    }
    let ports: Vec<Value> = items(&from["ports"]).map(port).collect();
    if !ports.is_empty() {
        spec.set("ports", ports.into());
    }
    if let Some(port @ 1..) = from["healthCheckNodePort"].as_u64() {
        spec.set("healthCheckNodePort", port.into());
    }
    if is_dns(service) {
        spec.set("dns", true.into());
    }
    if spec.get("clusterIPs").is_none() && spec.get("externalName").is_none() {
        return None;
    }
    if let Some(created) = service.metadata.creation_timestamp.as_ref().filter(|_| asks_for_outside(&spec)) {
        spec.set("created", json!(created));
    }
    made(service, json!({ "kind": Kind::ServiceView.name(), "spec": spec }))
}

/// Whether it has addresses that other Services may claim too: the oldest Service gets them.
fn asks_for_outside(spec: &Value) -> bool {
    spec.get("externalIPs").is_some() || spec.get("ingressIPs").is_some()
}

/// Whether it is the cluster's DNS, which nodes serve themselves.
pub(super) fn is_dns(service: &DynamicObject) -> bool {
    let label = service.metadata.labels.as_ref().and_then(|labels| labels.get(DNS_LABEL.0));
    service.metadata.namespace.as_deref() == Some(DNS_NAMESPACE) && label.is_some_and(|app| app == DNS_LABEL.1)
}

/// A port of a Service or of an EndpointSlice: the fields that are not the default.
pub(super) fn port(from: &Value) -> Value {
    let mut port = json!({ "port": from["port"] });
    for field in ["name", "protocol", "targetPort", "nodePort"] {
        if !from[field].is_null() && from[field] != "TCP" && from[field] != 0 {
            port.set(field, from[field].clone());
        }
    }
    port
}

fn made(service: &DynamicObject, body: Value) -> Option<Object> {
    let (name, uid) = (service.metadata.name.clone()?, service.metadata.uid.clone()?);
    let namespace = service.metadata.namespace.clone().unwrap_or_default();
    Some(made_object(Kind::ServiceView.key(namespace, name), uid, body))
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn service(labels: Value, spec: Value) -> DynamicObject {
        object(json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": labels}, "spec": spec}))
    }

    #[test]
    fn a_view_says_what_is_not_the_default() {
        let spec = json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "type": "NodePort",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 30080}],
            "selector": {"app": "web"}, "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}},
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "publishNotReadyAddresses": false});
        let view = service_view(&service(json!({}), spec)).unwrap();
        let wanted = json!({"clusterIPs": ["10.96.0.7"], "affinitySeconds": 7, "externalTrafficPolicy": "Local",
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080}]});
        assert_eq!(view.body["spec"], wanted);
        assert_eq!((view.digest.key.kind.as_str(), view.digest.uid.as_str()), ("ServiceView", "u"));
    }

    #[test]
    fn the_age_of_a_service_with_outside_addresses_is_told() {
        let metadata =
            json!({"name": "web", "namespace": "shop", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"});
        let told = |spec: Value| {
            service_view(&object(json!({"metadata": metadata, "spec": spec}))).unwrap().body["spec"]["created"].clone()
        };
        assert_eq!(told(json!({"clusterIP": "10.96.0.7", "externalIPs": ["192.0.2.1"]})), "2026-01-02T03:04:05Z");
        assert_eq!(told(json!({"clusterIP": "10.96.0.7"})), Value::Null);
    }

    #[test]
    fn the_clusters_dns_is_known_by_label_and_namespace() {
        let dns = |namespace: &str, label: &str| {
            let metadata = json!({"name": "any", "namespace": namespace, "uid": "u", "labels": {"k8s-app": label}});
            let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.10"}});
            service_view(&object(service)).unwrap().body["spec"]["dns"] == true
        };
        assert!(dns("kube-system", "kube-dns"));
        // A user may label any Service of their own namespace.
        assert!(!dns("shop", "kube-dns") && !dns("kube-system", "other"));
    }

    #[test]
    fn what_others_serve_and_what_has_no_name_is_not_told() {
        let spec = json!({"clusterIP": "10.96.0.7"});
        assert!(service_view(&service(json!({PROXY_NAME: "other"}), spec.clone())).is_none());
        assert!(service_view(&service(json!({}), json!({"externalName": "a.b"}))).is_none());
        let outside = service_view(&service(json!({}), json!({"type": "ExternalName", "externalName": "a.b"})));
        assert_eq!(outside.unwrap().body["spec"], json!({"externalName": "a.b"}));
        assert!(service_view(&service(json!({}), json!([3]))).is_none());
        assert!(service_view(&object(json!({"metadata": {}, "spec": spec}))).is_none());
    }
}
