//! Bringing a pod up: sandbox, init containers in order, app containers; and deciding that it has ended.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

use super::super::record::{
    ContainerKind, ContainerRecord, ContainerState, SandboxState, StopReason, Terminal, Terminated,
};
use super::super::refusal::Refusal;
use super::super::restart_policy::{goes_on, restarts_after};
use super::super::spec::kind_in_init;
use super::super::step::{EventDraft, Step};
use super::super::support;
use super::super::transition::CRASH_LOOP;
use super::{Turn, has_post_start};

/// Pause between two looks at what only a change outside can cure.
const OBSTACLE_RETRY: Duration = Duration::from_secs(600);

/// Whether the way to the next container is free.
#[derive(PartialEq, Eq)]
enum Progress {
    Done,
    Blocked,
}

/// There was an attempt in this sandbox, or one is on its way.
fn started(state: &ContainerState) -> bool {
    match state {
        ContainerState::Waiting { reason, .. } => reason == CRASH_LOOP || reason == "RunContainerError",
        _ => true,
    }
}

impl Turn<'_> {
    pub(super) fn run(&mut self) {
        if self.settle_finished() || self.waits_for_release() || !self.have_sandbox() {
            return;
        }
        if !self.have_pause() {
            return;
        }
        self.resize();
        for container in self.ephemeral {
            self.keep(container, ContainerKind::Ephemeral);
        }
        let initialized = super::initialized(&self.record);
        let init = self.spec.init_containers.as_deref().unwrap_or_default();
        // Init containers before the last started one have done their work: only sidecars among them are managed, and a
        // failed one blocks nothing (K8s pkg/kubelet/kuberuntime, `computeInitContainerActions`).
        let reached = init.iter().rposition(|c| self.state(c).is_some_and(started)).unwrap_or_default();
        for (at, container) in init.iter().enumerate() {
            let passed = initialized || at < reached;
            let progress = match kind_in_init(container) {
                ContainerKind::Sidecar => self.run_sidecar(container),
                _ if passed => Progress::Done,
                _ => self.run_init(container),
            };
            if progress == Progress::Blocked && !passed {
                return;
            }
        }
        for container in &self.spec.containers {
            self.keep(container, ContainerKind::App);
            // As in a kubelet, which starts them one after the other, including hooks.
            self.held_up |= self.holds_up(container);
        }
    }

    /// Decides the end of a pod whose containers will not run again: phases as the kubelet computes them.
    fn settle_finished(&mut self) -> bool {
        let ended = |c: &Container| match &self.record.containers.get(&c.name)?.state {
            ContainerState::Terminated(t) => Some(t),
            _ => None,
        };
        let init_failed = self.spec.init_containers.iter().flatten().any(|c| {
            kind_in_init(c) == ContainerKind::Init
                && ended(c).is_some_and(|t| t.exit_code != 0 && !self.restarts(c, ContainerKind::Init, t))
        });
        if init_failed && !self.apps_live() {
            self.record.terminal = Some(Terminal { succeeded: false, reason: String::new(), message: String::new() });
            return true;
        }
        let ends: Option<Vec<(&Container, &Terminated)>> =
            self.spec.containers.iter().map(|c| Some((c, ended(c)?))).collect();
        let Some(ends) = ends.filter(|e| !e.is_empty()) else { return false };
        if ends.iter().any(|(c, t)| self.restarts(c, ContainerKind::App, t)) {
            return false;
        }
        let succeeded = ends.iter().all(|(_, t)| t.exit_code == 0);
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

    /// Waits for a change outside of the pod, and checks again from time to time; the event is reported once.
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
        let in_turn = |c: &&mut ContainerRecord| matches!(c.kind, ContainerKind::Init | ContainerKind::Sidecar);
        for c in self.record.containers.values_mut().filter(in_turn) {
            if let ContainerState::Terminated(t) = &c.state {
                c.last = Some(t.clone());
            }
            if c.state.live_id().is_none() {
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
        let hooked = !has_post_start(container) || c.hooks.post_start.is_done();
        let started = container.startup_probe.is_none() || c.probes.startup == Some(true);
        if running && hooked && started { Progress::Done } else { Progress::Blocked }
    }

    /// Whether its `postStart` hook has not ended yet.
    fn holds_up(&self, container: &Container) -> bool {
        let Some(c) = self.record.containers.get(&container.name).filter(|_| has_post_start(container)) else {
            return false;
        };
        match c.state {
            ContainerState::Pulling { .. } | ContainerState::ImageReady { .. } | ContainerState::Starting { .. } => {
                true
            }
            ContainerState::Running { .. } => !c.hooks.post_start.is_done(),
            _ => false,
        }
    }

    fn state(&self, container: &Container) -> Option<&ContainerState> {
        self.record.containers.get(&container.name).map(|c| &c.state)
    }

    /// Whether a container that ended like this is started again.
    pub(super) fn restarts(&self, container: &Container, kind: ContainerKind, end: &Terminated) -> bool {
        if end.stopped == Some(StopReason::SpecChanged) {
            return true;
        }
        match kind {
            ContainerKind::Sidecar | ContainerKind::Pause => true,
            ContainerKind::Ephemeral => false,
            ContainerKind::Init => end.exit_code != 0 && restarts_after(self.spec, container, end.exit_code),
            ContainerKind::App => goes_on(self.spec, container, end),
        }
    }
}
