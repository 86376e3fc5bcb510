//! Stored state of one container of a pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Hooks, Resize, Resources};
use crate::backoff::Backoff;
use crate::clock::Mono;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerKind {
    /// Runs to completion before the next starts.
    Init,
    /// Init container with `restartPolicy: Always`.
    Sidecar,
    #[default]
    App,
    /// Came later, runs once, and counts for nothing.
    Ephemeral,
    /// Holds the pid namespace that the others share.
    Pause,
}

/// How one attempt of a container ended; what `lastState` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminated {
    pub id: String,
    pub attempt: u32,
    pub exit_code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown`, `StartError`, ...
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    /// Start of the back-off window.
    pub finished_mono: Mono,
    /// The stop that was under way when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StopReason>,
}

/// Why a running container is being stopped; decides the wording of its `Killing` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The pod is being deleted.
    Deleted,
    /// The container's definition changed.
    SpecChanged,
    /// All containers that matter have ended, or the pod was refused or failed.
    PodTerminal,
    Liveness,
    Startup,
    /// Its `postStart` hook failed.
    PostStartHook,
}

/// The strongest signal issued so far to a container that is being stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SignalState {
    /// Nothing yet: its start has not answered, or it waits for its turn.
    #[default]
    None,
    Stop,
    Kill,
}

/// An image volume, by its name in the pod and the image as the pod spells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeImage {
    pub volume: String,
    pub reference: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum ContainerState {
    /// Nothing of the next attempt exists. An empty reason means the default one (`ContainerCreating` or
    /// `PodInitializing`).
    Waiting {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
        /// Do not try again before this moment of boot time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Mono>,
    },
    /// `EnsureImage` has answered; the attempt can be started.
    ImageReady {
        /// Same as for `Pulling`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// `EnsureImage` was issued and has not answered.
    Pulling {
        /// What the status showed before, kept to be shown while a retry is under way.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
        /// The image is not the container's own, but of a volume that it mounts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume: Option<VolumeImage>,
    },
    /// `Start` was issued and has not answered.
    Starting {
        id: String,
        /// Same as for `Pulling`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    Running {
        id: String,
        pid: i32,
        started_at: Timestamp,
        since: Mono,
    },
    /// A stop was decided. Left only by the container's exit (or by the failure of a start still under way).
    Stopping {
        id: String,
        /// Zero while the start has not answered yet.
        pid: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_at: Option<Timestamp>,
        because: StopReason,
        /// SIGKILL falls due.
        kill_at: Mono,
        /// Earliest time of SIGKILL, whatever happens to the pod's grace period: every container gets this time to end
        /// by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spare_until: Option<Mono>,
        #[serde(default)]
        signal: SignalState,
    },
    Terminated(Terminated),
}

impl Default for ContainerState {
    fn default() -> Self {
        Self::waiting()
    }
}

impl ContainerState {
    pub fn waiting() -> Self {
        Self::Waiting { reason: String::new(), message: String::new(), retry_at: None }
    }

    /// The reason and message shown while waiting; empty stands for the default reason.
    pub fn shown(&self) -> (&str, &str) {
        match self {
            Self::Waiting { reason, message, .. }
            | Self::Pulling { reason, message, .. }
            | Self::ImageReady { reason, message }
            | Self::Starting { reason, message, .. } => (reason, message),
            Self::Running { .. } | Self::Stopping { .. } | Self::Terminated(_) => ("", ""),
        }
    }

    /// Id and pid of the attempt that has a process. A container that is stopped before its start has answered does not
    /// have one yet.
    pub fn process(&self) -> Option<(&str, i32)> {
        match self {
            Self::Running { id, pid, .. } | Self::Stopping { id, pid: pid @ 1.., .. } => Some((id.as_str(), *pid)),
            _ => None,
        }
    }

    /// Id of the attempt that may have processes on the node.
    pub fn live_id(&self) -> Option<&str> {
        match self {
            Self::Starting { id, .. } | Self::Running { id, .. } | Self::Stopping { id, .. } => Some(id),
            Self::Waiting { .. } | Self::Pulling { .. } | Self::ImageReady { .. } | Self::Terminated(_) => None,
        }
    }
}

/// Verdicts of the running attempt's probes; `None` until the first verdict. Cleared with every new attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResults {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<bool>,
}

/// Identity of a container's first process, as `status.containerStatuses[].user` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUser {
    pub uid: u32,
    pub gid: u32,
    /// All groups of the process, the primary one first.
    pub groups: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    pub kind: ContainerKind,
    /// Number of the current or, while waiting, newest attempt. Rises when an attempt is started after an end.
    pub attempt: u32,
    pub state: ContainerState,
    /// End of the attempt before the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Terminated>,
    /// Image reference as the spec had it when the attempt began. A change of it restarts the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// What the status shows as `imageID`; empty until an attempt had an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// Restart back-off (CrashLoopBackOff).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_backoff: Option<Backoff>,
    /// Pull back-off (ImagePullBackOff).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_backoff: Option<Backoff>,
    #[serde(default)]
    pub probes: ProbeResults,
    /// User of its first process, once an attempt was prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ProcessUser>,
    #[serde(default, skip_serializing_if = "Hooks::is_idle")]
    pub hooks: Hooks,
    /// Values of the attempt's cgroup; `None` before the first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    #[serde(default, skip_serializing_if = "Resize::is_idle")]
    pub resize: Resize,
    /// Ended attempts still present on the node; true once `RemoveContainer` was issued.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub garbage: BTreeMap<u32, bool>,
}

impl ContainerRecord {
    pub fn new(kind: ContainerKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// The newest known end: of the current attempt, else of the one before.
    pub fn latest_end(&self) -> Option<&Terminated> {
        match &self.state {
            ContainerState::Terminated(t) => Some(t),
            _ => self.last.as_ref(),
        }
    }
}
