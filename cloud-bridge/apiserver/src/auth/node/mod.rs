//! Rights of a node: the node authorizer (by relation: secrets and config maps only of its own pods) and the
//! NodeRestriction admission (only its own Node, Lease and pods).

pub(crate) mod references;
mod relations;
#[cfg(test)]
mod tests;

use super::attributes::Attributes;
use references::Kind;
pub(crate) use relations::{Related, Relations};

/// The namespace of node leases.
const LEASES: &str = "kube-node-lease";

/// Decides for the identity of `node`.
pub(crate) fn authorize(relations: &Relations, node: &str, attributes: &Attributes) -> Result<(), String> {
    let path = &attributes.path;
    let verb = attributes.verb.as_str();
    let read = matches!(verb, "get" | "list" | "watch");
    let write = matches!(verb, "update" | "patch");
    // Resources without relations are allowed or not, but without subresources.
    let allow = |yes: bool| if yes && path.subresource.is_empty() { Ok(()) } else { Err(String::new()) };
    match (path.group.as_str(), path.resource.as_str()) {
        ("", "secrets") => read_related(relations, node, Kind::Secret, attributes),
        ("", "configmaps") => read_related(relations, node, Kind::ConfigMap, attributes),
        ("", "persistentvolumeclaims") if path.subresource == "status" => {
            if !write {
                return Err("can only get/update/patch this type".into());
            }
            related(relations, node, Kind::Claim, &path.namespace, &path.name)
        }
        ("", "persistentvolumeclaims") => get_related(relations, node, Kind::Claim, attributes),
        ("", "persistentvolumes") => {
            only_get(attributes)?;
            if path.name.is_empty() {
                return Err("No Object name found".into());
            }
            found(relations.has_volume(node, &path.name), node)
        }
        ("", "serviceaccounts") => {
            // Tokens of its pods; the account itself is read for its pull secrets.
            if (verb, path.subresource.as_str()) == ("get", "") {
                return related(relations, node, Kind::ServiceAccount, &path.namespace, &path.name);
            }
            if verb != "create" || path.name.is_empty() {
                return Err("can only create tokens for individual service accounts".into());
            }
            if path.subresource != "token" {
                return Err("can only create token subresource of serviceaccount".into());
            }
            related(relations, node, Kind::ServiceAccount, &path.namespace, &path.name)
        }
        ("", "nodes") => nodes(node, attributes),
        ("", "pods") => pods(relations, node, attributes),
        ("coordination.k8s.io", "leases") => lease(node, attributes),
        ("storage.k8s.io", "csinodes") => csi_node(node, attributes),
        ("storage.k8s.io", "volumeattachments") => {
            only_get(attributes)?;
            if path.name.is_empty() {
                return Err("No Object name found".into());
            }
            found(relations.is_attached_to(node, &path.name), node)
        }
        ("", "services") | ("node.k8s.io", "runtimeclasses") | ("storage.k8s.io", "csidrivers") => allow(read),
        ("", "events") | ("events.k8s.io", "events") => allow(verb == "create" || write),
        ("authentication.k8s.io", "tokenreviews")
        | ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => allow(verb == "create"),
        _ => Err(String::new()),
    }
}

/// Reads of single objects, lists and watches of one name among them.
fn read_related(relations: &Relations, node: &str, kind: Kind, attributes: &Attributes) -> Result<(), String> {
    let path = &attributes.path;
    if !matches!(attributes.verb.as_str(), "get" | "list" | "watch") {
        return Err("can only read resources of this type".into());
    }
    if !path.subresource.is_empty() {
        return Err("cannot read subresource".into());
    }
    if path.namespace.is_empty() {
        return Err("can only read namespaced object of this type".into());
    }
    related(relations, node, kind, &path.namespace, &path.name)
}

fn only_get(attributes: &Attributes) -> Result<(), String> {
    if attributes.verb != "get" {
        return Err("can only get individual resources of this type".into());
    }
    if attributes.path.subresource.is_empty() { Ok(()) } else { Err("cannot get subresource".into()) }
}

fn get_related(relations: &Relations, node: &str, kind: Kind, attributes: &Attributes) -> Result<(), String> {
    only_get(attributes)?;
    related(relations, node, kind, &attributes.path.namespace, &attributes.path.name)
}

fn lease(node: &str, attributes: &Attributes) -> Result<(), String> {
    let (verb, path) = (attributes.verb.as_str(), &attributes.path);
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".into());
    }
    if path.namespace != LEASES {
        return Err(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    // The name of a new one is admission's business.
    if verb != "create" && path.name != node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

fn csi_node(node: &str, attributes: &Attributes) -> Result<(), String> {
    let (verb, path) = (attributes.verb.as_str(), &attributes.path);
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".into());
    }
    if !path.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".into());
    }
    // Admission checks the name of a new one.
    if verb != "create" && path.name != node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

fn nodes(node: &str, attributes: &Attributes) -> Result<(), String> {
    let path = &attributes.path;
    match (attributes.verb.as_str(), path.subresource.as_str()) {
        ("create" | "update" | "patch", "") | ("update" | "patch", "status") => Ok(()),
        ("get" | "list" | "watch", "") if path.name == node => Ok(()),
        ("get" | "list" | "watch", "") if path.name.is_empty() => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("get" | "list" | "watch", "") => {
            Err(format!("node '{node}' cannot read '{}', only its own Node object", path.name))
        }
        _ => Err(String::new()),
    }
}

fn pods(relations: &Relations, node: &str, attributes: &Attributes) -> Result<(), String> {
    let path = &attributes.path;
    match (attributes.verb.as_str(), path.subresource.as_str()) {
        ("create" | "delete", "") | ("create", "eviction") | ("update" | "patch", "status") => Ok(()),
        ("get", "") => related(relations, node, Kind::Pod, &path.namespace, &path.name),
        ("list" | "watch", "") if attributes.selected_node.as_deref() == Some(node) => Ok(()),
        ("list" | "watch", "") if !path.name.is_empty() => {
            related(relations, node, Kind::Pod, &path.namespace, &path.name)
        }
        ("list" | "watch", "") => Err("can only list/watch pods with spec.nodeName field selector".into()),
        _ => Err(String::new()),
    }
}

/// Whether a pod of the node names the object.
fn related(relations: &Relations, node: &str, kind: Kind, namespace: &str, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("No Object name found".into());
    }
    found(relations.has(node, kind, namespace, name), node)
}

fn found(yes: bool, node: &str) -> Result<(), String> {
    if yes { Ok(()) } else { Err(format!("no relationship found between node '{node}' and this object")) }
}
