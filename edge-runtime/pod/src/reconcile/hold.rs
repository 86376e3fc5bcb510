//! Holds: the first start of a pod waits for its release, and a stop waits for the pod's stop lock.
//!
//! A hold delays and never prevents: a pod that is held can be deleted, evicted and shut down, and each hold of a stop has
//! an end.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

use super::super::hold::{self, HELD, START_HELD};
use super::super::record::{
    ContainerKind, ContainerState, PodRecord, PodSource, SandboxState, StartHold, StopHold, StopReason,
};
use super::super::spec::containers;
use super::super::step::{EventDraft, PullPolicy, Step};
use super::Turn;
use super::images::pull_policy;

/// Interval of the looks at a lock. Its release causes no event.
const LOOK: Duration = Duration::from_secs(2);

impl Turn<'_> {
    /// Whether the pod's first start waits for its release. Its images are pulled meanwhile.
    pub(super) fn waits_for_release(&mut self) -> bool {
        let wanted = hold::holds_start(self.pod);
        match self.record.start_hold {
            StartHold::Open if wanted && is_new(&self.record) => {
                self.record.start_hold = StartHold::Held;
                self.steps.push(Step::Event(EventDraft::pod(false, "HeldUpgrade", START_HELD.to_owned())));
            }
            StartHold::Held if !wanted => self.record.start_hold = StartHold::Released,
            _ => {}
        }
        match self.record.start_hold {
            StartHold::Held => {
                for container in containers(self.spec) {
                    self.pull_ahead(container);
                }
                true
            }
            StartHold::Released if self.record.sandbox.state == SandboxState::None => {
                // An image that is on its way belongs to no start yet: init containers still go one by one.
                self.record.containers.values_mut().for_each(|c| c.state = ContainerState::waiting());
                false
            }
            StartHold::Open | StartHold::Released => false,
        }
    }

    /// Requests the image of a container that may not start yet, until it was there once.
    fn pull_ahead(&mut self, container: &Container) {
        let reference = container.image.clone().unwrap_or_default();
        let policy = pull_policy(&reference, container.image_pull_policy.as_deref());
        let Some(c) = self.record.containers.get_mut(&container.name) else { return };
        if c.image != reference {
            c.image.clone_from(&reference);
            c.image_id.clear();
            c.pull_backoff = None;
            if let ContainerState::Waiting { retry_at, .. } = &mut c.state {
                *retry_at = None;
            }
        }
        match c.state {
            ContainerState::Waiting { retry_at: Some(at), .. } if self.now.mono < at => return self.wake_at(at),
            ContainerState::Waiting { .. } | ContainerState::ImageReady { .. } => {}
            _ => return,
        }
        let (reason, message) = (HELD.to_owned(), START_HELD.to_owned());
        c.state = ContainerState::Waiting { reason, message, retry_at: None };
        let is_asked = policy != PullPolicy::Never && c.image_id.is_empty();
        if is_asked && (self.world.image)(&reference).is_none() {
            self.ensure_image(container, policy, None);
        }
    }

    /// Whether the end of the pod waits for its stop lock. When it waits no longer, the grace period begins.
    pub(super) fn is_end_held(&mut self) -> bool {
        let was_held = self.record.stop_hold.is_some();
        if may_hold_end(&self.record, self.pod.metadata.deletion_grace_period_seconds) && self.is_stop_held() {
            return true;
        }
        self.record.stop_hold = None;
        let most = self.record.node_end.as_ref().map_or(u32::MAX, |end| end.grace_s);
        if let Some(deletion) = self.record.deletion.as_mut().filter(|_| was_held) {
            deletion.requested_at = self.now.mono;
            deletion.grace_s = deletion.grace_s.min(most);
        }
        false
    }

    /// Whether the pod's stop lock holds a stop that is due. Decided once a turn: what is due together stops together.
    pub(super) fn is_stop_held(&mut self) -> bool {
        if let Some(decided) = self.stop_held {
            return decided;
        }
        let held = self.look_at_lock();
        self.stop_held = Some(held);
        held
    }

    fn look_at_lock(&mut self) -> bool {
        let known = self.record.stop_hold.take();
        let limit = hold::stop_lock(self.pod).filter(|_| (self.world.stop_locked)());
        let Some(limit) = limit else { return false };
        let now = self.now;
        let (since, from) = known.as_ref().map_or((now.wall, now.mono), |hold| (hold.since, hold.from));
        // A deletion has the whole limit, also if it follows on another stop.
        let asked = self.record.deletion.as_ref().map_or(from, |deletion| deletion.requested_at);
        let due = from.max(asked).after(limit);
        if due <= now.mono {
            if known.is_some() {
                let message = "the pod's stop lock was held for the longest time that the pod allows".to_owned();
                self.steps.push(Step::Event(EventDraft::pod(true, "StopLockExpired", message)));
            }
            return false;
        }
        let until = since.checked_add(due.since(from)).unwrap_or(since);
        let held = StopHold { since, until, from };
        if known.is_none() {
            self.steps.push(Step::Event(EventDraft::pod(false, "StopHeld", held.message())));
        }
        self.record.stop_hold = Some(held);
        self.wake_at(due.min(now.mono.after(LOOK)));
        true
    }
}

/// Whether nothing of the pod was begun here, also by a daemon whose store is lost.
fn is_new(record: &PodRecord) -> bool {
    let is_untouched = record.sandbox.generation == 0 && record.sandbox.state == SandboxState::None;
    is_untouched && record.containers.values().all(|c| c.attempt == 0)
}

/// Whether the lock counts for the end of the pod: for a graceful deletion, before a container was told to stop for it.
/// Not if the node itself ends the pod, with a grace period of zero, or for an object that the API has no longer.
fn may_hold_end(record: &PodRecord, grace_s: Option<i64>) -> bool {
    let Some(deletion) = &record.deletion else { return false };
    let is_forced = grace_s == Some(0) || (deletion.object_gone && record.source == PodSource::Api);
    let live = || record.containers.values().filter(|c| c.kind != ContainerKind::Pause && c.state.live_id().is_some());
    let has_begun = live().any(|c| matches!(c.state, ContainerState::Stopping { because: StopReason::Deleted, .. }));
    record.terminal.is_none() && !is_forced && live().next().is_some() && !has_begun
}
