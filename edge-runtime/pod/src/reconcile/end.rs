//! Bringing a pod down: its containers in order, teardown, farewell. How one container is stopped is in `stop`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

use super::super::clock::Mono;
use super::super::record::{ContainerKind, ContainerState, SandboxState, StopReason};
use super::super::spec::grace_s;
use super::super::step::Step;
use super::Turn;
use super::stop::Order;

impl Turn<'_> {
    pub(super) fn end(&mut self) {
        self.drop_waiting();
        if self.is_end_held() {
            return;
        }
        let because = if self.record.deletion.is_some() { StopReason::Deleted } else { StopReason::PodTerminal };
        let deadline = match &self.record.deletion {
            Some(d) => d.requested_at.after(Duration::from_secs(d.grace_s.into())),
            None => self.now.mono.after(self.grace_of_end()),
        };
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
                ContainerState::Pulling { reason, message, .. } => {
                    let (reason, message) = (std::mem::take(reason), std::mem::take(message));
                    c.state = ContainerState::Waiting { reason, message, retry_at: None };
                }
                ContainerState::ImageReady { .. } => c.state = ContainerState::waiting(),
                _ => {}
            }
        }
    }

    /// Begins the end of all containers. App and init containers get the signal first. When those have ended, sidecars
    /// get it one by one, last started first.
    fn stop_all(&mut self, because: StopReason, deadline: Mono) {
        let live = |kind: bool| {
            let all = self.record.containers.iter().filter(|(_, c)| c.state.live_id().is_some());
            all.filter(move |(_, c)| (c.kind == ContainerKind::Pause) == kind)
        };
        // The holder of the pid namespace is stopped last: its end kills the others.
        let live = if live(false).next().is_some() { live(false) } else { live(true) };
        let (sidecars, main): (Vec<_>, Vec<_>) = live.partition(|(_, c)| c.kind == ContainerKind::Sidecar);
        let names = |all: Vec<(&String, _)>| all.into_iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let (main, sidecars) = (names(main), names(sidecars));
        let mut in_order = self.spec.init_containers.iter().flatten().rev().map(|c| &c.name);
        let next = in_order.find(|n| sidecars.contains(n)).or(sidecars.first()).filter(|_| main.is_empty()).cloned();
        for name in main.iter().chain(&sidecars) {
            let its_turn = main.contains(name) || next.as_ref() == Some(name);
            let order = if its_turn { Order::Now } else { Order::AfterOthers };
            self.stop(name, because, deadline, format!("Stopping container {name}"), order);
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
            StopReason::Deleted | StopReason::SpecChanged | StopReason::PodTerminal | StopReason::PostStartHook => None,
        };
        own.map_or_else(|| self.grace(), |own| Duration::from_secs(grace_s(Some(own)).into()))
    }

    /// The node may be in a hurry.
    fn grace_of_end(&self) -> Duration {
        let most = self.record.node_end.as_ref().map(|end| Duration::from_secs(end.grace_s.into()));
        most.map_or_else(|| self.grace(), |most| most.min(self.grace()))
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(grace_s(self.spec.termination_grace_period_seconds).into())
    }
}
