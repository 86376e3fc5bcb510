//! Events of a pod: the only input, beside time and the desired object, that changes its record.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;

use super::record::{NodeEnd, ProcessUser, Resources};

/// One event. Container events have the attempt's id; those of another attempt change nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodEvent {
    /// `PrepareSandbox` succeeded. `ips` is empty for host network pods.
    SandboxReady { ips: Vec<IpAddr> },
    /// `PrepareSandbox` failed and undid itself: `FailedMount`, `FailedCreatePodSandBox`, ...
    SandboxFailed { reason: String, message: String },
    /// `Teardown` is done: no process, mount, namespace, address or file of the pod is left (logs excepted).
    TornDown,
    /// `Teardown` failed; it will be tried again.
    TeardownFailed { message: String },
    /// `EnsureImage` succeeded; `image_id` is what the status shows as `imageID`.
    ImageReady { container: String, image_id: String },
    /// `EnsureImage` failed.
    ImageFailed { container: String, failure: ImageFailure, message: String },
    /// `Start` is running: the user of the first process is known.
    Prepared { container: String, id: String, user: ProcessUser },
    /// `Start` succeeded: the container's first process runs (or ran).
    Started { container: String, id: String, pid: i32, started_at: Timestamp },
    /// `Start` failed and undid itself.
    StartFailed { container: String, id: String, failure: StartFailure, message: String },
    /// The container's first process ended.
    Exited { container: String, id: String, exit: Exit },
    /// `RemoveContainer` is done (also when nothing was left to remove).
    Removed { container: String, attempt: u32 },
    /// A probe's verdict changed for this attempt.
    Probe { container: String, id: String, probe: ProbeKind, success: bool },
    /// `RunHook` has ended; `error` says why it failed.
    HookDone { container: String, id: String, hook: HookKind, error: Option<String> },
    /// `Resize` is done for this container: its cgroup has `resources` now, or `error` says why not.
    Resized { container: String, id: String, resources: Resources, error: Option<String> },
    /// The API set `deletionTimestamp`, or shortened the grace.
    DeletionRequested { grace_s: u32 },
    /// The object is gone: a tombstone arrived or the static manifest was removed. `grace_s` is the pod's own.
    ObjectGone { grace_s: u32 },
    /// A ConfigMap, Secret or image that the pod may wait for has arrived or changed: do not wait out retries.
    DependencyChanged,
    /// The pod's first start is held no longer.
    Released,
    /// End the pod because the node is short of something or shuts down: phase Failed, within `end.grace_s`.
    Evict { reason: String, message: String, end: NodeEnd },
    /// The daemon has started again within the same boot, or connected to a new monitor. `live` maps ids of running
    /// containers to their pid; 0 means a start that is still running and will be answered. Exits meanwhile are
    /// reported as [`PodEvent::Exited`] before this.
    Resumed { live: BTreeMap<String, i32>, sandbox_exists: bool },
}

/// Why an image could not be had; names the waiting reason of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFailure {
    /// `ErrImagePull`, then `ImagePullBackOff`.
    Pull,
    /// `ErrImageNeverPull`.
    NeverPull,
    /// `InvalidImageName`.
    InvalidName,
    /// `ImageInspectError`.
    Inspect,
}

/// Why a container could not be started; names the waiting reason of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFailure {
    /// `CreateContainerConfigError`: the configuration cannot be made (missing ConfigMap, bad user, ...).
    Config,
    /// `CreateContainerError`: the bundle or the runtime's create failed.
    Create,
    /// `RunContainerError`: created, but its process could not be started (no such executable, ...).
    /// Counts as an attempt with exit code 128.
    Run,
    /// `WaitingForDevice`: a plugin does not have the devices for it now. Tried again when a plugin has news.
    Device,
}

/// Waiting reason of a container, and reason of the event.
pub const WAITING_FOR_DEVICE: &str = "WaitingForDevice";

impl StartFailure {
    pub fn reason(self) -> &'static str {
        match self {
            Self::Config => "CreateContainerConfigError",
            Self::Create => "CreateContainerError",
            Self::Run => "RunContainerError",
            Self::Device => WAITING_FOR_DEVICE,
        }
    }
}

/// How a container's first process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, as the kubelet shows it: 128 + signal for a death by signal. Ignored when `unknown`.
    pub code: i32,
    pub signal: Option<i32>,
    pub oom_killed: bool,
    /// The process has ended and its status is unknown (the monitor died too).
    pub unknown: bool,
    pub finished_at: Timestamp,
    /// Termination message, already cut to size; empty if none.
    pub message: String,
}

/// Which lifecycle hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookKind {
    PostStart,
    PreStop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    Startup,
    Readiness,
    Liveness,
}

impl ProbeKind {
    /// Name in events: `Startup`, `Readiness`, `Liveness`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}
