//! What this node remembers about one pod: a plain value, kept as JSON in the store.
//!
//! A record says what was decided and what was seen, never how to do it. Its boot times ([`Mono`]) are valid in the
//! boot named by `boot_id` only. Old records must stay readable: add fields with `#[serde(default)]`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::backoff::Backoff;
use super::clock::{Mono, Now};

/// Where the desired pod came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodSource {
    /// The API, through the bridge.
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

/// Somebody asked for the pod's end.
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
    /// It may exist in part (the daemon died while making it) or no more (reboot): make it (again).
    Lost,
    /// `Teardown` was issued and has not answered.
    TearingDown,
    /// Taken down for good: the pod is terminal or deleted.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerKind {
    /// Runs to completion before the next starts.
    Init,
    /// Init container with `restartPolicy: Always`.
    Sidecar,
    App,
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
}

/// The strongest signal issued so far to a container that is being stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SignalState {
    /// None yet: its start has not answered, or it waits for its turn.
    #[default]
    None,
    Stop,
    Kill,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum ContainerState {
    /// Nothing of the coming attempt exists. An empty reason stands for the default one
    /// (`ContainerCreating` or `PodInitializing`).
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
        /// As for `Pulling`.
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
    },
    /// `Start` was issued and has not answered.
    Starting {
        id: String,
        /// As for `Pulling`.
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
    pub(crate) fn waiting() -> Self {
        Self::Waiting { reason: String::new(), message: String::new(), retry_at: None }
    }

    /// The reason and message shown while waiting; empty stands for the default reason.
    pub(crate) fn shown(&self) -> (&str, &str) {
        match self {
            Self::Waiting { reason, message, .. }
            | Self::Pulling { reason, message }
            | Self::ImageReady { reason, message }
            | Self::Starting { reason, message, .. } => (reason, message),
            Self::Running { .. } | Self::Stopping { .. } | Self::Terminated(_) => ("", ""),
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Ended attempts still present on the node; true once `RemoveContainer` was issued.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub garbage: BTreeMap<u32, bool>,
}

impl ContainerRecord {
    pub fn new(kind: ContainerKind) -> Self {
        Self {
            kind,
            attempt: 0,
            state: ContainerState::waiting(),
            last: None,
            image: String::new(),
            image_id: String::new(),
            restart_backoff: None,
            pull_backoff: None,
            probes: ProbeResults::default(),
            garbage: BTreeMap::new(),
        }
    }

    /// The newest known end: of the current attempt, else of the one before.
    pub fn latest_end(&self) -> Option<&Terminated> {
        match &self.state {
            ContainerState::Terminated(t) => Some(t),
            _ => self.last.as_ref(),
        }
    }
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Admission has looked at the pod (a refusal shows as `terminal`).
    #[serde(default)]
    pub admitted: bool,
    /// Addresses inside the pod's own network; empty before the sandbox is ready and for host network pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    #[serde(default)]
    pub sandbox: Sandbox,
    /// By container name: init, sidecar and app containers alike.
    #[serde(default)]
    pub containers: BTreeMap<String, ContainerRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// Decided end phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// By condition type: for `lastTransitionTime`.
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
            admitted: false,
            ips: Vec::new(),
            sandbox: Sandbox::default(),
            containers: BTreeMap::new(),
            deletion: None,
            terminal: None,
            conditions: BTreeMap::new(),
        }
    }
}
