//! What a node reports of its pods and of itself. Values only.

use serde::{Deserialize, Serialize};

/// Most CSI drivers that a node reports.
pub const MAX_CSI_DRIVERS: usize = 32;

/// One thing a node reports. Kept in the node's durable outbox until the bridge acknowledges it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Report {
    /// Newest `PodStatus` of a pod; an older unsent one of the same uid is replaced.
    PodStatus { namespace: String, name: String, uid: String, status: serde_json::Value },
    /// Every container of a deleted pod has ended and its resources are released: the object may go.
    PodGone { namespace: String, name: String, uid: String },
    /// The node's own object: labels, taints, `NodeStatus`. Newest wins.
    Node { node: serde_json::Value },
    /// A core/v1 Event about a pod or the node.
    Event { event: serde_json::Value },
    /// A static pod of this node, to be shown in the API as a mirror pod.
    MirrorPod { pod: serde_json::Value },
    /// The static pod of this name and static uid is gone: delete its mirror.
    MirrorGone { namespace: String, name: String, static_uid: String },
    /// Newest [`OrderStatus`](super::OrderStatus) of the job with this uid.
    Order { job: String, status: serde_json::Value },
    /// CSI drivers of this node, at most [`MAX_CSI_DRIVERS`]; an empty list when the last one has gone. Newest wins.
    /// Each is `{"name", "nodeID", "labels": {KEY: VALUE}, "allocatable": {"count": N}}`: `labels` are its topology.
    /// Both may be absent, and other fields are ignored. A node passes on what its helper says. Sent to any bridge: an
    /// older one refuses it.
    CsiNode { drivers: serde_json::Value },
    /// A report this build does not know; acknowledged with a refusal.
    #[serde(other)]
    Unknown,
}
