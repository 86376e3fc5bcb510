//! The decision: desired pod, record, node facts and time go in, the next steps come out.
//!
//! Ordered and idempotent: a plan's record contains the running steps, so another call does not repeat them. Follows
//! the kubelet's sync loop for everything a user can see (order, reasons, messages, back-off). [`run`] starts a pod in
//! order, [`keep`] supervises one container, [`images`] gets its images, [`stop`] ends one, [`end`] ends all, [`hold`]
//! delays the first start or a stop. This file has what several of them need.

mod end;
mod hold;
mod images;
mod keep;
mod pause;
mod resize;
pub mod resize_text;
mod run;
mod stop;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::clock::{Mono, Now};
use super::id::container_id;
use super::record::{ContainerKind, ContainerRecord, PodRecord, SandboxState, Terminal};
use super::refusal::{Admission, Refusal};
use super::spec::{grace_s, with_kinds};
use super::step::{EventDraft, Step};
use super::{ephemeral, support, transition};

/// How often a pod asks that waits for others to end.
const ADMISSION_RETRY: Duration = Duration::from_secs(1);
/// The same for one that waits for a device. It is also asked when a plugin has news.
const DEVICE_RETRY: Duration = Duration::from_secs(10);

/// How often a pod with a deadline looks whether the clock was set, and what counts as that.
const CLOCK_LOOK: Duration = Duration::from_secs(600);
const CLOCK_STEP_S: i64 = 60;

/// What the node knows beside the pod.
pub struct World<'a> {
    /// Image id (as `status.imageID` shows it) of a reference present on the node; asked with the reference
    /// exactly as the pod spells it.
    pub image: &'a dyn Fn(&str) -> Option<String>,
    /// Admission by what only the node can know (resources, ports, missing cgroup controllers); asked after
    /// [`super::support::refusal`], until the pod is admitted or refused.
    pub admit: &'a dyn Fn(&Pod) -> Admission,
    /// Refuses what a running pod requests now: `Deferred` if it does not fit beside the present pods, `Infeasible` if
    /// it never fits.
    pub resize: &'a dyn Fn(&Pod) -> Option<Refusal>,
    /// Whether a process holds the pod's stop lock; asked only while a stop is due, and only about a pod with one.
    pub stop_locked: &'a dyn Fn() -> bool,
}

/// Commit `record` first (if it differs), then execute `steps` in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub record: PodRecord,
    pub steps: Vec<Step>,
}

/// Decides the next steps. `pod` is the newest desired object, also while it is being deleted: a `deletionTimestamp` in
/// it counts even without an event.
pub fn reconcile(pod: &Pod, record: PodRecord, world: &World<'_>, now: &Now) -> Plan {
    let mut record = transition::settle_boot(record, now);
    if pod.metadata.deletion_timestamp.is_some() {
        let grace_s = grace_s(pod.metadata.deletion_grace_period_seconds);
        transition::request_deletion(&mut record, grace_s, false, now);
    }
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let ephemeral = ephemeral::containers(spec);
    let mut turn = Turn {
        pod,
        spec,
        ephemeral: &ephemeral,
        record,
        world,
        now,
        steps: Vec::new(),
        wake: None,
        held_up: false,
        stop_held: None,
    };
    turn.admit();
    turn.watch_deadline();
    if turn.record.admitted && turn.record.deletion.is_none() && turn.record.terminal.is_none() {
        turn.run();
    }
    // Running may just have found that the pod is finished.
    if turn.record.deletion.is_some() || turn.record.terminal.is_some() {
        turn.end();
    }
    if turn.stop_held.is_none() {
        // No stop is due any more.
        turn.record.stop_hold = None;
    }
    turn.sweep();
    if let Some(at) = turn.wake {
        turn.steps.push(Step::WakeAt(at));
    }
    Plan { record: turn.record, steps: turn.steps }
}

pub use keep::has_post_start;

/// The init containers have done their work: an app container of this sandbox runs or has run.
pub(super) fn initialized(record: &PodRecord) -> bool {
    let apps = || record.containers.values().filter(|c| c.kind == ContainerKind::App);
    apps().any(|c| c.state.live_id().is_some())
        || (record.sandbox.generation <= 1 && apps().any(|c| c.latest_end().is_some()))
}

/// One call of [`reconcile`] under way.
struct Turn<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    ephemeral: &'a [Container],
    record: PodRecord,
    world: &'a World<'a>,
    now: &'a Now,
    steps: Vec<Step>,
    wake: Option<Mono>,
    /// A container before this one in the list runs its `postStart` hook: no other is started until that ends.
    held_up: bool,
    /// Whether the stop lock holds the stops of this turn, once that was asked.
    stop_held: Option<bool>,
}

impl<'a> Turn<'a> {
    /// Decides whether a pod is refused permanently or admitted, and gives each container its record.
    fn admit(&mut self) {
        if !self.record.admitted {
            if let Some(ended) = ended_in_api(self.pod) {
                self.record.admitted = true;
                self.record.terminal.get_or_insert(ended);
                return;
            }
            match self.admission() {
                Admission::Waits(refusal) => {
                    let message = format!("waits for pods of this node that are ending: {}", refusal.message);
                    self.wait("WaitingForNode", message, ADMISSION_RETRY);
                }
                Admission::WaitsForDevice(message) => self.wait("WaitingForDevice", message, DEVICE_RETRY),
                Admission::Refused(Refusal { reason, message }) => {
                    self.record.admitted = true;
                    // Container states of a pod that has waited: a refused one shows none.
                    self.record.containers.clear();
                    self.steps.push(Step::Event(EventDraft::pod(true, &reason, message.clone())));
                    self.record.terminal = Some(Terminal { succeeded: false, reason, message });
                }
                Admission::Admitted => {
                    self.record.admitted = true;
                    for message in support::warnings(self.pod) {
                        self.steps.push(Step::Event(EventDraft::pod(true, "UnsupportedField", message)));
                    }
                }
            }
        }
        // Refused, or ended before this node knew it: its status has no containers to show.
        if self.record.terminal.is_some() {
            return;
        }
        let ephemeral = self.ephemeral.iter().map(|c| (c, ContainerKind::Ephemeral));
        for (container, kind) in with_kinds(self.spec).chain(ephemeral) {
            self.record.containers.entry(container.name.clone()).or_insert_with(|| ContainerRecord::new(kind));
        }
    }

    fn admission(&self) -> Admission {
        if self.record.deletion.is_some() {
            return Admission::Admitted;
        }
        support::refusal(self.pod).map_or_else(|| (self.world.admit)(self.pod), Admission::Refused)
    }

    /// Told once: the containers have no record yet.
    fn wait(&mut self, reason: &str, message: String, retry: Duration) {
        if self.record.containers.is_empty() {
            self.steps.push(Step::Event(EventDraft::pod(false, reason, message)));
        }
        self.wake_at(self.now.mono.after(retry));
    }

    /// Ends a pod that outlived `activeDeadlineSeconds`.
    fn watch_deadline(&mut self) {
        let Some(limit) = self.spec.active_deadline_seconds.and_then(|s| u64::try_from(s).ok()) else { return };
        // A deletion does not begin while its stop is held.
        let is_ending = self.record.deletion.is_some() && self.record.stop_hold.is_none();
        if self.record.terminal.is_some() || is_ending {
            return;
        }
        self.follow_clock();
        let left = limit.saturating_sub(self.record.active_before_s.into());
        let due = self.record.active_since.after(Duration::from_secs(left));
        if self.now.mono < due {
            self.wake_at(due.min(self.now.mono.after(CLOCK_LOOK)));
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline".to_owned();
        self.steps.push(Step::Event(EventDraft::pod(false, "DeadlineExceeded", message.clone())));
        self.record.terminal = Some(Terminal { succeeded: false, reason: "DeadlineExceeded".to_owned(), message });
    }

    /// Follows a clock that was set forward, and one that is back after that: after a reboot only the clock tells how long
    /// the pod was active.
    fn follow_clock(&mut self) {
        let before = Duration::from_secs(self.record.active_before_s.into());
        let active = self.now.mono.since(self.record.active_since).saturating_add(before);
        let Ok(from) = self.now.wall.checked_sub(active) else { return };
        let known = self.record.active_from.unwrap_or(self.record.started_at).as_second();
        if from.as_second().saturating_sub(known).abs() > CLOCK_STEP_S {
            let has_skipped = from.as_second().saturating_sub(self.record.started_at.as_second()) > CLOCK_STEP_S;
            self.record.active_from = has_skipped.then_some(from);
        }
    }

    /// Removes ended attempts from the node, unless a teardown does or did that.
    fn sweep(&mut self) {
        if matches!(self.record.sandbox.state, SandboxState::TearingDown | SandboxState::Gone) {
            return;
        }
        for (name, c) in &mut self.record.containers {
            for (attempt, removing) in &mut c.garbage {
                if !std::mem::replace(removing, true) {
                    self.steps.push(Step::RemoveContainer {
                        container: name.clone(),
                        attempt: *attempt,
                        id: container_id(&self.record.uid, name, *attempt),
                    });
                }
            }
        }
    }

    fn wake_at(&mut self, at: Mono) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }

    fn container_event(&mut self, name: &str, warning: bool, reason: &str, message: String) {
        let kind = self.record.containers.get(name).map_or(ContainerKind::App, |c| c.kind);
        self.steps.push(Step::Event(EventDraft::container(warning, reason, message, kind, name)));
    }
}

/// The API already shows the pod as ended: phases are never left again, so a node that forgot it (a rebuilt
/// store) must not run it a second time.
fn ended_in_api(pod: &Pod) -> Option<Terminal> {
    let status = pod.status.as_ref()?;
    let succeeded = match status.phase.as_deref()? {
        "Succeeded" => true,
        "Failed" => false,
        _ => return None,
    };
    let text = |s: &Option<String>| s.clone().unwrap_or_default();
    Some(Terminal { succeeded, reason: text(&status.reason), message: text(&status.message) })
}

#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod hook_tests;
#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
