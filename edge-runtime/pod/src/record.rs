//! Stored state of one pod: a plain value, as JSON in the store.
//!
//! A record contains decisions and observations, not how to execute them. Its boot times ([`Mono`]) are valid only in
//! the boot `boot_id`. Old records must stay readable: add fields with `#[serde(default)]`.

mod container;
mod hold;
mod hooks;
mod resources;

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::container::{
    ContainerKind, ContainerRecord, ContainerState, ProbeResults, ProcessUser, SignalState, StopReason, Terminated,
    VolumeImage,
};
pub use self::hold::{StartHold, StopHold};
pub use self::hooks::{Hook, Hooks};
pub use self::resources::{Resize, Resources};
use super::clock::{Mono, Now};
use super::refusal::Refusal;

/// Where the desired pod came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodSource {
    /// The API, through the bridge.
    #[default]
    Api,
    /// A manifest file on this node.
    Static,
}

/// A phase that no pod leaves again, with the pod-level reason and message (empty when none applies).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// `Succeeded` when true, `Failed` otherwise.
    pub succeeded: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The node itself ended the pod: eviction or shutdown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEnd {
    /// Most that its containers get to stop, in seconds.
    pub grace_s: u32,
    /// Shows as the condition `DisruptionTarget`: not the pod's own fault.
    #[serde(default)]
    pub disruption: bool,
}

/// A request to delete the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    pub requested_at: Mono,
    /// Grace in seconds; 0 kills at once.
    pub grace_s: u32,
    /// The object is gone from the API (tombstone, or a static manifest removed): end without reporting.
    #[serde(default)]
    pub object_gone: bool,
    /// [`super::step::Step::ReportGone`] was issued.
    #[serde(default)]
    pub reported: bool,
}

/// Volumes, namespaces and network of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum SandboxState {
    /// Nothing exists on the node.
    #[default]
    None,
    /// `PrepareSandbox` was issued and has not answered.
    Preparing,
    /// Making it failed; try again at `retry_at`.
    Failed {
        reason: String,
        message: String,
        retry_at: Mono,
    },
    Ready {
        since: Timestamp,
    },
    /// It may exist in part (the daemon died while making it) or not any more (reboot): make it again.
    Lost,
    /// `Teardown` was issued and has not answered.
    TearingDown,
    /// Removed permanently: the pod is terminal or deleted.
    Gone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    #[serde(flatten)]
    pub state: SandboxState,
    /// Counts successful preparations; more than one means the pod was started over (reboot).
    #[serde(default)]
    pub generation: u32,
    /// Failures in a row, for the retry delay.
    #[serde(default)]
    pub failures: u32,
    /// The pod reaches its neighbours through the node. In builds without this field pods reached each other directly.
    #[serde(default)]
    pub routed: bool,
}

/// Status and time of the last change of one pod condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionMark {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub since: Timestamp,
}

/// Everything remembered about one pod. Made by [`PodRecord::new`], changed only by
/// [`super::transition::apply`] and [`super::reconcile::reconcile`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub source: PodSource,
    /// The boot in which the boot times inside this record were taken.
    pub boot_id: String,
    /// `status.startTime`: when this node first acknowledged the pod.
    pub started_at: Timestamp,
    /// Since when the pod counts as active in this boot, for `activeDeadlineSeconds`.
    #[serde(default)]
    pub active_since: Mono,
    /// How long it was active in earlier boots, as far as the wall clock can tell; seconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub active_before_s: u32,
    /// When its activity began by the clock as it is now, where that was set forward after `started_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_from: Option<Timestamp>,
    /// Admission has looked at the pod (a refusal shows as `terminal`).
    #[serde(default)]
    pub admitted: bool,
    /// Addresses inside the pod's own network; empty before the sandbox is ready and for host network pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    #[serde(default)]
    pub sandbox: Sandbox,
    /// Records by container name: init, sidecar and app containers alike.
    #[serde(default)]
    pub containers: BTreeMap<String, ContainerRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    #[serde(default, skip_serializing_if = "StartHold::is_open")]
    pub start_hold: StartHold,
    /// Present while a stop waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_hold: Option<StopHold>,
    /// Images of the pod's image volumes by volume name, as `imageID`s; resolved once in the life of the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub image_volumes: BTreeMap<String, String>,
    /// Decided end phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Beside `terminal` when the node decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_end: Option<NodeEnd>,
    /// Its containers ask for more by now than there is room for: reason (`Deferred`, `Infeasible`) and message of
    /// `PodResizePending`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize_pending: Option<Refusal>,
    /// `metadata.generation` of a resize that has started and is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resizing: Option<i64>,
    /// Marks by condition type: for `lastTransitionTime`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, ConditionMark>,
}

impl PodRecord {
    /// A pod seen for the first time.
    pub fn new(uid: &str, namespace: &str, name: &str, source: PodSource, now: &Now) -> Self {
        Self {
            uid: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source,
            boot_id: now.boot_id.to_string(),
            started_at: now.wall,
            active_since: now.mono,
            ..Self::default()
        }
    }

    /// Counts what has ended in the life of the pod, attempts of containers and the pod itself: it grows with each end.
    pub fn ends(&self) -> u64 {
        let of =
            |c: &ContainerRecord| u64::from(c.attempt) + u64::from(matches!(c.state, ContainerState::Terminated(_)));
        self.containers.values().map(of).sum::<u64>() + u64::from(self.terminal.is_some())
    }
}

// serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
