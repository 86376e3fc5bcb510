//! One `ContainerStatus` per container of the spec, in the spec's order.

use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser, LinuxContainerUser, PodSpec,
};

use super::super::reconcile::has_post_start;
use super::super::record::{
    ContainerKind, ContainerRecord, ContainerState, PodRecord, ProcessUser, Resources, SandboxState, Terminated,
};
use super::super::restart_policy::{goes_on, restarts_after};
use super::super::spec::kind_in_init;
use super::{text, time};

/// Termination messages of a whole pod, bytes (the kubelet's limit).
const MAX_MESSAGES: usize = 12 * 1024;

/// Statuses of the init list or of the app list.
pub(super) fn statuses(spec: &PodSpec, record: &PodRecord, runtime: &str, init: bool) -> Vec<ContainerStatus> {
    let containers = if init { spec.init_containers.as_deref().unwrap_or_default() } else { &spec.containers };
    let view = View::new(spec, record, runtime);
    let kind = |container| if init { kind_in_init(container) } else { ContainerKind::App };
    containers.iter().map(|c| view.status(c, kind(c))).collect()
}

/// Statuses of the ephemeral containers; they are never ready.
pub(super) fn ephemeral(spec: &PodSpec, record: &PodRecord, runtime: &str) -> Vec<ContainerStatus> {
    let view = View::new(spec, record, runtime);
    let all = super::super::ephemeral::containers(spec);
    all.iter().map(|c| view.status(c, ContainerKind::Ephemeral)).collect()
}

struct View<'a> {
    spec: &'a PodSpec,
    record: &'a PodRecord,
    /// Type of container ids.
    runtime: &'a str,
    max_message: usize,
}

impl<'a> View<'a> {
    fn new(spec: &'a PodSpec, record: &'a PodRecord, runtime: &'a str) -> Self {
        let count = |list: Option<usize>| list.unwrap_or(0);
        let more = count(spec.init_containers.as_ref().map(Vec::len));
        let more = more + count(spec.ephemeral_containers.as_ref().map(Vec::len));
        Self { spec, record, runtime, max_message: MAX_MESSAGES / (spec.containers.len() + more).max(1) }
    }

    fn status(&self, container: &Container, kind: ContainerKind) -> ContainerStatus {
        let blank = ContainerRecord::new(kind);
        let c = self.record.containers.get(&container.name).unwrap_or(&blank);
        let starting = starts(container, c);
        let (state, last) = self.states(container, c, kind, starting);
        let running = state.running.is_some();
        let ok = |probe_exists: bool, verdict: Option<bool>| !probe_exists || verdict == Some(true);
        let started = running && ok(container.startup_probe.is_some(), c.probes.startup);
        let ready = match kind {
            ContainerKind::Init => state.terminated.as_ref().is_some_and(|t| t.exit_code == 0),
            ContainerKind::Ephemeral | ContainerKind::Pause => false,
            ContainerKind::App | ContainerKind::Sidecar => {
                started && ok(container.readiness_probe.is_some(), c.probes.readiness)
            }
        };
        let image = if c.image.is_empty() { container.image.as_deref().unwrap_or_default() } else { &c.image };
        let waits = self.record.resize_pending.is_some();
        let given = c.resources.as_ref().filter(|_| running || waits);
        let asked = container.resources.as_ref().and_then(|r| r.requests.clone());
        // An increase that does not fit is not allocated.
        let held_back = given.filter(|_| waits);
        let allocated = held_back.map_or(asked, |given| given.to_api().requests);
        // Before the first attempt of the OCI runtime the kubelet reports nothing (K8s pkg/kubelet/kubelet_pods.go).
        let made = running || c.user.is_some() || c.latest_end().is_some();
        let id = c.state.live_id().filter(|_| running).or(c.latest_end().map(|t| t.id.as_str()));
        ContainerStatus {
            name: container.name.clone(),
            state: Some(state),
            last_state: Some(last),
            ready,
            started: (kind != ContainerKind::Ephemeral).then_some(started),
            restart_count: i32::try_from(restarts(c, starting)).unwrap_or(i32::MAX),
            image: image.to_owned(),
            image_id: if made { c.image_id.clone() } else { String::new() },
            container_id: id.map(|id| self.runtime_id(id)),
            user: c.user.as_ref().map(user),
            resources: made
                .then(|| given.map_or_else(|| container.resources.clone().unwrap_or_default(), Resources::to_api)),
            allocated_resources: allocated.filter(|_| made),
            stop_signal: container.lifecycle.as_ref().and_then(|l| l.stop_signal.clone()),
            ..ContainerStatus::default()
        }
    }

    /// `state` and `lastState`. While the next attempt is under way the last end stays in view, so that a restart
    /// does not look like a pod that has never run.
    fn states(
        &self,
        container: &Container,
        c: &ContainerRecord,
        kind: ContainerKind,
        starting: bool,
    ) -> (ApiState, ApiState) {
        let ended = |t: &Terminated| ApiState { terminated: Some(self.terminated(t)), ..ApiState::default() };
        let last = c.last.as_ref().map(ended).unwrap_or_default();
        let ending = self.record.deletion.is_some() || self.record.terminal.is_some();
        let waiting = |reason: &str, message: &str| ApiState {
            waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }),
            ..ApiState::default()
        };
        let (reason, message) = c.state.shown();
        // The API treats a termination without a restart as final: it would refuse a later state (K8s
        // pkg/apis/core/validation, `ValidateContainerStateTransition`). A kubelet does not report it until the next
        // start.
        let hidden = |t: &Terminated| {
            let again = kind == ContainerKind::App && !ending && goes_on(self.spec, container, t);
            again && !restarts_after(self.spec, container, t.exit_code)
        };
        let state = match &c.state {
            ContainerState::Running { started_at, .. }
            | ContainerState::Stopping { started_at: Some(started_at), .. }
                if !starting =>
            {
                let started_at = Some(time(*started_at));
                ApiState { running: Some(ContainerStateRunning { started_at }), ..ApiState::default() }
            }
            ContainerState::Terminated(t) if hidden(t) => return (waiting("ContainerCreating", ""), ended(t)),
            ContainerState::Terminated(t) => ended(t),
            _ if !reason.is_empty() && !ending => waiting(reason, message),
            _ if c.last.as_ref().is_some_and(hidden) => waiting("ContainerCreating", ""),
            _ if c.last.is_some() => last.clone(),
            _ if !reason.is_empty() && !self.gone() => waiting(reason, message),
            // An ephemeral container that never ran is left as it was (K8s pkg/kubelet/status, `TerminatePod`).
            _ if self.gone() && self.initialized() && kind != ContainerKind::Ephemeral => never_found(),
            _ if self.spec.init_containers.as_ref().is_some_and(|i| !i.is_empty()) => waiting("PodInitializing", ""),
            _ => waiting("ContainerCreating", ""),
        };
        (state, last)
    }

    /// The type is that of the node's `containerRuntimeVersion`, as with CRI, whichever handler the pod has.
    fn runtime_id(&self, id: &str) -> String {
        format!("{}://{id}", if self.runtime.is_empty() { "runc" } else { self.runtime })
    }

    fn gone(&self) -> bool {
        self.record.sandbox.state == SandboxState::Gone
    }

    fn initialized(&self) -> bool {
        let none = self.spec.init_containers.as_ref().is_none_or(Vec::is_empty);
        let apps = |c: &ContainerRecord| c.kind == ContainerKind::App && c.latest_end().is_some();
        none || self.record.containers.values().any(apps)
    }

    fn terminated(&self, t: &Terminated) -> ContainerStateTerminated {
        ContainerStateTerminated {
            exit_code: t.exit_code,
            signal: t.signal,
            reason: text(&t.reason),
            message: text(cut(&t.message, self.max_message)),
            started_at: t.started_at.map(time),
            finished_at: Some(time(t.finished_at)),
            container_id: Some(self.runtime_id(&t.id)),
        }
    }
}

/// A container of an ended pod that never ran: success cannot be claimed for it.
fn never_found() -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ApiState::default()
    }
}

/// It runs, but not for the API: a kubelet tells of a start when the `postStart` hook has ended.
fn starts(container: &Container, c: &ContainerRecord) -> bool {
    has_post_start(container) && matches!(c.state, ContainerState::Running { .. }) && !c.hooks.post_start.is_done()
}

/// An attempt counts as a restart once it runs.
fn restarts(c: &ContainerRecord, starting: bool) -> u32 {
    match &c.state {
        ContainerState::Running { .. } if starting => c.last.as_ref().map_or(c.attempt, |t| c.attempt.min(t.attempt)),
        ContainerState::Starting { .. } | ContainerState::Waiting { .. } | ContainerState::ImageReady { .. } => {
            c.last.as_ref().map_or(c.attempt, |t| c.attempt.min(t.attempt))
        }
        _ => c.attempt,
    }
}

fn user(user: &ProcessUser) -> ContainerUser {
    let groups = user.groups.iter().map(|gid| i64::from(*gid)).collect();
    let linux = LinuxContainerUser { uid: user.uid.into(), gid: user.gid.into(), supplemental_groups: Some(groups) };
    ContainerUser { linux: Some(linux) }
}

fn cut(s: &str, max: usize) -> &str {
    let mut end = s.len().min(max);
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    &s[..end]
}
