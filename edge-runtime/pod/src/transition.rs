//! What news does to a record. The one place where an event changes what is remembered.
//!
//! Late news cannot undo a decision: a start that is reported after its stop was decided stays a stop, and news of
//! an attempt that is not the current one changes nothing.

mod containers;
mod restart;

use std::time::Duration;

use self::containers::{exited, image_failed, image_ready, start_failed, started};
use self::restart::resume;
pub(crate) use self::restart::settle_boot;
use super::backoff::pause_after;
use super::clock::{Mono, Now};
use super::event::{HookKind, PodEvent, ProbeKind};
use super::pause::PAUSE;
use super::record::{ContainerRecord, ContainerState, Deletion, Hook, PodRecord, Resize, SandboxState, Terminal};

/// Pause after a resize that failed, for instance below what the container uses.
const RESIZE_RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));

/// The record after `event`. Taken by value and returned, so that each state names its successor.
#[must_use]
pub fn apply(record: PodRecord, event: PodEvent, now: &Now) -> PodRecord {
    let mut record = settle_boot(record, now);
    match event {
        PodEvent::SandboxReady { ips } => {
            if record.sandbox.state == SandboxState::Preparing {
                record.sandbox.state = SandboxState::Ready { since: now.wall };
                record.sandbox.generation += 1;
                record.sandbox.failures = 0;
                record.ips = ips;
            }
        }
        PodEvent::SandboxFailed { reason, message } => {
            if record.sandbox.state == SandboxState::Preparing {
                let retry_at = sandbox_retry(&mut record, now);
                record.sandbox.state = SandboxState::Failed { reason, message, retry_at };
            }
        }
        PodEvent::TornDown => {
            if record.sandbox.state == SandboxState::TearingDown {
                // The address stays in view: the API shows an ended pod's last one, as a kubelet does.
                record.sandbox.state = SandboxState::Gone;
                for c in record.containers.values_mut() {
                    c.garbage.clear();
                }
            }
        }
        PodEvent::TeardownFailed { message } => {
            if record.sandbox.state == SandboxState::TearingDown {
                let retry_at = sandbox_retry(&mut record, now);
                record.sandbox.state = SandboxState::Failed { reason: "FailedKillPod".to_owned(), message, retry_at };
            }
        }
        PodEvent::DeletionRequested { grace_s } => request_deletion(&mut record, grace_s, false, now),
        PodEvent::ObjectGone { grace_s } => request_deletion(&mut record, grace_s, true, now),
        PodEvent::Fail { reason, message } => {
            record.terminal.get_or_insert(Terminal { succeeded: false, reason, message });
        }
        PodEvent::Evict { reason, message, end } => {
            // One that had ended keeps its own end.
            if record.terminal.is_none() {
                record.terminal = Some(Terminal { succeeded: false, reason, message });
                record.node_end = Some(end);
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
        PodEvent::Probe { container, id, probe, success } => with(&mut record, &container, |c| {
            // Of one that is being stopped only the readiness counts.
            let running = matches!(c.state, ContainerState::Running { .. });
            if c.state.live_id() == Some(&*id) && (running || probe == ProbeKind::Readiness) {
                let verdict = match probe {
                    ProbeKind::Startup => &mut c.probes.startup,
                    ProbeKind::Readiness => &mut c.probes.readiness,
                    ProbeKind::Liveness => &mut c.probes.liveness,
                };
                *verdict = Some(success);
            }
        }),
        PodEvent::HookDone { container, id, hook, error } => with(&mut record, &container, |c| {
            if c.state.live_id() == Some(&*id) {
                let hook = match hook {
                    HookKind::PostStart => &mut c.hooks.post_start,
                    HookKind::PreStop => &mut c.hooks.pre_stop,
                };
                if *hook == Hook::UnderWay {
                    *hook = Hook::Done { at: now.mono, error };
                }
            }
        }),
        PodEvent::Resized { container, id, resources, error } => with(&mut record, &container, |c| {
            if c.state.live_id() == Some(&*id) {
                c.resize = match (error, &c.resize) {
                    (None, _) => {
                        c.resources = Some(resources);
                        Resize::Idle
                    }
                    (Some(message), before) => {
                        let failures = if let Resize::UnderWay { failures, .. } = before { *failures } else { 0 };
                        let pause = RESIZE_RETRY.0.saturating_mul(1 << failures.min(8)).min(RESIZE_RETRY.1);
                        let (retry_at, failures) = (now.mono.after(pause), failures.saturating_add(1));
                        Resize::Failed { message, retry_at, failures }
                    }
                };
            }
        }),
    }
    record
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

/// A second request can only shorten the grace, and an object that is gone does not come back. No grace at all is a
/// second (K8s pkg/kubelet/pod_workers.go, `calculateEffectiveGracePeriod`).
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
