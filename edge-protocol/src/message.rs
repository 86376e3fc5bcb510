//! The two enums that name everything that crosses the link, one per direction.
//!
//! Grow them by adding variants and optional fields; never change what a name means.
//! Knows nothing of sockets, clocks, stores or the meaning of an object's body.

use serde::{Deserialize, Serialize};

/// Newest protocol version this build speaks. A peer offers a range; the highest common one is used.
pub const PROTOCOL: u32 = 1;

/// Names one Kubernetes object. `namespace` is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// `Pod`, `ConfigMap`, `Secret`, ...
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

/// An object without its body: enough to know whether both sides hold the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDigest {
    #[serde(flatten)]
    pub key: ObjectKey,
    pub uid: String,
    /// Hex of a hash over the body's bytes as sent; opaque to the edge, compared for equality only.
    pub digest: String,
}

/// An object with its body, the JSON of the Kubernetes object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    #[serde(flatten)]
    pub digest: ObjectDigest,
    pub body: serde_json::Value,
}

/// Number of a stream (logs, exec, ...), chosen by the bridge, never reused within a connection.
pub type StreamId = u64;

/// What the bridge asks a node to serve over a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum StreamRequest {
    /// Container log, as the kubelet's `/containerLogs` (`PodLogOptions` of the core API).
    Logs {
        namespace: String,
        pod: String,
        uid: String,
        container: String,
        #[serde(default)]
        follow: bool,
        #[serde(default)]
        previous: bool,
        #[serde(default)]
        timestamps: bool,
        #[serde(default)]
        tail_lines: Option<u64>,
        #[serde(default)]
        since_seconds: Option<u64>,
        /// RFC 3339.
        #[serde(default)]
        since_time: Option<String>,
        #[serde(default)]
        limit_bytes: Option<u64>,
    },
    /// A request this build does not know; answered by ending the stream with a reason.
    #[serde(other)]
    Unknown,
}

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
    /// A report this build does not know; acknowledged with a refusal.
    #[serde(other)]
    Unknown,
}
