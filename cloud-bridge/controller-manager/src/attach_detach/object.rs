//! The parts of objects that decide about attachments. Pure.

use std::collections::BTreeSet;

use apimachinery::digest::sha256_hex;
use apimachinery::json::{flag, items, present, text};
use apimachinery::meta;
use serde_json::Value;

/// How names of CSI volumes begin in the status of a Node (K8s pkg/volume/util, `GetUniqueVolumeName`).
const PLUGIN: &str = "kubernetes.io/csi/";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A PersistentVolume of a CSI driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) driver: String,
    pub(super) handle: String,
    /// The claim to which it is bound, as `NAMESPACE/NAME`; empty without one.
    pub(super) claim: String,
    /// Whether it may be attached to several nodes (K8s pkg/volume/util, `IsMultiAttachAllowed`).
    pub(super) shared: bool,
}

impl Volume {
    /// `None` for volumes without a CSI driver.
    pub(super) fn read(object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let source = present(spec, "csi")?;
        let (claim, modes) = (&spec["claimRef"], items(spec, "accessModes"));
        let bound = text(&object["status"], "phase") == "Bound" && claim.is_object();
        Some(Self {
            driver: text(source, "driver").to_owned(),
            handle: text(source, "volumeHandle").to_owned(),
            claim: if bound { path(text(claim, "namespace"), text(claim, "name")) } else { String::new() },
            shared: modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany"),
        })
    }

    /// Its name in `status.volumesInUse` and `status.volumesAttached` of a Node.
    pub(super) fn unique_name(&self) -> String {
        format!("{PLUGIN}{}^{}", self.driver, self.handle)
    }

    /// The name of its VolumeAttachment to a node (K8s pkg/volume/csi, `getAttachmentName`).
    pub(super) fn attachment_name(&self, node: &str) -> String {
        format!("csi-{}", sha256_hex(&format!("{}{}{node}", self.handle, self.driver)))
    }
}

/// Namespace and name as one text.
pub(super) fn path(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// A VolumeAttachment of a PersistentVolume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) volume: String,
    pub(super) attached: bool,
    pub(super) deleting: bool,
    /// Why the driver could not attach it; empty without an error.
    pub(super) error: String,
}

impl Attachment {
    /// `None` for volumes that are described in the attachment itself: none of these are made here.
    pub(super) fn read(object: &Value) -> Option<Self> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let volume = present(&spec["source"], "persistentVolumeName").and_then(Value::as_str)?;
        Some(Self {
            uid: meta::text(object, "uid").to_owned(),
            node: text(spec, "nodeName").to_owned(),
            volume: volume.to_owned(),
            attached: flag(status, "attached"),
            deleting: meta::deleting(object),
            error: text(&status["attachError"], "message").to_owned(),
        })
    }
}

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) uid: String,
    /// The volumes that it uses or is about to use, as it has reported last.
    pub(super) in_use: BTreeSet<String>,
    /// The volumes that are reported to it as attached.
    pub(super) attached: BTreeSet<String>,
    /// An administrator has confirmed that it is off.
    pub(super) out_of_service: bool,
}

impl Node {
    pub(super) fn read(object: &Value) -> Self {
        let status = &object["status"];
        let is_ours = |name: &&str| name.starts_with(PLUGIN);
        let in_use = items(status, "volumesInUse").iter().filter_map(Value::as_str);
        let attached = items(status, "volumesAttached").iter().map(|one| text(one, "name"));
        Self {
            uid: meta::text(object, "uid").to_owned(),
            in_use: in_use.filter(is_ours).map(str::to_owned).collect(),
            attached: attached.filter(is_ours).map(str::to_owned).collect(),
            out_of_service: items(&object["spec"], "taints").iter().any(|taint| text(taint, "key") == OUT_OF_SERVICE),
        }
    }
}

/// A pod with claims on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) node: String,
    /// Its claims, as `NAMESPACE/NAME`.
    pub(super) claims: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volume_of_a_driver_has_names_as_in_kubernetes() {
        let volume = |modes: Value, phase: &str| {
            Volume::read(&json!({"spec": {"csi": {"driver": "d.csi", "volumeHandle": "h"}, "accessModes": modes,
                "claimRef": {"namespace": "ns", "name": "data"}}, "status": {"phase": phase}}))
        };
        let bound = volume(json!(["ReadWriteOnce"]), "Bound").unwrap();
        assert_eq!((bound.claim.as_str(), bound.shared), ("ns/data", false));
        assert_eq!(bound.unique_name(), "kubernetes.io/csi/d.csi^h");
        assert_eq!(bound.attachment_name("n"), format!("csi-{}", sha256_hex("hd.csin")));
        assert_eq!(
            volume(json!(["ReadWriteOnce", "ReadOnlyMany"]), "Released").map(|one| (one.claim, one.shared)),
            Some((String::new(), true))
        );
        assert_eq!(Volume::read(&json!({"spec": {"hostPath": {"path": "/a"}}})), None);
    }

    #[test]
    fn node_is_read_for_the_volumes_of_drivers() {
        let node = Node::read(&json!({
            "spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]},
            "status": {"volumesInUse": ["kubernetes.io/csi/d^h", "kubernetes.io/nfs/x"],
                "volumesAttached": [{"name": "kubernetes.io/csi/d^i", "devicePath": ""}]},
        }));
        assert!(node.out_of_service);
        assert_eq!((node.in_use.len(), node.attached.len()), (1, 1));
        assert_eq!(Node::read(&json!({})), Node::default());
    }

    #[test]
    fn attachment_of_a_volume_is_read() {
        let read = |source: Value| {
            Attachment::read(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"nodeName": "n", "source": source}, "status": {"attached": true, "attachError": {"message": "no"}}}))
        };
        let one = read(json!({"persistentVolumeName": "pv"})).unwrap();
        assert_eq!((one.node.as_str(), one.volume.as_str(), one.error.as_str()), ("n", "pv", "no"));
        assert!(one.attached && one.deleting);
        assert_eq!(read(json!({"inlineVolumeSpec": {}})), None);
    }
}
