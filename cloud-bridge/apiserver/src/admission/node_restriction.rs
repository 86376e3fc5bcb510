//! The NodeRestriction admission: a node writes its own Node, Lease and pods only.

use std::collections::BTreeMap;

use serde_json::Value;

use super::attributes::Attributes;
use crate::auth::node::references::needs_api_object;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Store, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use apimachinery::well_known::MIRROR_ANNOTATION;
use edge_protocol::node_labels::may_set;

fn node_of<'a>(ctx: &'a Attributes<'_>) -> Option<&'a str> {
    ctx.user.node_name()
}

fn refuse(ctx: &Attributes<'_>, name: &str, why: &str) -> ApiResult<()> {
    Err(ApiError::forbidden(&ctx.resource, name, why))
}

/// NodeRestriction on creation.
pub(crate) fn restrict_create(ctx: &Attributes<'_>, store: &Store, value: &Value) -> ApiResult<()> {
    let Some(node) = node_of(ctx) else { return Ok(()) };
    let name = meta::text(value, "name");
    match (ctx.resource.group.as_ref(), ctx.resource.plural.as_ref()) {
        ("", "pods") => mirror_pod(ctx, store, node, value),
        ("", "nodes") => {
            own_node(ctx, node, name)?;
            if !value["spec"]["configSource"].is_null() {
                let why = format!("node {node:?} is not allowed to create pods with a non-nil configSource");
                return refuse(ctx, name, &why);
            }
            own_annotations(ctx, node, &value["metadata"]["annotations"], None)?;
            let wrong = forbidden_labels(&value["metadata"]["labels"], &Value::Null);
            if wrong.is_empty() {
                return Ok(());
            }
            let why = format!("node {node:?} is not allowed to set the following labels: {}", wrong.join(", "));
            refuse(ctx, name, &why)
        }
        ("coordination.k8s.io", "leases") => own_lease(ctx, node, name),
        ("storage.k8s.io", "csinodes") => own_csi_node(ctx, node, name),
        _ => Ok(()),
    }
}

/// Prevents a node from changing the annotations that bridges and administrators set on its Node object, such as
/// whether it may connect and how long its pods stay; Kubernetes has no such rule. The exceptions (`TOLD`) are written
/// by the bridge in the node's name: the node's newest connection, a mark that its devices' statuses are stale and,
/// when it joins, the start of its certificates' validity and the hardware to which its name belongs.
fn own_annotations(ctx: &Attributes<'_>, node: &str, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    const DOMAIN: &str = "sampan.dev/";
    const TOLD: [&str; 4] =
        ["sampan.dev/session", "sampan.dev/devices-stale", "sampan.dev/certificates-from", "sampan.dev/hardware"];
    let told = if old.is_none() { &TOLD[..] } else { &TOLD[..2] };
    let ours = |value: &'_ Value| -> BTreeMap<String, Value> {
        let entries = value.as_object().into_iter().flatten();
        let ours = entries.filter(|(name, _)| name.starts_with(DOMAIN) && !told.contains(&name.as_str()));
        ours.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    if ours(new) == ours(old.unwrap_or(&Value::Null)) {
        return Ok(());
    }
    refuse(ctx, node, &format!("node {node:?} is not allowed to modify annotations of {DOMAIN}"))
}

fn own_node(ctx: &Attributes<'_>, node: &str, name: &str) -> ApiResult<()> {
    if name == node {
        return Ok(());
    }
    refuse(ctx, name, &format!("node {node:?} is not allowed to modify node {name:?}"))
}

fn mirror_pod(ctx: &Attributes<'_>, store: &Store, node: &str, pod: &Value) -> ApiResult<()> {
    let name = meta::text(pod, "name");
    if !pod["metadata"]["annotations"][MIRROR_ANNOTATION].is_string() {
        let why =
            format!("pod does not have {MIRROR_ANNOTATION:?} annotation, node {node:?} can only create mirror pods");
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
    let Some(found) = store.get("nodes", &ObjectKey::cluster(node))? else {
        let nodes = ctx.inner.registry.find("", "v1", "nodes").ok_or_else(ApiError::no_resource)?;
        return Err(ApiError::not_found(&nodes, node));
    };
    let uid = meta::text(found.value(), "uid");
    if owner["uid"] != uid {
        let asked = owner["uid"].as_str().unwrap_or_default();
        return refuse(ctx, name, &format!("node {node} UID mismatch: expected {asked} got {uid}"));
    }
    match needs_api_object(pod) {
        Some(resource) => refuse(ctx, name, &format!("node {node:?} can not create pods that reference {resource}")),
        None => Ok(()),
    }
}

/// NodeRestriction on an update of the main resource or of a status.
pub(crate) fn restrict_update(ctx: &Attributes<'_>, new: &Value, old: &Value) -> ApiResult<()> {
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
            for (field, what) in [
                ("resourceClaimStatuses", "resource claim statues"),
                ("extendedResourceClaimStatus", "extended resource claim status"),
            ] {
                if new["status"][field] != old["status"][field] {
                    return refuse(ctx, name, &format!("node {node:?} cannot update {what}"));
                }
            }
            Ok(())
        }
        ("", "nodes") => {
            own_node(ctx, node, name)?;
            let source = &new["spec"]["configSource"];
            if !source.is_null() && *source != old["spec"]["configSource"] {
                let why = format!("node {node:?} is not allowed to update configSource to a new non-nil configSource");
                return refuse(ctx, name, &why);
            }
            if ctx.path.subresource.is_empty() && new["spec"]["taints"] != old["spec"]["taints"] {
                return refuse(ctx, name, &format!("node {node:?} is not allowed to modify taints"));
            }
            if new["metadata"]["ownerReferences"] != old["metadata"]["ownerReferences"] {
                return refuse(ctx, name, &format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            own_annotations(ctx, node, &new["metadata"]["annotations"], Some(&old["metadata"]["annotations"]))?;
            let wrong = forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]);
            if wrong.is_empty() {
                return Ok(());
            }
            refuse(ctx, name, &format!("is not allowed to modify labels: {}", wrong.join(", ")))
        }
        ("", "persistentvolumeclaims") => claim_status(ctx, node, new, old),
        ("coordination.k8s.io", "leases") => own_lease(ctx, node, name),
        ("storage.k8s.io", "csinodes") => own_csi_node(ctx, node, name),
        _ => Ok(()),
    }
}

/// A node may report the size of a claim's volume and its resizing, and nothing else.
fn claim_status(ctx: &Attributes<'_>, node: &str, new: &Value, old: &Value) -> ApiResult<()> {
    let name = meta::text(old, "name");
    if ctx.path.subresource != "status" {
        return refuse(ctx, name, "may only update PVC status");
    }
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for field in ["resourceVersion", "managedFields"] {
            meta::set(&mut claim, field, Value::Null);
        }
        if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
            for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                status.remove(field);
            }
        }
        claim
    };
    if rest(new) == rest(old) {
        return Ok(());
    }
    let what = "fields other than status.quantity and status.conditions";
    refuse(ctx, name, &format!("node {node:?} is not allowed to update {what}"))
}

fn own_lease(ctx: &Attributes<'_>, node: &str, name: &str) -> ApiResult<()> {
    if name == node {
        return Ok(());
    }
    refuse(ctx, name, "can only access node lease with the same name as the requesting node")
}

fn own_csi_node(ctx: &Attributes<'_>, node: &str, name: &str) -> ApiResult<()> {
    if name == node {
        return Ok(());
    }
    refuse(ctx, name, "can only access CSINode with the same name as the requesting node")
}

/// NodeRestriction on deletion.
pub(crate) fn restrict_delete(ctx: &Attributes<'_>, current: &Stored) -> ApiResult<()> {
    let Some(node) = node_of(ctx) else { return Ok(()) };
    let name = current.key.name.as_str();
    match (ctx.resource.group.as_ref(), ctx.resource.plural.as_ref()) {
        ("", "pods") if current.value()["spec"]["nodeName"] != node => {
            refuse(ctx, name, &format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        ("", "nodes") => own_node(ctx, node, name),
        ("coordination.k8s.io", "leases") => own_lease(ctx, node, name),
        ("storage.k8s.io", "csinodes") => own_csi_node(ctx, node, name),
        _ => Ok(()),
    }
}

/// NodeRestriction on an eviction.
pub(crate) fn restrict_eviction(ctx: &Attributes<'_>, pod: &Stored) -> ApiResult<()> {
    match node_of(ctx) {
        Some(node) if pod.value()["spec"]["nodeName"] != node => {
            refuse(ctx, &pod.key.name, &format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
        _ => Ok(()),
    }
}

/// Changed labels of the kubernetes.io domains that a kubelet may not set on its node.
pub(crate) fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let keys = |v: &Value| v.as_object().map(|m| m.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let mut changed: Vec<String> =
        keys(new).into_iter().chain(keys(old)).filter(|k| new[k.as_str()] != old[k.as_str()]).collect();
    changed.sort();
    changed.dedup();
    changed.retain(|key| !may_set(key));
    changed
}
