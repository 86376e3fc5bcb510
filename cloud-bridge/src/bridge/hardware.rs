//! The hardware to which a node's name belongs: an annotation of its Node, set when a board enrols. Until the Node is
//! deleted, a board with other hardware cannot get the name.

use kube::Client;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::json;

use super::node_access::is_revoked;
use super::requests::{Requests, is_path_segment};
use super::well_known::{BRIDGED_LABEL, HARDWARE};

/// Owner of the name of a node, as the board sees it that asks for the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOwner {
    /// No Node has the name.
    None,
    /// The Node belongs to this hardware.
    Own,
    /// The Node belongs to other hardware, or did not enrol.
    Other,
    /// The Node belongs to this hardware, and was revoked.
    Revoked,
}

impl NameOwner {
    /// `hardware` is a digest, as in the annotation.
    fn of(metadata: &ObjectMeta, hardware: &str) -> Self {
        let known = metadata.annotations.as_ref().and_then(|all| all.get(HARDWARE));
        match known {
            Some(known) if known == hardware && is_revoked(metadata) => Self::Revoked,
            Some(known) if known == hardware => Self::Own,
            _ => Self::Other,
        }
    }
}

#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

/// The API's present answer.
pub(super) async fn look_up(client: &Client, node: &str, hardware: &str) -> kube::Result<NameOwner> {
    // It is part of a path; no Node can have another name.
    if !is_path_segment(node) {
        return Ok(NameOwner::Other);
    }
    match Requests::new(client.clone()).get::<Named>(&format!("/api/v1/nodes/{node}")).await {
        Ok(named) => Ok(NameOwner::of(&named.metadata, hardware)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(NameOwner::None),
        Err(error) => Err(error),
    }
}

/// Gives a free name to this hardware. If two boards ask for a name at once, one of them gets it.
pub(super) async fn take(own: &Client, as_node: Client, node: &str, hardware: &str) -> kube::Result<NameOwner> {
    let known = look_up(own, node, hardware).await?;
    if known != NameOwner::None {
        return Ok(known);
    }
    if create(as_node, node, hardware).await? { Ok(NameOwner::Own) } else { look_up(own, node, hardware).await }
}

/// Creates the Node of a free name, with its hardware. False if the name is taken.
pub(super) async fn create(as_node: Client, node: &str, hardware: &str) -> kube::Result<bool> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "labels": {BRIDGED_LABEL: "true"}, "annotations": {HARDWARE: hardware}},
    });
    match Requests::new(as_node).create("/api/v1/nodes", &object).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::node_access::REVOKED;

    #[test]
    fn e1_name_belongs_to_the_hardware_of_its_node() {
        let of = |annotations: &[(&str, &str)]| {
            let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            NameOwner::of(&ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() }, "ab")
        };
        assert_eq!(of(&[(HARDWARE, "ab")]), NameOwner::Own);
        assert_eq!(of(&[(HARDWARE, "cd")]), NameOwner::Other);
        assert_eq!(of(&[]), NameOwner::Other, "it joined with a token for one node");
        assert_eq!(of(&[(HARDWARE, "ab"), (REVOKED, "true")]), NameOwner::Revoked);
        assert_eq!(of(&[(HARDWARE, "cd"), (REVOKED, "true")]), NameOwner::Other);
    }
}
