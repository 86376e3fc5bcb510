//! A node as read by the node lifecycle: only its state and its taints.

use apimachinery::typed::list;
use k8s_openapi::api::core::v1::Node;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct SlimNode {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: SlimSpec,
    #[serde(default)]
    pub(super) status: SlimStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct SlimSpec {
    #[serde(default, deserialize_with = "list")]
    pub(super) taints: Vec<Value>,
    #[serde(default)]
    pub(super) unschedulable: Option<bool>,
    #[serde(default, rename = "podCIDRs", deserialize_with = "list")]
    pub(super) pod_cidrs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct SlimStatus {
    #[serde(default, deserialize_with = "list")]
    pub(super) conditions: Vec<SlimCondition>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SlimCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) status: String,
}

apimachinery::read_as!(SlimNode, Node);

impl SlimNode {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn has_label(&self, label: &str) -> bool {
        self.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label))
    }

    /// The nodes with which it is likely to fail: of its zone, else of its site.
    pub(super) fn zone(&self) -> &str {
        let label = |name: &str| self.metadata.labels.as_ref()?.get(name).filter(|value| !value.is_empty());
        let zone = label("topology.kubernetes.io/zone").or_else(|| label("sampan.dev/site"));
        zone.map_or("", String::as_str)
    }

    /// Status of its condition `Ready`; empty without one.
    pub(super) fn ready(&self) -> &str {
        self.status.conditions.iter().find(|one| one.kind == "Ready").map_or("", |one| &one.status)
    }

    /// Whether this is an older version of the same node (K8s staging/src/k8s.io/apimachinery/pkg/util/resourceversion,
    /// `CompareResourceVersion`).
    pub(super) fn is_before(&self, other: &Self) -> bool {
        let version = |node: &Self| node.metadata.resource_version.as_ref()?.parse::<u64>().ok();
        self.metadata.uid == other.metadata.uid
            && version(self).zip(version(other)).is_some_and(|(own, other)| own < other)
    }

    /// Whether the API shows a state other than Unknown.
    pub(super) fn is_believed(&self) -> bool {
        self.ready() != "Unknown"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn older_version_of_the_same_node_is_told_from_another_node() {
        let node = |uid: &str, version: &str| -> SlimNode {
            serde_json::from_value(json!({"metadata": {"name": "n", "uid": uid, "resourceVersion": version}})).unwrap()
        };
        let known = node("a", "100");
        let cases =
            [("a", "99", true), ("a", "100", false), ("a", "101", false), ("b", "99", false), ("a", "x", false)];
        for (uid, version, before) in cases {
            assert_eq!(node(uid, version).is_before(&known), before, "{uid} {version}");
        }
    }
}
