//! Stopping one container: its `preStop` hook, the stop signal when it is its turn, SIGKILL at the end.
//!
//! As the kubelet does it (K8s pkg/kubelet/kuberuntime/kuberuntime_container.go, `killContainer`): hook and waiting
//! for others use up the grace, after them every container still has [`LAST_GRACE`].

use super::super::spec::containers;
use std::time::Duration;

use super::super::clock::Mono;
use super::super::event::HookKind;
use super::super::pause::PAUSE;
use super::super::record::{ContainerState, Hook, SignalState, StopReason};
use super::super::step::{Step, StopSignal};
use super::Turn;

/// Minimum grace period of a container, even if its hook or other containers have used up the pod's
/// (`minimumGracePeriodInSeconds`).
const LAST_GRACE: Duration = Duration::from_secs(2);

/// Whether a container that is to stop may get its signal, or lets others go first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Now,
    AfterOthers,
}

impl Turn<'_> {
    /// Decides that a container has to stop by `kill_at`; a stop decided before can only become sooner.
    pub(super) fn stop(&mut self, name: &str, because: StopReason, kill_at: Mono, message: String, order: Order) {
        let Some(c) = self.record.containers.get_mut(name) else { return };
        let (id, pid, started_at) = match &mut c.state {
            ContainerState::Running { id, pid, started_at, .. } => (id.clone(), *pid, Some(*started_at)),
            ContainerState::Starting { id, .. } => (id.clone(), 0, None),
            ContainerState::Stopping { kill_at: old, because: why, spare_until, .. } => {
                let spared = spare_until.unwrap_or_default();
                *old = (*old).min(kill_at.max(spared));
                if because == StopReason::Deleted {
                    *why = because;
                }
                return self.press(name, order);
            }
            _ => return,
        };
        // A start that is not complete needs no completing.
        c.hooks.interrupt();
        let (spare_until, signal) = (None, SignalState::None);
        c.state = ContainerState::Stopping { id, pid, started_at, because, kill_at, spare_until, signal };
        if name != PAUSE {
            self.container_event(name, false, "Killing", message);
        }
        self.press(name, order);
    }

    /// Issues the next steps for a container that is being stopped.
    pub(super) fn press(&mut self, name: &str, order: Order) {
        let now = self.now.mono;
        let container = containers(self.spec).find(|c| c.name == name);
        let hook = container.and_then(|c| c.lifecycle.as_ref()?.pre_stop.as_ref());
        let hook_wanted = hook.is_some();
        // A kubelet's command or request breaks with its container; a pause does not (K8s pkg/kubelet/kuberuntime,
        // `executePreStopHook`).
        let hook_breaks = hook.is_some_and(|hook| hook.sleep.is_none());
        let mut hook_broken = false;
        let Some(c) = self.record.containers.get_mut(name) else { return };
        let ContainerState::Stopping { id, started_at, because, kill_at, spare_until, signal, .. } = &mut c.state
        else {
            return;
        };
        let (id, because) = (id.clone(), *because);
        let late = now >= *kill_at;
        let mut due = match (late, started_at.is_some()) {
            (true, _) => SignalState::Kill,
            (false, true) => SignalState::Stop,
            // Its signal comes once it is known to run, at the latest SIGKILL.
            (false, false) => SignalState::None,
        };
        if started_at.is_some() && *signal == SignalState::None {
            if hook_wanted && !late && c.hooks.pre_stop.is_idle() {
                c.hooks.pre_stop = Hook::UnderWay;
                let limit = Some(kill_at.since(now));
                self.steps.push(Step::RunHook {
                    container: name.to_owned(),
                    id: id.clone(),
                    hook: HookKind::PreStop,
                    limit,
                });
            }
            let waits = c.hooks.pre_stop == Hook::UnderWay || order == Order::AfterOthers;
            if waits && !late {
                let at = *kill_at;
                return self.wake_at(at);
            }
            // Time is up for the hook, not yet for the container.
            if c.hooks.pre_stop == Hook::UnderWay {
                c.hooks.pre_stop = Hook::Done { at: now, error: None };
                hook_broken = hook_breaks;
            }
            if waits || !late {
                let spared = now.after(LAST_GRACE);
                *spare_until = Some(spared);
                *kill_at = (*kill_at).max(spared);
                due = SignalState::Stop;
            }
        }
        let kill_at = *kill_at;
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
        if hook_broken {
            self.container_event(name, true, "FailedPreStopHook", "PreStopHook failed".to_owned());
        }
    }
}
