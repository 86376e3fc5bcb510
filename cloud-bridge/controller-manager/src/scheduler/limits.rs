//! How many volumes of each CSI driver a node may have: kube-scheduler's NodeVolumeLimits. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::fit::Node;
use super::volumes::Volumes;
use apimachinery::json::{integer, items, text};

/// Reason for which a node with its full number of volumes is left out.
pub(super) const EXCEEDED: &str = "node(s) exceed max volume count";

#[derive(Debug, Default)]
pub(super) struct Limits {
    /// The drivers of each node that have a limit, and the limit.
    nodes: HashMap<String, Vec<(String, i64)>>,
    /// The node and the volume of each VolumeAttachment.
    attachments: HashMap<String, (String, String)>,
    /// Nodes and the names of their VolumeAttachments.
    attached: BTreeSet<(String, String)>,
}

impl Limits {
    /// Adds or changes a CSINode; true if that may give a pod a node.
    pub(super) fn node(&mut self, name: &str, node: &Value) -> bool {
        let limit = |driver: &Value| Some((text(driver, "name").to_owned(), integer(&driver["allocatable"], "count")?));
        let limits: Vec<(String, i64)> = items(&node["spec"], "drivers").iter().filter_map(limit).collect();
        if limits.is_empty() {
            return self.nodes.remove(name).is_some();
        }
        self.nodes.insert(name.to_owned(), limits.clone()) != Some(limits)
    }

    pub(super) fn node_gone(&mut self, name: &str) -> bool {
        self.nodes.remove(name).is_some()
    }

    /// Adds or changes a VolumeAttachment.
    pub(super) fn attachment(&mut self, name: &str, attachment: &Value) {
        self.attachment_gone(name);
        let spec = &attachment["spec"];
        let (node, volume) = (text(spec, "nodeName"), text(&spec["source"], "persistentVolumeName"));
        if !volume.is_empty() {
            self.attached.insert((node.to_owned(), name.to_owned()));
            self.attachments.insert(name.to_owned(), (node.to_owned(), volume.to_owned()));
        }
    }

    /// Removes a VolumeAttachment; true if that may give a pod a node.
    pub(super) fn attachment_gone(&mut self, name: &str) -> bool {
        let Some((node, _)) = self.attachments.remove(name) else { return false };
        self.attached.remove(&(node, name.to_owned()))
    }

    pub(super) fn node_names(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    pub(super) fn attachment_names(&self) -> impl Iterator<Item = &String> {
        self.attachments.keys()
    }

    /// Whether a node would have too many volumes with these: each has its driver and an id.
    pub(super) fn exceeded(&self, node: &Node, volumes: &Volumes, new: &[(&str, String)]) -> bool {
        let Some(limits) = self.nodes.get(&node.name).filter(|_| !new.is_empty()) else { return false };
        let has_limit = |driver: &str| limits.iter().any(|(limited, _)| limited == driver);
        if !new.iter().any(|(driver, _)| has_limit(driver)) {
            return false;
        }
        let mut used: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for pod in node.pods.values() {
            let counted = pod.claims().filter_map(|claim| volumes.counted(&pod.key.0, claim));
            for (driver, id) in counted.filter(|(driver, _)| has_limit(driver)) {
                used.entry(driver).or_default().insert(id);
            }
        }
        let attached = self.attached.range((node.name.clone(), String::new())..);
        for (_, name) in attached.take_while(|(on, _)| *on == node.name) {
            let volume = self.attachments.get(name).and_then(|(_, volume)| volumes.driver_of(volume));
            if let Some((volume, driver)) = volume {
                used.entry(driver).or_default().insert(volume.to_owned());
            }
        }
        limits.iter().any(|(driver, limit)| {
            let there = used.get(driver.as_str());
            let more: BTreeSet<&String> = new.iter().filter(|(of, _)| of == driver).map(|(_, id)| id).collect();
            let more = more.into_iter().filter(|id| there.is_none_or(|there| !there.contains(*id))).count();
            let all = there.map_or(0, BTreeSet::len).saturating_add(more);
            more > 0 && i64::try_from(all).unwrap_or(i64::MAX) > *limit
        })
    }
}
