//! The parts of a volume that controllers use: its existence and its claim.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// Keeps a volume that is deleted for as long as it is bound (K8s pkg/controller/volume/pvprotection).
pub(crate) const PROTECTION: &str = "kubernetes.io/pv-protection";

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Volume {
    pub(crate) metadata: ObjectMeta,
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

apimachinery::read_as!(Volume, core::PersistentVolume);

impl Volume {
    pub(crate) fn is_bound(&self) -> bool {
        self.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    }

    /// Whether it is being deleted but must wait until no claim uses it.
    pub(crate) fn is_protected(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
            && self.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == PROTECTION)
    }
}
