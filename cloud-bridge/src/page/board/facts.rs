//! What of a Node object is shown in its row. Pure.

use k8s_openapi::api::core::v1::Node;
use kube::api::ObjectMeta;
use sampan_page::TROUBLES;
use serde::Deserialize;

use crate::bridge::{BRIDGED_LABEL, is_held};

/// Labels beyond this number of bytes are not shown; each is shown whole, for filters by a whole label.
const LABELS: usize = 1024;
/// No version or architecture is longer.
const WORD: usize = 64;

/// A node as read from the API.
#[derive(Clone, Debug, Default, Deserialize)]
pub(in crate::page) struct PageNode {
    pub(in crate::page) metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    node_info: NodeInfo,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: String,
    architecture: String,
}

apimachinery::read_as!(PageNode, Node);

/// What is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The Ready condition: 0 unknown, 1 true, 2 false.
    pub(super) ready: u8,
    /// Bits, see [`TROUBLES`].
    pub(super) troubles: u8,
    /// 0 not said, 1 healthy, 2 in trouble.
    pub(super) storage: u8,
    /// 0 none, 1 in force, 2 gone back.
    pub(super) upgrade: u8,
    /// 0 no, 1 cordoned, 2 held back from jobs, 3 both.
    pub(super) held: u8,
    pub(super) version: Box<str>,
    pub(super) architecture: Box<str>,
    /// Seconds since 1970.
    pub(super) created: i64,
    /// `KEY=VALUE`, with spaces between; those that every node has come last.
    pub(super) labels: Box<str>,
}

impl Facts {
    pub(super) fn of(node: &PageNode) -> Self {
        let status = |kind: &str| {
            let found = node.status.conditions.iter().find(|one| one.kind == kind);
            found.map(|one| one.status.as_str()).unwrap_or_default()
        };
        let verdict = |kind: &str| match status(kind) {
            "True" => 1,
            "False" => 2,
            _ => 0,
        };
        let bits = TROUBLES.iter().enumerate().filter(|(_, (kind, bad))| status(kind) == *bad);
        let held = node.metadata.annotations.as_ref().is_some_and(is_held);
        let (usual, own): (Vec<_>, Vec<_>) = node
            .metadata
            .labels
            .iter()
            .flatten()
            .partition(|(key, _)| key.contains("kubernetes.io/") || *key == BRIDGED_LABEL);
        let labels = own.into_iter().chain(usual).map(|(key, value)| format!("{key}={value}"));
        Self {
            ready: verdict("Ready"),
            troubles: bits.fold(0, |all, (at, _)| all | 1 << at),
            storage: verdict("StorageHealthy"),
            upgrade: verdict("Upgraded"),
            held: u8::from(node.spec.unschedulable) | u8::from(held) << 1,
            version: cut(own_version(&node.status.node_info.kubelet_version), WORD).into(),
            architecture: cut(&node.status.node_info.architecture, WORD).into(),
            created: node.metadata.creation_timestamp.as_ref().map_or(0, |at| at.0.as_second()),
            labels: joined(labels, LABELS).into(),
        }
    }
}

/// Sampan's own version, by which a roll-out is followed, of what a node gives as its kubelet's: `v1.36.0-sampan-0.1.0`.
pub(crate) fn own_version(kubelet: &str) -> &str {
    kubelet.split_once("-sampan-").map_or(kubelet, |(_, own)| own)
}

/// Joins the labels with spaces, up to the last one that ends within `most` bytes.
fn joined(labels: impl Iterator<Item = String>, most: usize) -> String {
    let mut all = String::new();
    for label in labels {
        let gap = if all.is_empty() { "" } else { " " };
        if all.len() + gap.len() + label.len() > most {
            break;
        }
        all.push_str(gap);
        all.push_str(&label);
    }
    all
}

/// Returns at most `most` bytes of the text.
pub(in crate::page) fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_become_what_a_row_shows() {
        let node = json!({
            "metadata": {"name": "a", "labels": {"kubernetes.io/os": "linux", "site": "<b>", "zone": "x"}, "creationTimestamp": "2026-03-01T10:00:00Z",
                "annotations": {"sampan.dev/hold": ""}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "DiskPressure", "status": "True"},
                    {"type": "ClockSynchronized", "status": "False"},
                    {"type": "StorageHealthy", "status": "False"},
                    {"type": "Upgraded", "status": "True"},
                    {"type": "HighTemperature", "status": "False"},
                ],
                "nodeInfo": {"kubeletVersion": "v1.36.0-sampan-0.1.0", "architecture": "arm64"},
            },
        });
        let facts = Facts::of(&serde_json::from_value(node).unwrap());
        assert_eq!((facts.ready, facts.storage, facts.upgrade, facts.held), (1, 2, 1, 3));
        assert_eq!(facts.troubles, 1 << 1 | 1 << 5);
        assert_eq!(
            (&*facts.labels, &*facts.version, facts.created),
            ("site=<b> zone=x kubernetes.io/os=linux", "0.1.0", 1_772_359_200)
        );
        assert_eq!(own_version("v1.36.0"), "v1.36.0", "another kubelet's");
        let bare = Facts::of(&serde_json::from_value(json!({"metadata": {"name": "b"}})).unwrap());
        assert_eq!(bare, Facts::default());
        let free = json!({"metadata": {"name": "c", "annotations": {"sampan.dev/hold": "false"}}});
        assert_eq!(Facts::of(&serde_json::from_value(free).unwrap()).held, 0, "jobs give it orders");
    }

    #[test]
    fn labels_are_shown_whole_or_not_at_all() {
        let labels = || ["site=north-10", "zone=x"].into_iter().map(str::to_owned);
        assert_eq!(joined(labels(), 20), "site=north-10 zone=x");
        assert_eq!(joined(labels(), 19), "site=north-10");
        assert_eq!(joined(labels(), 12), "");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!((cut("aä", 2), cut("aä", 3), cut("", 5)), ("a", "aä", ""));
    }
}
