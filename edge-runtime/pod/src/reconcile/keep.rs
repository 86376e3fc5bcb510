//! One container that should run: started, restarted with back-off, or stopped for a reason.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

use super::super::backoff::Backoff;
use super::super::clock::Mono;
use super::super::event::HookKind;
use super::super::id::container_id;
use super::super::record::{
    ContainerKind, ContainerState, Hook, Hooks, ProbeResults, Resize, Resources, StopReason, Terminated,
};
use super::super::restart_policy::is_restartable;
use super::super::spec::pod_ref;
use super::super::step::Step;
use super::super::transition::CRASH_LOOP;
use super::Turn;
use super::stop::Order;

/// How long `ErrImagePull` with the error itself is shown before `ImagePullBackOff` takes its place.
const SHOW_PULL_ERROR: Duration = Duration::from_secs(3);
/// Waiting reason of a container that ended for its hook (K8s `ErrPostStartHook`).
const POST_START_FAILED: &str = "PostStartHookError";
/// Pause after a first failed start, while `RunContainerError` is shown.
const RUN_ERROR_RETRY: Duration = Duration::from_secs(10);

/// A `postStart` hook is defined.
pub fn has_post_start(container: &Container) -> bool {
    container.lifecycle.as_ref().is_some_and(|l| l.post_start.is_some())
}

impl Turn<'_> {
    /// One container that should run: start, restart, stop for a reason, or leave alone.
    pub(super) fn keep(&mut self, container: &Container, kind: ContainerKind) {
        let name = &container.name;
        let Some(c) = self.record.containers.get(name) else { return };
        match c.state.clone() {
            ContainerState::Waiting { reason, message, retry_at } => match retry_at.filter(|at| self.now.mono < *at) {
                None if self.held_up => {}
                None => self.launch(container),
                Some(at) => {
                    self.wake_at(at);
                    if reason == "ErrImagePull" {
                        self.show_pull_backoff(container, &message, at);
                    }
                }
            },
            ContainerState::ImageReady { .. } if self.held_up => {}
            ContainerState::ImageReady { .. } => self.start(container),
            ContainerState::Pulling { .. } | ContainerState::Starting { .. } => {}
            ContainerState::Stopping { .. } => self.press(name, Order::Now),
            ContainerState::Running { id, .. } => {
                if has_post_start(container) && c.hooks.post_start.is_idle() {
                    self.run_post_start(name, id);
                }
                self.check(container, kind);
            }
            ContainerState::Terminated(t) => {
                if !self.held_up && self.restarts(container, kind, &t) {
                    self.restart(container, &t);
                }
            }
        }
    }

    /// Returns why a running container must be stopped, if it must.
    fn check(&mut self, container: &Container, kind: ContainerKind) {
        let Some(c) = self.record.containers.get(&container.name) else { return };
        let restarted = kind == ContainerKind::Sidecar || is_restartable(self.spec, container);
        if kind == ContainerKind::Ephemeral {
            return;
        }
        let what = if kind == ContainerKind::App { "Container" } else { "Init container" };
        if c.hooks.post_start.error().is_some() {
            let because = StopReason::PostStartHook;
            let kill_at = self.now.mono.after(self.grace_for(container, because));
            return self.stop(&container.name, because, kill_at, "FailedPostStartHook".to_owned(), Order::Now);
        }
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
        if because != StopReason::Startup && self.is_stop_held() {
            return;
        }
        let tail = if restarted && kind == ContainerKind::App { ", will be restarted" } else { "" };
        let message = format!("{what} {} {text}{tail}", container.name);
        let grace = self.grace_for(container, because);
        self.stop(&container.name, because, self.now.mono.after(grace), message, Order::Now);
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
                pod_ref(self.pod)
            );
            self.wait(&container.name, CRASH_LOOP, message, at);
            let text = format!("Back-off restarting failed container {} in pod {}", container.name, pod_ref(self.pod));
            self.container_event(&container.name, true, "BackOff", text);
        } else if let Some(at) = Some(end.finished_mono.after(RUN_ERROR_RETRY))
            .filter(|at| end.reason == "StartError" && self.now.mono < *at)
        {
            self.wait(&container.name, "RunContainerError", end.message.clone(), at);
        } else {
            if let Some(error) = c.hooks.post_start.error() {
                // Shown while the next attempt is under way.
                let (reason, message) = (POST_START_FAILED.to_owned(), error.to_owned());
                c.state = ContainerState::Waiting { reason, message, retry_at: None };
            }
            self.launch(container);
        }
    }

    fn run_post_start(&mut self, name: &str, id: String) {
        if let Some(c) = self.record.containers.get_mut(name) {
            c.hooks.post_start = Hook::UnderWay;
        }
        let (container, hook) = (name.to_owned(), HookKind::PostStart);
        self.steps.push(Step::RunHook { container, id, hook, limit: None });
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
        let text = format!("Back-off pulling image {:?}", self.next_image(container));
        self.wait(&container.name, "ImagePullBackOff", format!("{text}: ErrImagePull: {error}"), retry_at);
        self.container_event(&container.name, false, "BackOff", text);
        self.container_event(&container.name, true, "Failed", "Error: ImagePullBackOff".to_owned());
    }

    pub(super) fn start(&mut self, container: &Container) {
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
        c.hooks = Hooks::default();
        // While a resize waits for room a container has what was given to it.
        if self.record.resize_pending.is_none() || c.resources.is_none() {
            c.resources = Some(Resources::of(container));
        }
        c.resize = Resize::Idle;
        let id = container_id(&uid, &container.name, c.attempt);
        let (reason, message) = c.state.shown();
        let (reason, message) = (reason.to_owned(), message.to_owned());
        c.state = ContainerState::Starting { id: id.clone(), reason, message };
        let (attempt, image_id) = (c.attempt, c.image_id.clone());
        self.steps.push(Step::Start { container: container.name.clone(), attempt, id, image_id });
    }
}
