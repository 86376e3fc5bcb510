//! What the node loop is asked to do for a pod. Steps are values; executing one ends in a [`super::event::PodEvent`].

use std::time::Duration;

use super::clock::Mono;
use super::event::HookKind;
use super::record::{ContainerKind, StopReason};

/// One thing to do. The order in the list is the order of beginning; steps of different containers may overlap.
///
/// A step is issued once: the record beside it contains that it is running. After a restart of the daemon,
/// [`super::event::PodEvent::Resumed`] causes unfinished steps to be issued again, so each must be safe to repeat.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make volumes, namespaces, network. Answer: `SandboxReady` or `SandboxFailed`.
    PrepareSandbox,
    /// Have the image on the node, pulling by policy: the container's own, or one of a volume that it mounts.
    /// Answer: `ImageReady` or `ImageFailed`.
    EnsureImage { container: String, reference: String, policy: PullPolicy, for_volume: bool },
    /// Create and start one attempt from `image_id`. Answer: `Started` or `StartFailed`, and later `Exited`.
    Start { container: String, attempt: u32, id: String, image_id: String },
    /// Send a signal to the container's first process (`Kill`: to all its processes). No answer but `Exited`; if
    /// the attempt turns out not to run, answer `Exited` with what is known.
    Kill { container: String, id: String, signal: StopSignal, because: StopReason },
    /// Run a lifecycle hook of the running attempt. Answer: `HookDone`. `postStart` has no timeout; the hook is cut off
    /// when the record does not contain it any more.
    RunHook { container: String, id: String, hook: HookKind, limit: Option<Duration> },
    /// Give running containers (name, id), and the pod as a whole, the cgroup values of the newest spec. Answer:
    /// `Resized`, one for each.
    Resize { containers: Vec<(String, String)> },
    /// Remove an ended container from the OCI runtime with its bundle and writable layer (log files stay).
    /// Answer: `Removed`.
    RemoveContainer { container: String, attempt: u32, id: String },
    /// Undo `PrepareSandbox` and remove whatever else the pod has on the node (ended containers, volumes, what is
    /// in the pod's folder; log files stay). Answer: `TornDown` or `TeardownFailed`.
    Teardown,
    /// Put the final status and `Report::PodGone` into the outbox, in the record's own commit.
    ReportGone,
    /// Drop record, logs and empty folder of the pod; its object is gone already.
    Forget,
    /// Reconcile again at this time, because nothing else changes before. At most one per plan.
    WakeAt(Mono),
    /// Record an event about the pod.
    Event(EventDraft),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// The image's STOPSIGNAL, else SIGTERM; SIGKILL is due after `grace`.
    Stop { grace: Duration },
    /// SIGKILL.
    Kill,
}

/// A core/v1 Event but for what the loop adds: names, times, counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDraft {
    /// Type `Warning` when true, else `Normal`.
    pub warning: bool,
    pub reason: String,
    pub message: String,
    /// `involvedObject.fieldPath`: `spec.containers{NAME}`, `spec.initContainers{NAME}`, or empty for an event
    /// about the whole pod.
    pub field_path: String,
}

impl EventDraft {
    /// About the whole pod.
    pub fn pod(warning: bool, reason: &str, message: String) -> Self {
        Self { warning, reason: reason.to_owned(), message, field_path: String::new() }
    }

    /// About one container.
    pub fn container(warning: bool, reason: &str, message: String, kind: ContainerKind, name: &str) -> Self {
        let list = match kind {
            ContainerKind::App | ContainerKind::Pause => "containers",
            ContainerKind::Ephemeral => "ephemeralContainers",
            ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
        };
        Self { field_path: format!("spec.{list}{{{name}}}"), ..Self::pod(warning, reason, message) }
    }
}
