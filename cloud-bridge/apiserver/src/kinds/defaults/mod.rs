//! What the API server fills into objects that leave it out, and the canonical form of quantities. Follows
//! pkg/apis/core/v1/defaults.go of Kubernetes 1.36. Pure and idempotent.

mod pod;

pub(crate) use pod::{new_pod, pod};

use base64::Engine as _;
use edge_protocol::json::SetField;
use serde_json::{Map, Value};

use apimachinery::json::{flag, items_mut, object_mut, remove, set_default, set_default_text, text};
use apimachinery::quantity::{canonicalize, canonicalize_list};

/// Removes fields whose zero value the API server's encoding leaves out.
pub(crate) fn drop_zero(value: &mut Value, fields: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        for field in fields {
            let zero = match map.get(*field) {
                Some(Value::Bool(b)) => !b,
                Some(Value::String(s)) => s.is_empty(),
                Some(Value::Array(a)) => a.is_empty(),
                Some(Value::Object(o)) => o.is_empty(),
                Some(Value::Number(n)) => n.as_i64() == Some(0),
                _ => false,
            };
            if zero {
                map.remove(*field);
            }
        }
    }
}

/// A Secret: its type, and `stringData` written over `data`.
pub(crate) fn secret(secret: &mut Value) {
    set_default_text(secret, "type", "Opaque");
    if let Some(Value::Object(plain)) = remove(secret, "stringData")
        && let Some(data) = object_mut(secret, "data")
    {
        for (key, value) in plain {
            let bytes = value.as_str().unwrap_or_default().as_bytes();
            data.insert(key, base64::engine::general_purpose::STANDARD.encode(bytes).into());
        }
    }
    drop_zero(secret, &["data"]);
}

/// A ConfigMap.
pub(crate) fn config_map(map: &mut Value) {
    drop_zero(map, &["data", "binaryData"]);
}

/// A Namespace: the label that carries its name, and its phase.
pub(crate) fn namespace(namespace: &mut Value) {
    let name = text(&namespace["metadata"], "name").to_owned();
    if !name.is_empty()
        && let Some(labels) = namespace.get_mut("metadata").and_then(|m| object_mut(m, "labels"))
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    if let Some(status) = object_mut(namespace, "status") {
        status.entry("phase").or_insert_with(|| "Active".into());
    }
}

/// A Node: allocatable equals capacity unless said.
pub(crate) fn node(node: &mut Value) {
    object_mut(node, "spec");
    if let Some(spec) = node.get_mut("spec") {
        drop_zero(spec, &["unschedulable", "taints", "podCIDR", "providerID"]);
        for taint in items_mut(spec, "taints") {
            drop_zero(taint, &["value"]);
        }
    }
    let Some(status) = node.get_mut("status").filter(|s| s.is_object()) else { return };
    if status["allocatable"].is_null() && !status["capacity"].is_null() {
        status.set("allocatable", status["capacity"].clone());
    }
    for list in ["capacity", "allocatable"] {
        if let Some(list) = status.get_mut(list) {
            canonicalize_list(list);
        }
    }
}

/// A Service.
pub(crate) fn service(service: &mut Value) {
    let Some(spec) = service.get_mut("spec").filter(|s| s.is_object()) else { return };
    set_default_text(spec, "sessionAffinity", "None");
    set_default_text(spec, "type", "ClusterIP");
    match text(spec, "sessionAffinity") {
        "None" => drop(remove(spec, "sessionAffinityConfig")),
        "ClientIP" if spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").is_none_or(Value::is_null) => {
            spec.set("sessionAffinityConfig", serde_json::json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    for port in items_mut(spec, "ports") {
        set_default_text(port, "protocol", "TCP");
        let unset = match &port["targetPort"] {
            Value::Null => true,
            Value::String(name) => name.is_empty(),
            number => number.as_i64() == Some(0),
        };
        if unset {
            port.set("targetPort", port["port"].clone());
        }
        drop_zero(port, &["nodePort", "name"]);
    }
    let kind = text(spec, "type").to_owned();
    if ["NodePort", "LoadBalancer"].contains(&kind.as_str()) {
        set_default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        set_default_text(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
    if !flag(spec, "publishNotReadyAddresses") {
        remove(spec, "publishNotReadyAddresses");
    }
}

/// An Endpoints object.
pub(crate) fn endpoints(endpoints: &mut Value) {
    for subset in items_mut(endpoints, "subsets") {
        for port in items_mut(subset, "ports") {
            set_default_text(port, "protocol", "TCP");
        }
    }
}

/// An EndpointSlice.
pub(crate) fn endpoint_slice(slice: &mut Value) {
    for port in items_mut(slice, "ports") {
        set_default(port, "name", "");
        set_default_text(port, "protocol", "TCP");
    }
}

/// A PersistentVolume.
pub(crate) fn persistent_volume(volume: &mut Value) {
    if let Some(status) = object_mut(volume, "status") {
        status.entry("phase").or_insert_with(|| "Pending".into());
    }
    let Some(spec) = volume.get_mut("spec").filter(|s| s.is_object()) else { return };
    set_default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    set_default_text(spec, "volumeMode", "Filesystem");
    if let Some(path) = spec.get_mut("hostPath").filter(|p| p.is_object()) {
        set_default(path, "type", "");
    }
    if let Some(capacity) = spec.get_mut("capacity") {
        canonicalize_list(capacity);
    }
}

/// A PersistentVolumeClaim.
pub(crate) fn persistent_volume_claim(claim: &mut Value) {
    if let Some(status) = object_mut(claim, "status") {
        status.entry("phase").or_insert_with(|| "Pending".into());
        if let Some(capacity) = status.get_mut("capacity") {
            canonicalize_list(capacity);
        }
    }
    if let Some(spec) = claim.get_mut("spec").filter(|s| s.is_object()) {
        claim_spec(spec);
    }
}

fn claim_spec(spec: &mut Value) {
    set_default_text(spec, "volumeMode", "Filesystem");
    if let Some(resources) = spec.get_mut("resources").filter(|r| r.is_object()) {
        resource_lists(resources);
    }
}

/// `limits` and `requests` in canonical form; empty lists go.
fn resource_lists(resources: &mut Value) {
    for list in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(list) {
            canonicalize_list(list);
        }
    }
    drop_zero(resources, &["limits", "requests", "claims"]);
}

/// An Event of the core group: fields that the API server always writes.
pub(crate) fn event(event: &mut Value) {
    if event.get("regarding").is_some() {
        return;
    }
    set_default(event, "source", Value::Object(Map::new()));
    set_default(event, "firstTimestamp", Value::Null);
    set_default(event, "lastTimestamp", Value::Null);
    set_default(event, "eventTime", Value::Null);
    set_default(event, "reportingComponent", "");
    set_default(event, "reportingInstance", "");
}

/// A quantity of a volume's size limit.
fn size_limit(holder: &mut Value) {
    if let Some(limit) = holder.get_mut("sizeLimit") {
        canonicalize(limit);
    }
}
