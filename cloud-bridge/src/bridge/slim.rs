//! Objects as the watches deliver them, and as nodes receive them. Pure.
//!
//! Fields that change without an effect on a node (status, resourceVersion, managed fields) are omitted, so that they
//! change no digest and cause no traffic on the link.

mod node;
mod object;

use std::collections::BTreeSet;
use std::sync::Arc;

use edge_protocol::message::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;
use sampan_json::SetField;
use serde::Deserialize;
use serde_json::{Value, json};

use super::pod_references::{node_labels, references, service_links};
use super::told::Told;
use super::told::kinds::Kind;
use apimachinery::slim::without_managers;
use apimachinery::well_known::MIRROR_ANNOTATION;
use object::{digest_of, key, trimmed, with_status};

pub use node::SlimNode;
pub use object::{config_object, made_object, with_attachment};

/// A pod as read from the API. Spec and status stay JSON, so that fields of newer API servers are passed on.
#[derive(Clone, Debug, Deserialize)]
pub struct SlimPod {
    #[serde(deserialize_with = "without_managers")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    status: Value,
}

apimachinery::read_as!(SlimPod, Pod);

/// A pod bound to a node, ready to be sent there.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundPod {
    pub node: String,
    pub object: Arc<Told>,
    pub refs: BTreeSet<ObjectKey>,
    pub generation: i64,
    /// Its resource version, if that is a number: a pod with a higher one is newer (KEP-5504).
    pub version: Option<u64>,
    pub terminating: bool,
    /// Uid of the static pod that this one mirrors.
    pub mirror_of: Option<String>,
    /// Its containers are ready and the pod is not: a node lifecycle controller writes this when the node is silent.
    pub falsely_unready: bool,
}

impl BoundPod {
    pub fn uid(&self) -> &str {
        &self.object.digest.uid
    }
}

impl SlimPod {
    /// Name of the node it is bound to; empty before.
    pub fn node(&self) -> &str {
        self.spec["nodeName"].as_str().unwrap_or_default()
    }

    pub fn key(&self) -> ObjectKey {
        key("Pod", &self.metadata)
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Phase of its status; empty before it has one.
    pub fn phase(&self) -> &str {
        self.status["phase"].as_str().unwrap_or_default()
    }

    /// Succeeded or Failed: no container runs or will run.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Reason of its status, or of the first container that waits; may be empty.
    pub fn reason(&self) -> &str {
        let containers = ["initContainerStatuses", "containerStatuses"].into_iter();
        let mut waiting = containers
            .flat_map(|list| self.status[list].as_array().into_iter().flatten())
            .filter_map(|one| one["state"]["waiting"]["reason"].as_str());
        self.status["reason"].as_str().or_else(|| waiting.next()).unwrap_or_default()
    }

    /// Whether its Ready condition is true.
    pub fn is_ready(&self) -> bool {
        self.conditions().any(|c| c["type"] == "Ready" && c["status"] == "True")
    }

    /// Restarts of all its containers together.
    pub fn restarts(&self) -> u64 {
        let statuses = self.status["containerStatuses"].as_array().into_iter().flatten();
        statuses.filter_map(|one| one["restartCount"].as_u64()).fold(0, u64::saturating_add)
    }

    /// `None` for a pod that is not bound, or has no name or uid.
    pub fn into_bound(mut self) -> Option<BoundPod> {
        let node = Some(self.node()).filter(|node| !node.is_empty())?.to_owned();
        let key = self.key();
        let uid = Some(self.uid()).filter(|uid| !uid.is_empty() && !key.name.is_empty())?.to_owned();
        let mirror_of = self.metadata.annotations.as_ref().and_then(|a| a.get(MIRROR_ANNOTATION)).cloned();
        let generation = self.metadata.generation.unwrap_or_default();
        let version = self.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
        let terminating = self.metadata.deletion_timestamp.is_some();
        let mut refs = references(&key.namespace, &key.name, &self.spec);
        if mirror_of.is_some() {
            // The node made it up, so the objects that it names give no rights. Runtime classes are readable by all
            // nodes.
            refs.retain(|key| Kind::RuntimeClass.is(key));
        } else {
            refs.append(&mut service_links(&key.namespace, &self.spec));
            refs.extend(node_labels(&key.namespace, &uid, &self.spec));
        }
        let falsely_unready = !terminating && self.falsely_unready();
        let gates = self.gates();
        let past = self.past(gates.clone());
        let gates = (!gates.is_empty()).then(|| json!({ "conditions": gates }));
        let mut body = json!({"apiVersion": "v1", "kind": "Pod"});
        // The macro would copy them.
        body.set("metadata", trimmed(self.metadata));
        body.set("spec", self.spec.take());
        let bare = body.to_string();
        let digest = digest_of(key, uid, &with_status(&bare, gates.as_ref()));
        let has_ended = past.as_ref().is_some_and(|past| past["phase"].is_string());
        let object = Told::with_text(digest, with_status(&bare, past.as_ref()), has_ended);
        Some(BoundPod { node, object, refs, generation, version, terminating, mirror_of, falsely_unready })
    }

    /// Without readiness gates a pod is ready when its containers are. Only the controller of silent nodes writes
    /// another value, and a node that reconnects without changes reports nothing.
    fn falsely_unready(&self) -> bool {
        let is = |kind: &str, status: &str| self.conditions().any(|c| c["type"] == kind && c["status"] == status);
        is("ContainersReady", "True") && is("Ready", "False") && self.spec["readinessGates"].is_null()
    }

    /// Conditions of other controllers on which readiness depends (`spec.readinessGates`).
    fn gates(&self) -> Vec<Value> {
        let wanted: Vec<&str> = self.spec["readinessGates"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|g| g["conditionType"].as_str())
            .collect();
        let conditions = self.conditions().filter(|c| c["type"].as_str().is_some_and(|kind| wanted.contains(&kind)));
        conditions.map(|c| json!({"type": c["type"], "status": c["status"]})).collect()
    }

    /// The past of a pod for a node that never had it, or has lost its state: that it has ended, and so never runs
    /// again, since when it is scheduled, and that its first start is held no longer. Not part of the digest: a node that has
    /// the pod knows it.
    fn past(&mut self, mut conditions: Vec<Value>) -> Option<Value> {
        let scheduled = self.conditions().find(|c| c["type"] == "PodScheduled" && c["status"] == "True");
        let released = self.conditions().find(|c| c["type"] == "HeldUpgrade" && c["status"] == "False");
        conditions.extend(scheduled.into_iter().chain(released).cloned());
        let ended = self.has_ended();
        let mut status = if ended { self.status.take() } else { json!({}) };
        status.set("conditions", conditions.into());
        (ended || status["conditions"] != json!([])).then_some(status)
    }

    fn conditions(&self) -> impl Iterator<Item = &Value> {
        self.status["conditions"].as_array().into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
