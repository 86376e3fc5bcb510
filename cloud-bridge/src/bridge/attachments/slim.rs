//! A VolumeAttachment as the watch delivers it. Pure.

use std::collections::BTreeMap;

use apimachinery::slim::without_managers;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum length of the message of an error, in bytes (K8s pkg/apis/storage/validation, `maxVolumeErrorMessageSize`).
const LONGEST_MESSAGE: usize = 1024;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SlimAttachment {
    #[serde(deserialize_with = "without_managers")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: WatchedSpec,
    #[serde(default)]
    status: WatchedStatus,
}

apimachinery::read_as!(SlimAttachment, VolumeAttachment);

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedSpec {
    #[serde(default)]
    source: WatchedSource,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedSource {
    #[serde(default, rename = "persistentVolumeName")]
    volume: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatchedStatus {
    #[serde(default)]
    attached: bool,
    #[serde(default)]
    attachment_metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    attach_error: Option<WatchedError>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct WatchedError {
    #[serde(default)]
    message: Option<String>,
}

impl SlimAttachment {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Name of its PersistentVolume; empty without one.
    pub(super) fn volume(&self) -> &str {
        self.spec.source.volume.as_deref().unwrap_or_default()
    }

    pub(super) fn is_attached(&self) -> bool {
        self.status.attached
    }

    /// What a node needs of its status, as JSON text; `None` until it is attached or has failed. An attachment
    /// that is being deleted counts as not attached (K8s pkg/volume/csi/csi_attacher.go, `verifyAttachmentStatus`). The time of
    /// an error, which changes with each attempt, is left out.
    pub(super) fn status(&self) -> Option<String> {
        if self.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let WatchedStatus { attached, attachment_metadata, attach_error } = &self.status;
        if *attached {
            let metadata = attachment_metadata.as_ref().map_or(Value::Null, |metadata| json!(metadata));
            return Some(json!({"attached": true, "attachmentMetadata": metadata}).to_string());
        }
        let message = attach_error.as_ref()?.message.as_deref().unwrap_or_default();
        let message = &message[..message.floor_char_boundary(LONGEST_MESSAGE)];
        Some(json!({"attached": false, "attachError": {"message": message}}).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: Value, deleted: Option<&str>) -> Option<Value> {
        let metadata = json!({"name": "csi-1", "deletionTimestamp": deleted});
        let object =
            json!({"metadata": metadata, "spec": {"source": {"persistentVolumeName": "pv"}}, "status": status});
        let attachment: SlimAttachment = serde_json::from_value(object).unwrap();
        assert_eq!((attachment.name(), attachment.volume()), ("csi-1", "pv"));
        attachment.status().map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn nodes_get_what_they_need_of_an_attachment() {
        let metadata = json!({"devicePath": "/dev/sdb"});
        let attached = json!({"attached": true, "attachmentMetadata": metadata, "detachError": {"message": "x"}});
        let wanted = json!({"attached": true, "attachmentMetadata": metadata});
        assert_eq!(status(attached.clone(), None), Some(wanted));
        assert_eq!(status(attached, Some("2026-01-01T00:00:00Z")), None, "it is being deleted");
        assert_eq!(status(json!({"attached": false}), None), None);
        let error = |time: &str| json!({"attached": false, "attachError": {"message": "no room", "time": time}});
        let wanted = json!({"attached": false, "attachError": {"message": "no room"}});
        assert_eq!(status(error("2026-01-01T00:00:00Z"), None), Some(wanted.clone()));
        assert_eq!(status(error("2026-01-01T00:00:09Z"), None), Some(wanted), "no news");
        let long = status(json!({"attachError": {"message": "ä".repeat(5_000)}}), None).unwrap();
        assert_eq!(long["attachError"]["message"].as_str().map(str::len), Some(LONGEST_MESSAGE));
    }
}
