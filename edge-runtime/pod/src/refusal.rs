//! The refusal of a pod, permanent or for now. Owns only its form; callers have the reasons.

use serde::{Deserialize, Serialize};

/// A pod that will never run here: phase Failed with this reason and message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// CamelCase, as in `status.reason`.
    pub reason: String,
    pub message: String,
}

/// The node's decision about a pod that is not admitted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// Pods that are ending still hold what this one needs.
    Waits(Refusal),
    /// A plugin does not have the devices that this one needs, and may have them soon: why.
    WaitsForDevice(String),
    Refused(Refusal),
}

impl Refusal {
    /// In the kubelet's words for a resource of which too little is left (K8s pkg/kubelet/lifecycle,
    /// `InsufficientResourceError`).
    pub fn out_of(resource: &str, requested: i64, used: i64, capacity: i64) -> Self {
        Self {
            reason: format!("OutOf{resource}"),
            message: format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        }
    }
}
