//! A Node as the watch delivers it: only its existence and its state.

use apimachinery::slim::without_managers;
use k8s_openapi::api::core::v1::Node;
use kube::api::ObjectMeta;
use serde::Deserialize;

use crate::bridge::well_known::{SESSION_ANNOTATION, STALE_DEVICES};

/// A node as read from the API.
#[derive(Clone, Debug, Deserialize)]
pub struct SlimNode {
    #[serde(deserialize_with = "without_managers")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: WatchedSpec,
    #[serde(default)]
    status: WatchedStatus,
}

apimachinery::read_as!(SlimNode, Node);

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedSpec {
    #[serde(default, rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedStatus {
    #[serde(default)]
    conditions: Vec<WatchedCondition>,
}

#[derive(Clone, Debug, Deserialize)]
struct WatchedCondition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
}

impl SlimNode {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Fencing number of its newest connection to any bridge.
    pub(in crate::bridge) fn session(&self) -> Option<u64> {
        self.metadata.annotations.as_ref()?.get(SESSION_ANNOTATION)?.parse().ok()
    }

    /// Whether statuses of its devices are marked as stale.
    pub(in crate::bridge) fn has_stale_devices(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(STALE_DEVICES))
    }

    /// Ranges of its pods' addresses, as the cluster has assigned them.
    pub(in crate::bridge) fn pod_cidrs(&self) -> &[String] {
        &self.spec.pod_cidrs
    }

    /// Status of the Ready condition: `True`, `False`, `Unknown`, or empty.
    pub fn ready(&self) -> &str {
        self.status.conditions.iter().find(|c| c.kind == "Ready").map_or("", |c| &c.status)
    }
}
