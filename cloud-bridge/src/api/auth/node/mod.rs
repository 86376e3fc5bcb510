//! What a node may do: the node authorizer (by relation: secrets and config maps only of its own pods) and the
//! NodeRestriction admission (its own Node, Lease and pods only).

mod restrict;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::Attributes;
use crate::api::admission::MIRROR;
use crate::api::server::Inner;
use crate::api::storage::Stored;
pub(crate) use restrict::{restrict_create, restrict_delete, restrict_update};

/// The pod that was read last to see what it names.
#[derive(Default)]
pub(crate) struct Related(Mutex<Option<Arc<Stored>>>);

/// The namespace of node leases.
const LEASES: &str = "kube-node-lease";

/// Decides for the identity of `node`.
pub(crate) fn authorize(inner: &Inner, node: &str, attributes: &Attributes) -> Result<(), String> {
    let path = &attributes.path;
    let verb = attributes.verb.as_str();
    let read = matches!(verb, "get" | "list" | "watch");
    let write = matches!(verb, "update" | "patch");
    let allow = |yes: bool| if yes { Ok(()) } else { Err(String::new()) };
    match (path.group.as_str(), path.resource.as_str()) {
        ("", "secrets" | "configmaps") => {
            if !read {
                return Err("can only read resources of this type".into());
            }
            if path.namespace.is_empty() {
                return Err("can only read namespaced object of this type".into());
            }
            related(inner, node, path.resource.as_str(), &path.namespace, &path.name)
        }
        ("", "persistentvolumeclaims") => {
            if verb != "get" {
                return Err("can only get individual resources of this type".into());
            }
            related(inner, node, "persistentvolumeclaims", &path.namespace, &path.name)
        }
        ("", "persistentvolumes") => {
            if verb != "get" {
                return Err("can only get individual resources of this type".into());
            }
            volume(inner, node, &path.name)
        }
        ("", "serviceaccounts") => {
            // Its pods' tokens; the account itself is read for pull secrets of its own.
            if (verb, path.subresource.as_str()) != ("create", "token")
                && (verb, path.subresource.as_str()) != ("get", "")
            {
                return Err("can only create tokens for individual service accounts".into());
            }
            related(inner, node, "serviceaccounts", &path.namespace, &path.name)
        }
        ("", "nodes") => nodes(node, attributes),
        ("", "pods") => pods(node, attributes),
        ("coordination.k8s.io", "leases") => {
            if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
                return Err("can only get, create, update, patch, or delete a node lease".into());
            }
            if path.namespace != LEASES {
                return Err(format!("can only access leases in the {LEASES:?} system namespace"));
            }
            if verb != "create" && path.name != node {
                return Err("can only access node lease with the same name as the requesting node".into());
            }
            Ok(())
        }
        ("", "services") | ("node.k8s.io", "runtimeclasses") => allow(read),
        ("", "events") | ("events.k8s.io", "events") => allow(verb == "create" || write),
        ("authentication.k8s.io", "tokenreviews")
        | ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => allow(verb == "create"),
        _ => Err(String::new()),
    }
}

fn nodes(node: &str, attributes: &Attributes) -> Result<(), String> {
    let path = &attributes.path;
    match attributes.verb.as_str() {
        "create" | "update" | "patch" if matches!(path.subresource.as_str(), "" | "status") => Ok(()),
        "get" | "list" | "watch" if path.name == node => Ok(()),
        "get" | "list" | "watch" => Err(format!("node '{node}' cannot read '{}', only its own Node object", path.name)),
        _ => Err(String::new()),
    }
}

fn pods(node: &str, attributes: &Attributes) -> Result<(), String> {
    let path = &attributes.path;
    match (attributes.verb.as_str(), path.subresource.as_str()) {
        ("create" | "delete", "") | ("create", "eviction") | ("update" | "patch", "status") | ("get", "") => Ok(()),
        ("list" | "watch", "") if attributes.selected_node.as_deref() == Some(node) => Ok(()),
        ("list" | "watch", "") => Err("can only list/watch pods with spec.nodeName field selector".into()),
        _ => Err(String::new()),
    }
}

/// Whether a pod bound to the node names the object.
fn related(inner: &Inner, node: &str, resource: &str, namespace: &str, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("No Object name found".into());
    }
    let none = || format!("no relationship found between node '{node}' and this object");
    let store = inner.store();
    let pods = store.list("pods", Some(namespace), None, None).map_err(|_| none())?;
    let mut last = inner.related.0.lock().unwrap_or_else(PoisonError::into_inner);
    // What has both names in its text is worth reading.
    let (quoted_node, quoted_name) = (format!("\"{node}\""), format!("\"{name}\""));
    for pod in pods {
        let text = std::str::from_utf8(&pod.body).unwrap_or_default();
        if !text.contains(&quoted_name) || !text.contains(&quoted_node) {
            continue;
        }
        // A node asks for all that a pod names in a row: that pod is read once.
        let pod = last.take().filter(|last| last.key == pod.key && last.rev == pod.rev).unwrap_or(pod);
        let value = pod.value();
        let found = value["spec"]["nodeName"] == node
            && value["metadata"]["annotations"][MIRROR].is_null()
            && names(&value["spec"], resource, name);
        *last = Some(pod);
        if found {
            return Ok(());
        }
    }
    Err(none())
}

/// Whether a claim of one of the node's pods has this volume.
fn volume(inner: &Inner, node: &str, name: &str) -> Result<(), String> {
    let none = || format!("no relationship found between node '{node}' and this object");
    let found = inner.store().list("persistentvolumeclaims", None, None, None).map_err(|_| none())?;
    let claims = found.iter().filter(|claim| claim.value()["spec"]["volumeName"] == name);
    let mut related =
        claims.map(|claim| related(inner, node, "persistentvolumeclaims", &claim.key.namespace, &claim.key.name));
    related.find(Result::is_ok).unwrap_or_else(|| Err(none()))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a pod spec names the object `name` of a resource, in any of the places the kubelet reads.
pub(crate) fn names(spec: &Value, resource: &str, name: &str) -> bool {
    let is = |value: &Value| value == name;
    let secret = resource == "secrets";
    if resource == "serviceaccounts" {
        return is(&spec["serviceAccountName"]);
    }
    let in_volumes = items(&spec["volumes"]).iter().any(|volume| match resource {
        "secrets" => {
            is(&volume["secret"]["secretName"])
                || items(&volume["projected"]["sources"]).iter().any(|s| is(&s["secret"]["name"]))
                || ["cephfs", "rbd", "iscsi", "flexVolume", "storageos", "scaleIO"]
                    .iter()
                    .any(|kind| is(&volume[*kind]["secretRef"]["name"]))
                || is(&volume["csi"]["nodePublishSecretRef"]["name"])
                || is(&volume["azureFile"]["secretName"])
        }
        "configmaps" => {
            is(&volume["configMap"]["name"])
                || items(&volume["projected"]["sources"]).iter().any(|s| is(&s["configMap"]["name"]))
        }
        _ => is(&volume["persistentVolumeClaim"]["claimName"]),
    });
    if in_volumes {
        return true;
    }
    if secret && items(&spec["imagePullSecrets"]).iter().any(|s| is(&s["name"])) {
        return true;
    }
    let (reference, key) = if secret { ("secretRef", "secretKeyRef") } else { ("configMapRef", "configMapKeyRef") };
    matches!(resource, "secrets" | "configmaps")
        && ["containers", "initContainers", "ephemeralContainers"].iter().flat_map(|list| items(&spec[*list])).any(
            |c| {
                items(&c["envFrom"]).iter().any(|e| is(&e[reference]["name"]))
                    || items(&c["env"]).iter().any(|e| is(&e["valueFrom"][key]["name"]))
            },
        )
}
