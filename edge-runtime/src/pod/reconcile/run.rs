//! Bringing a pod up and keeping it up: sandbox, init containers in order, app containers, restarts.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

use super::super::backoff::Backoff;
use super::super::clock::Mono;
use super::super::id::container_id;
use super::super::record::{
    ContainerKind, ContainerState, ProbeResults, SandboxState, StopReason, Terminal, Terminated,
};
use super::super::step::{EventDraft, PullPolicy, Step};
use super::super::support;
use super::super::transition::CRASH_LOOP;
use super::{Refusal, Turn, kind_of, pod_ref};

/// How long `ErrImagePull` with the error itself is shown before `ImagePullBackOff` takes its place.
const SHOW_PULL_ERROR: Duration = Duration::from_secs(3);
/// Pause after a first failed start, while `RunContainerError` is shown.
const RUN_ERROR_RETRY: Duration = Duration::from_secs(10);

/// Pause between two looks at what only a change outside can cure.
const OBSTACLE_RETRY: Duration = Duration::from_secs(600);

/// Whether the way to the next container is free.
#[derive(PartialEq, Eq)]
enum Progress {
    Done,
    Blocked,
}

impl Turn<'_> {
    pub(super) fn run(&mut self) {
        if self.settle_finished() || !self.have_sandbox() {
            return;
        }
        let initialized = self.apps_live();
        for container in self.spec.init_containers.iter().flatten() {
            let progress = match kind_of(container, true) {
                ContainerKind::Sidecar => self.run_sidecar(container),
                _ if initialized => Progress::Done,
                _ => self.run_init(container),
            };
            if progress == Progress::Blocked && !initialized {
                return;
            }
        }
        for container in &self.spec.containers {
            self.keep(container, ContainerKind::App);
        }
    }

    /// Decides the end of a pod whose containers will not run again: phases as the kubelet computes them.
    fn settle_finished(&mut self) -> bool {
        let ended = |c: &Container| match &self.record.containers.get(&c.name)?.state {
            ContainerState::Terminated(t) => Some(t),
            _ => None,
        };
        let policy = self.restart_policy();
        let init_failed = self.spec.init_containers.iter().flatten().any(|c| {
            kind_of(c, true) == ContainerKind::Init
                && ended(c).is_some_and(|t| t.exit_code != 0 && !restarts(ContainerKind::Init, policy, t))
        });
        if init_failed && !self.apps_live() {
            self.record.terminal = Some(Terminal { succeeded: false, reason: String::new(), message: String::new() });
            return true;
        }
        let ends: Option<Vec<&Terminated>> = self.spec.containers.iter().map(ended).collect();
        let Some(ends) = ends.filter(|e| !e.is_empty()) else { return false };
        if ends.iter().any(|t| restarts(ContainerKind::App, policy, t)) {
            return false;
        }
        let succeeded = ends.iter().all(|t| t.exit_code == 0);
        self.record.terminal = Some(Terminal { succeeded, reason: String::new(), message: String::new() });
        true
    }

    /// True once containers may be started.
    fn have_sandbox(&mut self) -> bool {
        match self.record.sandbox.state {
            SandboxState::Ready { .. } => return true,
            SandboxState::Preparing | SandboxState::TearingDown | SandboxState::Gone => return false,
            SandboxState::Failed { retry_at, .. } if self.now.mono < retry_at => {
                self.wake_at(retry_at);
                return false;
            }
            SandboxState::None | SandboxState::Lost | SandboxState::Failed { .. } => {}
        }
        if let Some(obstacle) = support::obstacle(self.pod) {
            self.wait_for_outside(obstacle);
            return false;
        }
        if self.record.sandbox.generation > 0 && self.record.sandbox.state == SandboxState::Lost {
            self.start_over();
        }
        self.record.sandbox.state = SandboxState::Preparing;
        self.steps.push(Step::PrepareSandbox);
        false
    }

    /// Waits for a change outside of the pod, looking again now and then; the event is told once.
    fn wait_for_outside(&mut self, obstacle: Refusal) {
        let Refusal { reason, message } = obstacle;
        let retry_at = self.now.mono.after(OBSTACLE_RETRY);
        self.wake_at(retry_at);
        let news = EventDraft::pod(true, &reason, message.clone());
        let known = &self.record.sandbox.state;
        if !matches!(known, SandboxState::Failed { message: old, .. } if *old == message) {
            self.steps.push(Step::Event(news));
        }
        self.record.sandbox.state = SandboxState::Failed { reason, message, retry_at };
    }

    /// A new sandbox begins from the first init container again.
    fn start_over(&mut self) {
        let message = "Pod sandbox changed, it will be killed and re-created.".to_owned();
        self.steps.push(Step::Event(EventDraft::pod(false, "SandboxChanged", message)));
        for c in self.record.containers.values_mut().filter(|c| c.kind == ContainerKind::Init) {
            if let ContainerState::Terminated(t) = &c.state {
                c.last = Some(t.clone());
                c.state = ContainerState::waiting();
            }
        }
    }

    /// Some app container of this sandbox has processes: the init containers have done their work.
    fn apps_live(&self) -> bool {
        let mut apps = self.record.containers.values().filter(|c| c.kind == ContainerKind::App);
        apps.any(|c| c.state.live_id().is_some())
    }

    fn run_init(&mut self, container: &Container) -> Progress {
        if let Some(ContainerState::Terminated(t)) = self.state(container)
            && t.exit_code == 0
        {
            return Progress::Done;
        }
        self.keep(container, ContainerKind::Init);
        Progress::Blocked
    }

    fn run_sidecar(&mut self, container: &Container) -> Progress {
        self.keep(container, ContainerKind::Sidecar);
        let Some(c) = self.record.containers.get(&container.name) else { return Progress::Blocked };
        let running = matches!(c.state, ContainerState::Running { .. });
        let started = container.startup_probe.is_none() || c.probes.startup == Some(true);
        if running && started { Progress::Done } else { Progress::Blocked }
    }

    fn state(&self, container: &Container) -> Option<&ContainerState> {
        self.record.containers.get(&container.name).map(|c| &c.state)
    }

    fn restart_policy(&self) -> RestartPolicy {
        match self.spec.restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }
    }

    /// One container that should run: start, restart, stop for a reason, or leave alone.
    fn keep(&mut self, container: &Container, kind: ContainerKind) {
        let name = &container.name;
        let Some(c) = self.record.containers.get(name) else { return };
        match c.state.clone() {
            ContainerState::Waiting { reason, message, retry_at } => match retry_at.filter(|at| self.now.mono < *at) {
                None => self.launch(container),
                Some(at) => {
                    self.wake_at(at);
                    if reason == "ErrImagePull" {
                        self.show_pull_backoff(container, &message, at);
                    }
                }
            },
            ContainerState::ImageReady { .. } => self.start(container),
            ContainerState::Pulling { .. } | ContainerState::Starting { .. } => {}
            ContainerState::Stopping { .. } => self.press(name),
            ContainerState::Running { .. } => self.check(container, kind),
            ContainerState::Terminated(t) => {
                if restarts(kind, self.restart_policy(), &t) {
                    self.restart(container, &t);
                }
            }
        }
    }

    /// Why a running container has to be stopped, if it has to.
    fn check(&mut self, container: &Container, kind: ContainerKind) {
        let Some(c) = self.record.containers.get(&container.name) else { return };
        let restarted = kind == ContainerKind::Sidecar || self.restart_policy() != RestartPolicy::Never;
        let what = if kind == ContainerKind::App { "Container" } else { "Init container" };
        let (because, text, restarted) = if kind != ContainerKind::Init && container.image.as_deref() != Some(&c.image)
        {
            (StopReason::SpecChanged, "definition changed", true)
        } else if c.probes.liveness == Some(false) {
            (StopReason::Liveness, "failed liveness probe", restarted)
        } else if c.probes.startup == Some(false) {
            (StopReason::Startup, "failed startup probe", restarted)
        } else {
            return;
        };
        let tail = if restarted && kind == ContainerKind::App { ", will be restarted" } else { "" };
        let message = format!("{what} {} {text}{tail}", container.name);
        let grace = self.grace_for(container, because);
        self.stop(&container.name, because, self.now.mono.after(grace), message);
    }

    /// Begins the next attempt after an end, or waits out the back-off.
    fn restart(&mut self, container: &Container, end: &Terminated) {
        let Some(c) = self.record.containers.get_mut(&container.name) else { return };
        c.last = Some(end.clone());
        if end.stopped == Some(StopReason::SpecChanged) {
            c.restart_backoff = None;
            return self.launch(container);
        }
        let backoff = c.restart_backoff;
        if let Some((b, at)) = backoff.and_then(|b| Some((b, b.until(end.finished_mono, self.now.mono)?))) {
            let message = format!(
                "back-off {} restarting failed container={} pod={}",
                b.text(),
                container.name,
                pod_ref(&self.record)
            );
            self.wait(&container.name, CRASH_LOOP, message, at);
            let text =
                format!("Back-off restarting failed container {} in pod {}", container.name, pod_ref(&self.record));
            self.container_event(&container.name, true, "BackOff", text);
        } else if let Some(at) = Some(end.finished_mono.after(RUN_ERROR_RETRY))
            .filter(|at| end.reason == "StartError" && self.now.mono < *at)
        {
            self.wait(&container.name, "RunContainerError", end.message.clone(), at);
        } else {
            self.launch(container);
        }
    }

    fn wait(&mut self, name: &str, reason: &str, message: String, until: Mono) {
        if let Some(c) = self.record.containers.get_mut(name) {
            c.state = ContainerState::Waiting { reason: reason.to_owned(), message, retry_at: Some(until) };
        }
        self.wake_at(until);
    }

    fn show_pull_backoff(&mut self, container: &Container, error: &str, retry_at: Mono) {
        let failed_at = self.record.containers.get(&container.name).and_then(|c| c.pull_backoff).map(|b| b.updated);
        let due = failed_at.unwrap_or(self.now.mono).after(SHOW_PULL_ERROR);
        if self.now.mono < due {
            return self.wake_at(due);
        }
        let text = format!("Back-off pulling image {:?}", container.image.as_deref().unwrap_or_default());
        self.wait(&container.name, "ImagePullBackOff", format!("{text}: ErrImagePull: {error}"), retry_at);
        self.container_event(&container.name, false, "BackOff", text);
    }

    /// Has the image, or gets it; then starts.
    fn launch(&mut self, container: &Container) {
        let reference = container.image.clone().unwrap_or_default();
        let policy = pull_policy(container);
        let Some(c) = self.record.containers.get_mut(&container.name) else { return };
        if c.image != reference {
            c.image.clone_from(&reference);
            c.pull_backoff = None;
        }
        if policy != PullPolicy::Always
            && let Some(image_id) = (self.world.image)(&reference)
        {
            c.image_id = image_id;
            let text =
                format!("Container image {reference:?} already present on machine and can be accessed by the pod");
            self.container_event(&container.name, false, "Pulled", text);
            return self.start(container);
        }
        let (reason, message) = c.state.shown();
        c.state = ContainerState::Pulling { reason: reason.to_owned(), message: message.to_owned() };
        self.steps.push(Step::EnsureImage { container: container.name.clone(), reference, policy });
    }

    fn start(&mut self, container: &Container) {
        let uid = self.record.uid.clone();
        let now = self.now.mono;
        let Some(c) = self.record.containers.get_mut(&container.name) else { return };
        if let Some(end) = c.last.as_ref() {
            if end.stopped != Some(StopReason::SpecChanged) && end.attempt == c.attempt {
                c.restart_backoff = Some(Backoff::next(c.restart_backoff, end.finished_mono, now));
            }
            c.attempt = c.attempt.max(end.attempt.saturating_add(1));
        }
        c.probes = ProbeResults::default();
        let id = container_id(&uid, &container.name, c.attempt);
        let (reason, message) = c.state.shown();
        let (reason, message) = (reason.to_owned(), message.to_owned());
        c.state = ContainerState::Starting { id: id.clone(), reason, message };
        let (attempt, image_id) = (c.attempt, c.image_id.clone());
        self.steps.push(Step::Start { container: container.name.clone(), attempt, id, image_id });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// Whether a container that ended like this is started again.
fn restarts(kind: ContainerKind, policy: RestartPolicy, end: &Terminated) -> bool {
    if end.stopped == Some(StopReason::SpecChanged) {
        return true;
    }
    match (kind, policy) {
        (ContainerKind::Sidecar, _) | (ContainerKind::App, RestartPolicy::Always) => true,
        (ContainerKind::Init | ContainerKind::App, RestartPolicy::Never) => false,
        (ContainerKind::Init, RestartPolicy::Always | RestartPolicy::OnFailure)
        | (ContainerKind::App, RestartPolicy::OnFailure) => end.exit_code != 0,
    }
}

/// The policy of the spec, or the API's default for the image's tag.
fn pull_policy(container: &Container) -> PullPolicy {
    match container.image_pull_policy.as_deref() {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ => {
            let image = container.image.as_deref().unwrap_or_default();
            let name = image.rsplit('/').next().unwrap_or_default();
            let floating = !name.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
            if floating { PullPolicy::Always } else { PullPolicy::IfNotPresent }
        }
    }
}
