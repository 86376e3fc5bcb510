//! What a fleet job (operations.kubeedge.io) wants done on one node, and what has come of it there. Values only: a node passes
//! both on as they are between its store or its helper and the link.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Kind of the objects that hold an [`Order`] as their body; cluster-scoped, named by the job's uid. Deleting the
/// object before the order begins cancels it.
pub const ORDER: &str = "Order";

/// Action of a job that a user has to do: the [`Order`] waits to be confirmed.
pub const WAITING_CONFIRMATION: &str = "WaitingConfirmation";

/// Action of a job that other jobs hold up: its [`Order`] waits on the node for its turn, and its time does not run.
pub const WAITING_TURN: &str = "WaitingTurn";

/// One job's work for one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    pub job: Job,
    /// Timeout for the work itself, once it has begun.
    pub timeout_seconds: u64,
    /// Preflight checks: `cpu`, `mem`, `disk`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check_items: Vec<String>,
    /// A user must confirm, on the node (`edge-runtime confirm`) or at the job, before anything is changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_confirmation: bool,
    /// A user has confirmed at the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirmed: bool,
    pub work: Work,
}

/// The job that an order is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// `NodeUpgradeJob`, `ImagePrePullJob`, `ConfigUpdateJob`.
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// The work to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Work {
    /// Other programs, from an image.
    Upgrade {
        version: String,
        /// Without tag and digest.
        image: String,
        /// `sha256:...` of the image's manifest, by Go's name of the architecture (`amd64`, `arm64`, `arm`).
        digests: BTreeMap<String, String>,
        /// Base64 of an Ed25519 signature over the text of the digest, by architecture.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        signatures: BTreeMap<String, String>,
    },
    /// Images to pull.
    PrePull {
        images: Vec<String>,
        /// Contents of a `.dockerconfigjson` each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<String>,
        /// Tries beyond the first, of each image.
        #[serde(default)]
        retry_times: u32,
    },
    /// Other values in the configuration, by their path (`logs.max-files`), as YAML.
    Configure { fields: BTreeMap<String, String> },
    /// Work this build does not know; it fails.
    #[serde(untagged)]
    Unknown(serde_json::Value),
}

/// How far a node is with an [`Order`]: the node's part of the status of KubeEdge's jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OrderStatus {
    pub phase: OrderPhase,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub action_flow: Vec<ActionStep>,
    /// Upgrade: the version that runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_version: String,
    /// Upgrade: the version that ran before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub historic_version: String,
    /// Images: each, in the order of the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_status: Vec<ImageStatus>,
}

impl OrderStatus {
    /// Nothing more comes of it before a user has confirmed the job.
    pub fn waits_for_confirmation(&self) -> bool {
        !self.phase.is_final() && waits_for_confirmation(&self.action_flow)
    }
}

/// Whether the last of these steps waits for a user to confirm the job.
pub fn waits_for_confirmation(steps: &[ActionStep]) -> bool {
    waits_in(WAITING_CONFIRMATION, steps)
}

/// Whether the last of these steps waits for the end of other orders on the node.
pub fn waits_for_turn(steps: &[ActionStep]) -> bool {
    waits_in(WAITING_TURN, steps)
}

fn waits_in(action: &str, steps: &[ActionStep]) -> bool {
    steps.last().is_some_and(|step| step.action == action && !step.status)
}

/// Phases with the names of KubeEdge's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderPhase {
    #[default]
    Pending,
    InProgress,
    Successful,
    Failure,
    #[serde(other)]
    Unknown,
}

impl OrderPhase {
    /// Nothing more comes of it.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Successful | Self::Failure)
    }
}

/// One action of a job: `WaitingTurn`, `Check`, `WaitingConfirmation`, `BackUp`, `Upgrade`, `Pull`, `Update`, `RollBack`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ActionStep {
    pub action: String,
    /// It was done, or has failed.
    #[serde(with = "condition_status")]
    pub status: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// RFC 3339, by the node's clock.
    pub time: String,
}

/// What became of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageStatus {
    pub image: String,
    #[serde(with = "condition_status")]
    pub status: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// `True` and `False` as text, as in conditions.
mod condition_status {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(done: &bool, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(if *done { "True" } else { "False" })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
        Ok(String::deserialize(from)? == "True")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn orders_and_what_comes_of_them_read_as_written() {
        let order = json!({
            "job": {"kind": "ImagePrePullJob", "name": "j", "uid": "u"}, "timeoutSeconds": 300,
            "work": {"prePull": {"images": ["a:1"], "retryTimes": 2}}});
        let read: Order = serde_json::from_value(order.clone()).expect("reads");
        assert_eq!(serde_json::to_value(&read).expect("writes"), order);
        let other = json!({"job": {"kind": "X", "name": "j", "uid": "u"}, "timeoutSeconds": 1, "work": {"dance": {}}});
        let read: Order = serde_json::from_value(other).expect("reads");
        assert!(matches!(read.work, Work::Unknown(_)));
        let status = json!({"phase": "Failure", "reason": "r",
            "actionFlow": [{"action": "Check", "status": "False", "reason": "disk", "time": "2026-01-01T00:00:00Z"}]});
        let read: OrderStatus = serde_json::from_value(status.clone()).expect("reads");
        assert!(read.phase.is_final() && !read.action_flow[0].status);
        assert_eq!(serde_json::to_value(&read).expect("writes"), status);
    }

    #[test]
    fn unfinished_order_waits_for_its_confirmation_alone() {
        let status = |phase: &str, steps: &[(&str, &str)]| {
            let steps: Vec<_> = steps.iter().map(|(action, done)| json!({"action": action, "status": done})).collect();
            let read = serde_json::from_value::<OrderStatus>(json!({"phase": phase, "actionFlow": steps}));
            read.expect("reads").waits_for_confirmation()
        };
        assert!(status("InProgress", &[("Check", "True"), ("WaitingConfirmation", "False")]));
        assert!(!status("InProgress", &[("Check", "True"), ("WaitingConfirmation", "True")]), "confirmed");
        assert!(!status("InProgress", &[("WaitingConfirmation", "False"), ("BackUp", "False")]), "it went on");
        assert!(!status("Failure", &[("WaitingConfirmation", "False")]), "it has ended");
        assert!(!status("Pending", &[]));
    }
}
