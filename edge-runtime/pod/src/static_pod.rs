//! Pods from manifest files on the node: parsing, naming, and the mirror object shown in the API. Pure.
//!
//! As in the kubelet, a static pod must not name objects of the API: it must start without one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration, Volume};
use sampan_json::SetField;
use serde_json::Value;
use thiserror::Error;

use super::dns::{is_label, is_subdomain};
use super::spec::{DEFAULT_GRACE_S, MIRROR, SOURCE, containers};
use super::{id, strict};

const HASH: &str = "kubernetes.io/config.hash";
const SEEN: &str = "kubernetes.io/config.seen";

/// Error of a manifest that is not a valid pod for this node; names file and field.
#[derive(Debug, Error)]
#[error("static pod {file}: {problem}")]
pub struct ManifestError {
    pub file: String,
    pub problem: String,
}

/// The pod of one manifest file (YAML or JSON), with its static name `NAME-NODE`, uid and annotations
/// (`kubernetes.io/config.hash`, `.source`, `.seen`). `file` is the name within the manifests folder.
///
/// # Errors
/// Text that does not parse, is not a v1 Pod, has an unknown or wrong field, or names what needs the API.
pub fn parse(file: &str, text: &str, node: &str, seen: jiff::Timestamp) -> Result<Pod, ManifestError> {
    let problem = |problem: String| ManifestError { file: file.to_owned(), problem };
    let mut pod = read(text).map_err(problem)?;
    check(&pod).map_err(problem)?;
    let uid = uid(file, text, node);
    let meta = &mut pod.metadata;
    meta.name = Some(format!("{}-{node}", meta.name.as_deref().unwrap_or_default()));
    meta.namespace.get_or_insert_with(|| "default".to_owned());
    meta.uid = Some(uid.clone());
    let seen = seen.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let annotations = meta.annotations.get_or_insert_with(BTreeMap::new);
    annotations.extend([(HASH, uid), (SOURCE, "file".to_owned()), (SEEN, seen)].map(|(k, v)| (k.to_owned(), v)));
    if let Some(spec) = &mut pod.spec {
        fill_defaults(spec, node);
    }
    Ok(pod)
}

/// The mirror object for the API: the pod marked as mirror (`kubernetes.io/config.mirror`), without uid and status.
/// Its owner reference to the Node is for the bridge to add, which knows the Node's uid.
///
/// # Errors
/// The pod cannot be written as JSON.
pub fn mirror(pod: &Pod) -> serde_json::Result<Value> {
    let mut mirror = serde_json::to_value(pod)?;
    if let Some(fields) = mirror.as_object_mut() {
        fields.remove("status");
    }
    if let Some(meta) = mirror.at_mut(&["metadata"]).and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            meta.remove(field);
        }
    }
    let hash = pod.metadata.annotations.as_ref().and_then(|all| all.get(HASH)).cloned().unwrap_or_default();
    mirror.set_at(&["metadata", "annotations", MIRROR], hash.into());
    Ok(mirror)
}

/// Changes with node, file name and content: an edited manifest is another pod.
fn uid(file: &str, text: &str, node: &str) -> String {
    let mut uid = id::sha256_hex(format!("{node}\0{file}\0{text}").as_bytes());
    uid.truncate(32);
    uid
}

fn read(text: &str) -> Result<Pod, String> {
    let raw: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?
    } else {
        // By way of YAML's own value, which refuses a key that is given twice.
        let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(text).map_err(|error| format!("not YAML: {error}"))?;
        serde_json::to_value(yaml).map_err(|error| format!("not YAML that JSON can express: {error}"))?
    };
    let word = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default();
    if (word("apiVersion"), word("kind")) != ("v1", "Pod") {
        return Err(format!("apiVersion {:?}, kind {:?}: expected a v1 Pod", word("apiVersion"), word("kind")));
    }
    strict::parse_pod(&raw)
}

fn check(pod: &Pod) -> Result<(), String> {
    let meta = &pod.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    if !is_subdomain(name) {
        return Err(format!("metadata.name: invalid value {name:?}"));
    }
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    if !is_label(namespace) {
        return Err(format!("metadata.namespace: invalid value {namespace:?}"));
    }
    let Some(spec) = pod.spec.as_ref().filter(|s| !s.containers.is_empty()) else {
        return Err("spec.containers: required value".to_owned());
    };
    let mut names = Vec::new();
    for (list, containers) in
        [("initContainers", spec.init_containers.as_deref().unwrap_or_default()), ("containers", &spec.containers)]
    {
        for (i, container) in containers.iter().enumerate() {
            let path = format!("spec.{list}[{i}]");
            if !is_label(&container.name) {
                return Err(format!("{path}.name: invalid value {:?}", container.name));
            }
            if names.contains(&container.name.as_str()) {
                return Err(format!("{path}.name: duplicate value {:?}", container.name));
            }
            names.push(&container.name);
            if container.image.as_deref().unwrap_or_default().is_empty() {
                return Err(format!("{path}.image: required value"));
            }
            check_mounts(container, spec, &path)?;
        }
    }
    match api_reference(spec) {
        Some(kind) => Err(format!("static pods may not reference {kind}")),
        None => Ok(()),
    }
}

fn check_mounts(container: &Container, spec: &PodSpec, path: &str) -> Result<(), String> {
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if !spec.volumes.iter().flatten().any(|v| v.name == mount.name) {
            return Err(format!("{path}.volumeMounts[{i}].name: not found: {:?}", mount.name));
        }
    }
    Ok(())
}

/// A kind of API object that the pod names, if any.
fn api_reference(spec: &PodSpec) -> Option<&'static str> {
    let containers = || containers(spec);
    let env_from = || containers().flat_map(|c| c.env_from.iter().flatten());
    let env = || containers().flat_map(|c| c.env.iter().flatten()).filter_map(|e| e.value_from.as_ref());
    let volumes = || spec.volumes.iter().flatten();
    let projections = || volumes().filter_map(|v| v.projected.as_ref()).flat_map(|p| p.sources.iter().flatten());
    let volume = |has: fn(&Volume) -> bool| volumes().any(has);
    if spec.image_pull_secrets.as_ref().is_some_and(|s| !s.is_empty())
        || env_from().any(|e| e.secret_ref.is_some())
        || env().any(|e| e.secret_key_ref.is_some())
        || volume(|v| v.secret.is_some())
        || projections().any(|p| p.secret.is_some())
    {
        return Some("secrets");
    }
    if env_from().any(|e| e.config_map_ref.is_some())
        || env().any(|e| e.config_map_key_ref.is_some())
        || volume(|v| v.config_map.is_some())
        || projections().any(|p| p.config_map.is_some())
    {
        return Some("configmaps");
    }
    if spec.service_account_name.as_ref().or(spec.service_account.as_ref()).is_some_and(|n| !n.is_empty())
        || projections().any(|p| p.service_account_token.is_some())
    {
        return Some("serviceaccounts");
    }
    if volume(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some()) {
        return Some("persistentvolumeclaims");
    }
    spec.resource_claims.as_ref().filter(|c| !c.is_empty()).map(|_| "resourceclaims")
}

/// Sets defaults of the API server on which this node relies, and fields that the kubelet adds to static pods.
fn fill_defaults(spec: &mut PodSpec, node: &str) {
    spec.node_name = Some(node.to_owned());
    spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
    spec.dns_policy.get_or_insert_with(|| "ClusterFirst".to_owned());
    spec.termination_grace_period_seconds.get_or_insert(DEFAULT_GRACE_S.into());
    spec.enable_service_links.get_or_insert(true);
    let forever = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_with(Vec::new);
    if !tolerations.contains(&forever) {
        tolerations.push(forever);
    }
}

#[cfg(test)]
mod tests;
