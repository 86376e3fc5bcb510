//! What a node may do: the node authorizer (by relation: secrets and config maps only of its own pods) and the
//! NodeRestriction admission (its own Node, Lease and pods only).

use serde_json::Value;

use super::Attributes;
use crate::api::admission::MIRROR;
use crate::api::error::{ApiError, ApiResult};
use crate::api::meta;
use crate::api::rest::Context;
use crate::api::server::Inner;
use crate::api::storage::{Store, Stored};

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
        ("", "serviceaccounts") => {
            if verb != "get" || !path.subresource.is_empty() {
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
        ("", "services") => allow(read),
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
    let found = pods.iter().any(|pod| {
        let value = pod.value();
        value["spec"]["nodeName"] == node
            && value["metadata"]["annotations"][MIRROR].is_null()
            && names(&value["spec"], resource, name)
    });
    if found { Ok(()) } else { Err(none()) }
}

/// Whether a pod spec names the object `name` of a resource, in any of the places the kubelet reads.
pub(crate) fn names(spec: &Value, resource: &str, name: &str) -> bool {
    let is = |value: &Value| value == name;
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
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

fn node_of<'a>(ctx: &'a Context<'_>) -> Option<&'a str> {
    ctx.user.node_name()
}

fn refuse(ctx: &Context<'_>, name: &str, why: &str) -> ApiResult<()> {
    Err(ApiError::forbidden(&ctx.resource, name, why))
}

/// NodeRestriction on creation.
pub(crate) fn restrict_create(ctx: &Context<'_>, store: &Store, value: &Value) -> ApiResult<()> {
    let Some(node) = node_of(ctx) else { return Ok(()) };
    let name = meta::text(value, "name");
    match (ctx.resource.group.as_ref(), ctx.resource.plural.as_ref()) {
        ("", "pods") => mirror_pod(ctx, store, node, value),
        ("", "nodes") => {
            own_node(ctx, node, name)?;
            let wrong = forbidden_labels(&value["metadata"]["labels"], &Value::Null);
            if wrong.is_empty() {
                return Ok(());
            }
            let why = format!("node {node:?} is not allowed to set the following labels: {}", wrong.join(", "));
            refuse(ctx, name, &why)
        }
        ("coordination.k8s.io", "leases") if name != node => {
            refuse(ctx, name, "can only access node lease with the same name as the requesting node")
        }
        _ => Ok(()),
    }
}

fn own_node(ctx: &Context<'_>, node: &str, name: &str) -> ApiResult<()> {
    if name == node {
        return Ok(());
    }
    refuse(ctx, name, &format!("node {node:?} is not allowed to modify node {name:?}"))
}

fn mirror_pod(ctx: &Context<'_>, store: &Store, node: &str, pod: &Value) -> ApiResult<()> {
    let name = meta::text(pod, "name");
    if !pod["metadata"]["annotations"][MIRROR].is_string() {
        let why = format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods");
        return refuse(ctx, name, &why);
    }
    if pod["spec"]["nodeName"] != node {
        let why = format!("node {node:?} can only create pods with spec.nodeName set to itself");
        return refuse(ctx, name, &why);
    }
    let owners = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [owner] = owners else {
        let why = if owners.is_empty() {
            format!("node {node:?} can only create pods with an owner reference set to itself")
        } else {
            format!("node {node:?} can only create pods with a single owner reference set to itself")
        };
        return refuse(ctx, name, &why);
    };
    if owner["kind"] != "Node" || owner["apiVersion"] != "v1" || owner["name"] != node {
        let why = format!("node {node:?} can only create pods with an owner reference set to itself");
        return refuse(ctx, name, &why);
    }
    if owner["controller"] != true {
        let why = format!("node {node:?} can only create pods with a controller owner reference set to itself");
        return refuse(ctx, name, &why);
    }
    if owner["blockOwnerDeletion"] == true {
        let why = format!("node {node:?} must not set blockOwnerDeletion on an owner reference");
        return refuse(ctx, name, &why);
    }
    let found = store.get("nodes", &crate::api::lifecycle::cluster_key(node))?;
    let uid = found.as_ref().map(|n| meta::text(n.value(), "uid").to_owned()).unwrap_or_default();
    if owner["uid"] != uid.as_str() {
        let asked = owner["uid"].as_str().unwrap_or_default();
        return refuse(ctx, name, &format!("node {node} UID mismatch: expected {asked} got {uid}"));
    }
    Ok(())
}

/// NodeRestriction on an update of the main resource or of a status.
pub(crate) fn restrict_update(ctx: &Context<'_>, new: &Value, old: &Value) -> ApiResult<()> {
    let Some(node) = node_of(ctx) else { return Ok(()) };
    let name = meta::text(old, "name");
    match (ctx.resource.group.as_ref(), ctx.resource.plural.as_ref()) {
        ("", "pods") => {
            if ctx.path.subresource != "status" {
                return refuse(
                    ctx,
                    name,
                    &format!("unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"),
                );
            }
            if old["spec"]["nodeName"] != node {
                let why = format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself");
                return refuse(ctx, name, &why);
            }
            if new["metadata"]["labels"] != old["metadata"]["labels"] {
                return refuse(ctx, name, &format!("node {node:?} cannot update labels through pod status"));
            }
            Ok(())
        }
        ("", "nodes") => {
            own_node(ctx, node, name)?;
            if ctx.path.subresource.is_empty() && new["spec"]["taints"] != old["spec"]["taints"] {
                return refuse(ctx, name, &format!("node {node:?} is not allowed to modify taints"));
            }
            if new["metadata"]["ownerReferences"] != old["metadata"]["ownerReferences"] {
                return refuse(ctx, name, &format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            let wrong = forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]);
            if wrong.is_empty() {
                return Ok(());
            }
            refuse(ctx, name, &format!("is not allowed to modify labels: {}", wrong.join(", ")))
        }
        _ => Ok(()),
    }
}

/// NodeRestriction on deletion.
pub(crate) fn restrict_delete(ctx: &Context<'_>, current: &Stored) -> ApiResult<()> {
    let Some(node) = node_of(ctx) else { return Ok(()) };
    let is_pod = ctx.resource.group.is_empty() && ctx.resource.plural == "pods";
    if is_pod && current.value()["spec"]["nodeName"] != node {
        let why = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
        return refuse(ctx, &current.key.name, &why);
    }
    Ok(())
}

/// Changed labels of the kubernetes.io domains that a kubelet may not set on its node.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    const ALLOWED: &[&str] = &[
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ];
    let keys = |v: &Value| v.as_object().map(|m| m.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let mut changed: Vec<String> =
        keys(new).into_iter().chain(keys(old)).filter(|k| new[k.as_str()] != old[k.as_str()]).collect();
    changed.sort();
    changed.dedup();
    changed.retain(|key| {
        let Some((domain, _)) = key.split_once('/') else { return false };
        let within = |suffix: &str| domain == suffix || domain.ends_with(&format!(".{suffix}"));
        let free = within("kubelet.kubernetes.io")
            || within("node.kubernetes.io") && !within("node-restriction.kubernetes.io");
        (within("kubernetes.io") || within("k8s.io")) && !free && !ALLOWED.contains(&key.as_str())
    });
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_found_everywhere() {
        let spec = json!({
            "serviceAccountName": "sa",
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [{"secret": {"secretName": "vol"}}, {"projected": {"sources": [{"configMap": {"name": "proj"}}]}}, {"persistentVolumeClaim": {"claimName": "pvc"}}],
            "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "init"}}}]}],
            "containers": [{"envFrom": [{"configMapRef": {"name": "from"}}]}],
        });
        for (resource, name) in [
            ("serviceaccounts", "sa"),
            ("secrets", "pull"),
            ("secrets", "vol"),
            ("secrets", "init"),
            ("configmaps", "proj"),
            ("configmaps", "from"),
            ("persistentvolumeclaims", "pvc"),
        ] {
            assert!(names(&spec, resource, name), "{resource} {name}");
        }
        assert!(!names(&spec, "secrets", "from") && !names(&spec, "configmaps", "vol"));
    }

    #[test]
    fn kubernetes_labels_are_reserved() {
        let new = json!({"kubernetes.io/hostname": "a", "a.kubernetes.io/x": "1", "mine": "1", "node-restriction.kubernetes.io/y": "1", "node.kubernetes.io/z": "1"});
        assert_eq!(forbidden_labels(&new, &Value::Null), ["a.kubernetes.io/x", "node-restriction.kubernetes.io/y"]);
    }
}
