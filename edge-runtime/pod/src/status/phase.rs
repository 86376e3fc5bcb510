//! The phase of a pod from the statuses of its containers, by the kubelet's counting.

use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec};

use super::super::reconcile::initialized;
use super::super::record::{ContainerKind, PodRecord, SandboxState};
use super::super::restart_policy::restarts_after;
use super::super::spec::kind_in_init;

/// Phase, reason and message of a pod.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    /// The phase to show. An end is shown only when no process is left, as API users rely on.
    pub shown: &'static str,
    /// Phase for the reasons of conditions. For a pod that was deleted before all containers had started, still
    /// `Pending` (K8s pkg/kubelet/status: `TerminatePod` changes only container statuses and phase).
    pub of_conditions: &'static str,
}

pub(super) fn of(spec: &PodSpec, record: &PodRecord, init: &[ContainerStatus], apps: &[ContainerStatus]) -> Phase {
    let live = record.containers.values().any(|c| c.state.live_id().is_some());
    let app_records = || record.containers.values().filter(|c| c.kind == ContainerKind::App);
    let has_run = app_records().any(|c| c.latest_end().is_some());
    let counted = computed(spec, init, apps, initialized(record), record.deletion.is_some() && !live);
    // A container that is restarted for another reason than its exit code has not ended.
    let goes_on = record.terminal.is_none() && record.deletion.is_none();
    let shown = match (&record.terminal, live) {
        (Some(end), false) if end.succeeded => "Succeeded",
        (Some(_), false) => "Failed",
        _ if (live || goes_on) && matches!(counted, "Succeeded" | "Failed") => {
            if has_run {
                "Running"
            } else {
                "Pending"
            }
        }
        (None, false) if record.deletion.is_some() && record.sandbox.state == SandboxState::Gone => match counted {
            "Succeeded" => counted,
            _ => "Failed",
        },
        _ => counted,
    };
    let of_conditions = if record.terminal.is_none() && counted == "Pending" { counted } else { shown };
    Phase { shown, of_conditions }
}

/// The kubelet's `getPhase`. `ended`: the containers will not be started again whatever the policy says.
fn computed(
    spec: &PodSpec,
    init: &[ContainerStatus],
    apps: &[ContainerStatus],
    initialized: bool,
    ended: bool,
) -> &'static str {
    let (mut pending_init, mut pending_sidecars, mut init_failed) = (0, 0, 0);
    let (mut running, mut waiting, mut stopped, mut settled, mut succeeded) = (0, 0, 0, 0, 0);

    for (container, status) in spec.init_containers.iter().flatten().zip(init) {
        let seen = View::of(status);
        if kind_in_init(container) == ContainerKind::Init {
            match seen {
                View::Exited(0) => {}
                View::Exited(code) | View::Again(code) if code != 0 => {
                    init_failed += i32::from(!restarts_after(spec, container, code));
                }
                View::Running | View::Waiting | View::Exited(_) | View::Again(_) => pending_init += 1,
            }
            continue;
        }
        match seen {
            View::Running => {
                running += 1;
                pending_sidecars += i32::from(status.started != Some(true));
            }
            View::Waiting => {
                pending_sidecars += 1;
                waiting += 1;
            }
            View::Exited(_) | View::Again(_) => {}
        }
    }
    for (container, status) in spec.containers.iter().zip(apps) {
        let restartable = |code| restarts_after(spec, container, code);
        match View::of(status) {
            View::Running => running += 1,
            View::Waiting => waiting += 1,
            View::Exited(code) => {
                stopped += 1;
                settled += i32::from(!restartable(code));
                succeeded += i32::from(code == 0);
            }
            View::Again(code) => {
                stopped += 1;
                settled += i32::from(!restartable(code));
            }
        }
    }

    if init_failed > 0 {
        return "Failed";
    }
    if pending_init > 0 || (pending_sidecars > 0 && !initialized) || waiting > 0 {
        return "Pending";
    }
    if running > 0 {
        return "Running";
    }
    let verdict = if stopped == succeeded { "Succeeded" } else { "Failed" };
    match stopped {
        0 => "Pending",
        _ if ended || stopped == settled => verdict,
        _ => "Running",
    }
}

/// A container status as the counting sees it.
#[derive(Clone, Copy)]
enum View {
    Running,
    /// Never ran.
    Waiting,
    /// Ended with this code.
    Exited(i32),
    /// Waits to run again after it ended with this code.
    Again(i32),
}

impl View {
    fn of(status: &ContainerStatus) -> Self {
        let state = status.state.as_ref();
        // A termination without an id belongs to a container that never existed.
        let code = |s: Option<&k8s_openapi::api::core::v1::ContainerState>| {
            s.and_then(|s| s.terminated.as_ref()).filter(|t| t.container_id.is_some()).map(|t| t.exit_code)
        };
        if state.is_some_and(|s| s.running.is_some()) {
            return Self::Running;
        }
        match (code(state), code(status.last_state.as_ref())) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(code)) => Self::Again(code),
            (None, None) => Self::Waiting,
        }
    }
}
