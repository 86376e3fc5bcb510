//! Bringing a pod down: stop signals in order, SIGKILL at the end of the grace period, teardown, farewell.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

use super::super::clock::Mono;
use super::super::record::{ContainerKind, ContainerState, SandboxState, SignalState, StopReason};
use super::super::step::{Step, StopSignal};
use super::Turn;

/// What a sidecar gets even if the others have used up the grace (the kubelet's minimum).
const LAST_GRACE: Duration = Duration::from_secs(2);

/// Grace of pods without `terminationGracePeriodSeconds`, as the API server defaults it.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

impl Turn<'_> {
    pub(super) fn end(&mut self) {
        let because = if self.record.deletion.is_some() { StopReason::Deleted } else { StopReason::PodTerminal };
        let deadline = match &self.record.deletion {
            Some(d) => d.requested_at.after(Duration::from_secs(d.grace_s.into())),
            None => self.now.mono.after(self.grace_of_end()),
        };
        self.drop_waiting();
        self.stop_all(because, deadline);
        if self.record.containers.values().any(|c| c.state.live_id().is_some()) {
            return;
        }
        self.tear_down();
        if self.record.sandbox.state == SandboxState::Gone {
            self.farewell();
        }
    }

    /// An image that arrives from now on is of no use.
    fn drop_waiting(&mut self) {
        for c in self.record.containers.values_mut() {
            match &mut c.state {
                ContainerState::Pulling { reason, message } => {
                    let (reason, message) = (std::mem::take(reason), std::mem::take(message));
                    c.state = ContainerState::Waiting { reason, message, retry_at: None };
                }
                ContainerState::ImageReady { .. } => c.state = ContainerState::waiting(),
                _ => {}
            }
        }
    }

    /// App and init containers first; sidecars one by one, last started first, when those have ended.
    fn stop_all(&mut self, because: StopReason, deadline: Mono) {
        let names = |turn: &Self, sidecar: bool| -> Vec<String> {
            let all = turn.record.containers.iter();
            let live = all.filter(|(_, c)| c.state.live_id().is_some());
            live.filter(|(_, c)| (c.kind == ContainerKind::Sidecar) == sidecar).map(|(n, _)| n.clone()).collect()
        };
        let main = names(self, false);
        for name in &main {
            self.stop(name, because, deadline, format!("Stopping container {name}"));
        }
        let live = names(self, true);
        let mut in_order = self.spec.init_containers.iter().flatten().rev().map(|c| &c.name);
        let at_once = self.record.deletion.as_ref().is_some_and(|d| d.grace_s == 0);
        let last = if at_once { deadline } else { deadline.max(self.now.mono.after(LAST_GRACE)) };
        let turn = in_order.find(|n| live.contains(n)).or(live.first()).cloned();
        for name in live {
            if self.now.mono >= deadline || (main.is_empty() && turn.as_ref() == Some(&name)) {
                self.stop(&name, because, last, format!("Stopping container {name}"));
            } else {
                self.wake_at(deadline);
            }
        }
    }

    /// Decides that a container has to stop by `kill_at`; a stop decided before can only become sooner.
    pub(super) fn stop(&mut self, name: &str, because: StopReason, kill_at: Mono, message: String) {
        let Some(c) = self.record.containers.get_mut(name) else { return };
        let (id, pid, started_at) = match &mut c.state {
            ContainerState::Running { id, pid, started_at, .. } => (id.clone(), *pid, Some(*started_at)),
            ContainerState::Starting { id, .. } => (id.clone(), 0, None),
            ContainerState::Stopping { kill_at: old, because: why, .. } => {
                *old = (*old).min(kill_at);
                if because == StopReason::Deleted {
                    *why = because;
                }
                return self.press(name);
            }
            _ => return,
        };
        c.state = ContainerState::Stopping { id, pid, started_at, because, kill_at, signal: SignalState::None };
        self.container_event(name, false, "Killing", message);
        self.press(name);
    }

    /// Issues the signal that is due to a container whose stop was decided.
    pub(super) fn press(&mut self, name: &str) {
        let now = self.now.mono;
        let Some(c) = self.record.containers.get_mut(name) else { return };
        let ContainerState::Stopping { id, started_at, because, kill_at, signal, .. } = &mut c.state else { return };
        let (id, because, kill_at) = (id.clone(), *because, *kill_at);
        // A container whose start has not answered gets its signal once it is known to run, at the latest SIGKILL.
        let due = match (now >= kill_at, started_at.is_some()) {
            (true, _) => SignalState::Kill,
            (false, true) => SignalState::Stop,
            (false, false) => SignalState::None,
        };
        if due > *signal {
            *signal = due;
            let signal = match due {
                SignalState::Kill => StopSignal::Kill,
                _ => StopSignal::Stop { grace: kill_at.since(now) },
            };
            self.steps.push(Step::Kill { container: name.to_owned(), id, signal, because });
        }
        if due != SignalState::Kill {
            self.wake_at(kill_at);
        }
    }

    fn tear_down(&mut self) {
        match self.record.sandbox.state {
            SandboxState::None => self.record.sandbox.state = SandboxState::Gone,
            SandboxState::Failed { retry_at, .. } if self.now.mono < retry_at && self.record.sandbox.failures > 1 => {
                self.wake_at(retry_at);
            }
            SandboxState::Failed { .. } | SandboxState::Ready { .. } | SandboxState::Lost => {
                self.record.sandbox.state = SandboxState::TearingDown;
                self.steps.push(Step::Teardown);
            }
            SandboxState::Preparing | SandboxState::TearingDown | SandboxState::Gone => {}
        }
    }

    fn farewell(&mut self) {
        let Some(d) = &mut self.record.deletion else { return };
        if d.object_gone {
            self.steps.push(Step::Forget);
        } else if !d.reported {
            d.reported = true;
            self.steps.push(Step::ReportGone);
        }
    }

    /// Grace for a stop that is not a deletion; a failed probe may bring its own.
    pub(super) fn grace_for(&self, container: &Container, because: StopReason) -> Duration {
        let of = |probe: &Option<Probe>| probe.as_ref().and_then(|p| p.termination_grace_period_seconds);
        let own = match because {
            StopReason::Liveness => of(&container.liveness_probe),
            StopReason::Startup => of(&container.startup_probe),
            StopReason::Deleted | StopReason::SpecChanged | StopReason::PodTerminal => None,
        };
        own.and_then(|s| u64::try_from(s).ok()).map_or_else(|| self.grace(), Duration::from_secs)
    }

    /// The node may be in a hurry.
    fn grace_of_end(&self) -> Duration {
        let most = self.record.node_end.as_ref().map(|end| Duration::from_secs(end.grace_s.into()));
        most.map_or_else(|| self.grace(), |most| most.min(self.grace()))
    }

    fn grace(&self) -> Duration {
        let s = self.spec.termination_grace_period_seconds.and_then(|s| u64::try_from(s).ok());
        s.map_or(DEFAULT_GRACE, Duration::from_secs)
    }
}
