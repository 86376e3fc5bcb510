//! A node as the controllers use it: its labels, its taints, and whether it is offline.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::now::Now;
use super::store::Cached;

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Node {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default, rename = "status", deserialize_with = "readiness")]
    readiness: Readiness,
    /// Its labels as JSON, which rules about nodes are read with.
    #[serde(skip)]
    pub(crate) labels: Value,
}

/// Status of its condition `Ready`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Readiness {
    True,
    #[default]
    False,
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct Spec {
    #[serde(default)]
    taints: Option<Vec<Value>>,
}

apimachinery::read_as!(Node, core::Node);

impl Node {
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.readiness == Readiness::True
    }

    /// Nothing is known of it.
    pub(crate) fn is_away(&self) -> bool {
        self.readiness == Readiness::Unknown
    }

    pub(crate) fn taints(&self) -> impl Iterator<Item = &Value> {
        self.spec.taints.iter().flatten()
    }
}

impl Cached for Node {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn seen(&mut self, _before: Option<&Self>, _now: Now) {
        self.labels = self.metadata.labels.take().map(|labels| serde_json::json!(labels)).unwrap_or_default();
        self.metadata.annotations = None;
    }

    /// A heartbeat: nodes write one every few minutes, and there may be a thousand of them.
    fn is_as(&self, before: &Self) -> bool {
        self.labels == before.labels && self.spec == before.spec && self.readiness == before.readiness
    }
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
}

fn readiness<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Readiness, D::Error> {
    let status: Option<Status> = Option::deserialize(deserializer)?;
    let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.iter().find(|one| one.kind == "Ready");
    Ok(match ready.map(|ready| ready.status.as_str()) {
        Some("True") => Readiness::True,
        Some("Unknown") => Readiness::Unknown,
        _ => Readiness::False,
    })
}
