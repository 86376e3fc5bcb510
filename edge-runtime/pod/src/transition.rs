//! Applies events to a record. The only place where an event changes the record.
//!
//! Late events cannot undo a decision: a start that is reported after its stop was decided stays a stop, and events of
//! another attempt change nothing.

mod containers;
mod restart;

use std::net::IpAddr;

use self::containers::{exited, hook_done, image_failed, image_ready, probed, resized, start_failed, started};
use self::restart::resume;
pub(crate) use self::restart::settle_boot;
use super::backoff::pause_after;
use super::clock::{Mono, Now};
use super::event::PodEvent;
use super::pause::PAUSE;
use super::record::{ContainerRecord, ContainerState, Deletion, PodRecord, SandboxState, StartHold, Terminal};

/// The record after `event`. Taken by value and returned, so that each state names its successor.
#[must_use]
pub fn apply(record: PodRecord, event: PodEvent, now: &Now) -> PodRecord {
    let mut record = settle_boot(record, now);
    match event {
        PodEvent::SandboxReady { ips } => sandbox_ready(&mut record, ips, now),
        PodEvent::SandboxFailed { reason, message } => {
            if record.sandbox.state == SandboxState::Preparing {
                let retry_at = sandbox_retry(&mut record, now);
                record.sandbox.state = SandboxState::Failed { reason, message, retry_at };
            }
        }
        PodEvent::TornDown => torn_down(&mut record),
        PodEvent::TeardownFailed { message } => {
            if record.sandbox.state == SandboxState::TearingDown {
                let retry_at = sandbox_retry(&mut record, now);
                record.sandbox.state = SandboxState::Failed { reason: "FailedKillPod".to_owned(), message, retry_at };
            }
        }
        PodEvent::DeletionRequested { grace_s } => request_deletion(&mut record, grace_s, false, now),
        PodEvent::ObjectGone { grace_s } => request_deletion(&mut record, grace_s, true, now),
        PodEvent::Evict { reason, message, end } => {
            // A pod that had ended keeps its own end.
            if record.terminal.is_none() {
                record.terminal = Some(Terminal { succeeded: false, reason, message });
                record.node_end = Some(end);
            }
        }
        PodEvent::Released => {
            if record.start_hold == StartHold::Held {
                record.start_hold = StartHold::Released;
            }
        }
        PodEvent::DependencyChanged => void_retries(&mut record, now),
        PodEvent::Resumed { live, sandbox_exists } => resume(&mut record, &live, sandbox_exists, now),
        PodEvent::ImageReady { container, image_id } => image_ready(&mut record, &container, image_id),
        PodEvent::ImageFailed { container, failure, message } => with(&mut record, &container, |c| {
            if let ContainerState::Pulling { .. } = c.state {
                image_failed(c, failure, message, now);
            }
        }),
        PodEvent::Prepared { container, id, user } => with(&mut record, &container, |c| {
            if c.state.live_id() == Some(&id) {
                c.user = Some(user);
            }
        }),
        PodEvent::Started { container, id, pid, started_at } => {
            with(&mut record, &container, |c| started(c, id, pid, started_at, now));
            if container == PAUSE {
                // The others wait for nothing else.
                void_retries(&mut record, now);
            }
        }
        PodEvent::StartFailed { container, id, failure, message } => with(&mut record, &container, |c| {
            start_failed(c, &id, failure, message, now);
        }),
        PodEvent::Exited { container, id, exit } => with(&mut record, &container, |c| exited(c, &id, exit, now)),
        PodEvent::Removed { container, attempt } => with(&mut record, &container, |c| {
            c.garbage.remove(&attempt);
        }),
        PodEvent::Probe { container, id, probe, success } => {
            with(&mut record, &container, |c| probed(c, &id, probe, success));
        }
        PodEvent::HookDone { container, id, hook, error } => {
            with(&mut record, &container, |c| hook_done(c, &id, hook, error, now));
        }
        PodEvent::Resized { container, id, resources, error } => {
            with(&mut record, &container, |c| resized(c, &id, resources, error, now));
        }
    }
    record
}

fn sandbox_ready(record: &mut PodRecord, ips: Vec<IpAddr>, now: &Now) {
    if record.sandbox.state == SandboxState::Preparing {
        record.sandbox.state = SandboxState::Ready { since: now.wall };
        record.sandbox.generation += 1;
        record.sandbox.failures = 0;
        record.sandbox.routed = true;
        record.ips = ips;
    }
}

fn torn_down(record: &mut PodRecord) {
    if record.sandbox.state == SandboxState::TearingDown {
        // The address stays in view: the API shows an ended pod's last one, as a kubelet does.
        record.sandbox.state = SandboxState::Gone;
        for c in record.containers.values_mut() {
            c.garbage.clear();
        }
    }
}

fn with(record: &mut PodRecord, container: &str, change: impl FnOnce(&mut ContainerRecord)) {
    if let Some(c) = record.containers.get_mut(container) {
        change(c);
    }
}

fn sandbox_retry(record: &mut PodRecord, now: &Now) -> Mono {
    let pause = pause_after(record.sandbox.failures);
    record.sandbox.failures = record.sandbox.failures.saturating_add(1).min(31);
    now.mono.after(pause)
}

/// Records a deletion request. A second one can only shorten the grace period, and a deleted object does not return. A
/// grace period of zero becomes a second (K8s pkg/kubelet/pod_workers.go, `calculateEffectiveGracePeriod`).
pub(super) fn request_deletion(record: &mut PodRecord, grace_s: u32, object_gone: bool, now: &Now) {
    let grace_s = grace_s.max(1);
    match &mut record.deletion {
        Some(d) => {
            d.grace_s = d.grace_s.min(grace_s);
            d.object_gone |= object_gone;
        }
        None => {
            record.deletion = Some(Deletion { requested_at: now.mono, grace_s, object_gone, reported: false });
        }
    }
}

fn void_retries(record: &mut PodRecord, now: &Now) {
    if let SandboxState::Failed { retry_at, .. } = &mut record.sandbox.state {
        *retry_at = (*retry_at).min(now.mono);
        record.sandbox.failures = 0;
    }
    for c in record.containers.values_mut() {
        if let ContainerState::Waiting { reason, retry_at: Some(at), .. } = &mut c.state
            && reason != CRASH_LOOP
        {
            *at = (*at).min(now.mono);
        }
    }
}

pub(super) const CRASH_LOOP: &str = "CrashLoopBackOff";

#[cfg(test)]
mod tests;
