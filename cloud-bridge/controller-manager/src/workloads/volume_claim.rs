//! A claim as the controllers use it: its owner, and whether it has a volume.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Claim {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: Spec,
    status: Option<Status>,
}

/// Keeps a claim that is deleted for as long as a pod uses it (K8s pkg/util/slice and pkg/controller/volume/pvcprotection).
pub(crate) const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Annotation: the node where the volume of a claim must be made.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    volume_name: Option<String>,
    storage_class_name: Option<String>,
    access_modes: Value,
    data_source: Value,
    data_source_ref: Value,
    resources: Value,
    selector: Value,
    volume_mode: Value,
}

impl Spec {
    /// Its request for a volume.
    pub(crate) fn json(&self) -> Value {
        json!({
            "accessModes": self.access_modes, "dataSource": self.data_source, "dataSourceRef": self.data_source_ref,
            "resources": self.resources, "selector": self.selector, "volumeMode": self.volume_mode,
        })
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

apimachinery::read_as!(Claim, core::PersistentVolumeClaim);

impl Claim {
    /// It has no volume, and asks for none in particular.
    pub(crate) fn waits(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && self.spec.volume_name.as_deref().unwrap_or_default().is_empty()
            && matches!(self.status.as_ref().and_then(|status| status.phase.as_deref()), None | Some("" | "Pending"))
    }

    /// Its class; empty without one (K8s `GetPersistentVolumeClaimClass`).
    pub(crate) fn class(&self) -> &str {
        let old = self.annotation("volume.beta.kubernetes.io/storage-class");
        old.or(self.spec.storage_class_name.as_deref()).unwrap_or_default()
    }

    /// The node where its volume must be made, if one is selected.
    pub(crate) fn selected_node(&self) -> Option<&str> {
        self.annotation(SELECTED_NODE).filter(|node| !node.is_empty())
    }

    /// It is to go, and has to wait until no pod uses it.
    pub(crate) fn is_protected(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
            && self.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == PROTECTION)
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }
}
