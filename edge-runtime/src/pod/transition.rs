//! What news does to a record. The one place where an event changes what is remembered.
//!
//! Late news cannot undo a decision: a start that is reported after its stop was decided stays a stop, and news of
//! an attempt that is not the current one changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backoff::Backoff;
use super::clock::{Mono, Now};
use super::event::{Exit, ImageFailure, PodEvent, ProbeKind, StartFailure};
use super::record::{
    ContainerKind, ContainerRecord, ContainerState, Deletion, PodRecord, ProbeResults, SandboxState, SignalState,
    Terminal, Terminated,
};

/// Pause before a start that failed for its configuration is tried again (the kubelet's sync retry).
const CONFIG_RETRY: Duration = Duration::from_secs(10);
/// Longest pause between two tries to make the sandbox.
const SANDBOX_RETRY_MAX_S: u64 = 30;
/// An image that may not be pulled can only appear by import, which is told as `DependencyChanged`.
const NEVER_PULL_RETRY: Duration = Duration::from_secs(60);

/// Exit code and reason of containers that a reboot ended, as container runtimes report them.
const REBOOT_EXIT: i32 = 255;
/// Exit code of a container whose end nobody saw, as the kubelet reports it.
const UNKNOWN_EXIT: i32 = 137;
const START_ERROR_EXIT: i32 = 128;

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
                record.sandbox.state = SandboxState::Gone;
                record.ips.clear();
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
        PodEvent::DependencyChanged => void_retries(&mut record, now),
        PodEvent::Resumed { live, sandbox_exists } => resume(&mut record, &live, sandbox_exists, now),
        PodEvent::ImageReady { container, image_id } => with(&mut record, &container, |c| {
            if let ContainerState::Pulling { reason, message } = &mut c.state {
                let (reason, message) = (std::mem::take(reason), std::mem::take(message));
                c.image_id = image_id;
                c.pull_backoff = None;
                // Reconcile finds the image known now and starts.
                c.state = ContainerState::ImageReady { reason, message };
            }
        }),
        PodEvent::ImageFailed { container, failure, message } => with(&mut record, &container, |c| {
            if let ContainerState::Pulling { .. } = c.state {
                image_failed(c, failure, message, now);
            }
        }),
        PodEvent::Started { container, id, pid, started_at } => with(&mut record, &container, |c| {
            started(c, id, pid, started_at, now);
        }),
        PodEvent::StartFailed { container, id, failure, message } => with(&mut record, &container, |c| {
            start_failed(c, &id, failure, message, now);
        }),
        PodEvent::Exited { container, id, exit } => with(&mut record, &container, |c| exited(c, &id, exit, now)),
        PodEvent::Removed { container, attempt } => with(&mut record, &container, |c| {
            c.garbage.remove(&attempt);
        }),
        PodEvent::Probe { container, id, probe, success } => with(&mut record, &container, |c| {
            if matches!(&c.state, ContainerState::Running { id: current, .. } if *current == id) {
                let verdict = match probe {
                    ProbeKind::Startup => &mut c.probes.startup,
                    ProbeKind::Readiness => &mut c.probes.readiness,
                    ProbeKind::Liveness => &mut c.probes.liveness,
                };
                *verdict = Some(success);
            }
        }),
    }
    record
}

/// Carries a record over a reboot: what ran has ended, what was under way is void, boot times start anew.
pub(super) fn settle_boot(mut record: PodRecord, now: &Now) -> PodRecord {
    if record.boot_id == *now.boot_id {
        return record;
    }
    record.boot_id = now.boot_id.to_string();
    record.active_since = now.mono;
    record.ips.clear();
    record.sandbox.failures = 0;
    record.sandbox.state = match record.sandbox.state {
        SandboxState::Gone => SandboxState::Gone,
        // The pod's folder may hold volumes, so a pod on its way out still needs its teardown.
        SandboxState::None => SandboxState::None,
        _ => SandboxState::Lost,
    };
    if let Some(d) = &mut record.deletion {
        d.requested_at = now.mono;
    }
    for c in record.containers.values_mut() {
        for removing in c.garbage.values_mut() {
            *removing = false;
        }
        // Its writable layer is on disk even though the runtime's state went with the reboot.
        if matches!(c.state, ContainerState::Running { .. } | ContainerState::Stopping { started_at: Some(_), .. }) {
            c.garbage.insert(c.attempt, false);
        }
        c.restart_backoff = None;
        c.pull_backoff = None;
        c.probes = ProbeResults::default();
        if let Some(last) = &mut c.last {
            last.finished_mono = Mono(0);
        }
        c.state = match std::mem::take(&mut c.state) {
            ContainerState::Running { id, started_at, .. } => rebooted(c.attempt, id, Some(started_at), now),
            ContainerState::Stopping { id, started_at: Some(at), .. } => rebooted(c.attempt, id, Some(at), now),
            ContainerState::Terminated(t) => ContainerState::Terminated(Terminated { finished_mono: Mono(0), ..t }),
            // Whether it had started cannot be known; its log and writable layer are made anew with the attempt.
            ContainerState::Starting { .. }
            | ContainerState::Stopping { started_at: None, .. }
            | ContainerState::ImageReady { .. }
            | ContainerState::Pulling { .. }
            | ContainerState::Waiting { .. } => ContainerState::waiting(),
        };
    }
    record
}

fn rebooted(attempt: u32, id: String, started_at: Option<jiff::Timestamp>, now: &Now) -> ContainerState {
    ContainerState::Terminated(Terminated {
        id,
        attempt,
        exit_code: REBOOT_EXIT,
        signal: None,
        reason: "Unknown".to_owned(),
        message: String::new(),
        started_at,
        finished_at: now.wall,
        finished_mono: Mono(0),
        stopped: None,
    })
}

fn with(record: &mut PodRecord, container: &str, change: impl FnOnce(&mut ContainerRecord)) {
    if let Some(c) = record.containers.get_mut(container) {
        change(c);
    }
}

fn sandbox_retry(record: &mut PodRecord, now: &Now) -> Mono {
    let delay = 1u64.checked_shl(record.sandbox.failures).unwrap_or(u64::MAX).min(SANDBOX_RETRY_MAX_S);
    record.sandbox.failures = record.sandbox.failures.saturating_add(1).min(31);
    now.mono.after(Duration::from_secs(delay))
}

/// A second request can only shorten the grace, and an object that is gone does not come back.
pub(super) fn request_deletion(record: &mut PodRecord, grace_s: u32, object_gone: bool, now: &Now) {
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

fn resume(record: &mut PodRecord, live: &BTreeMap<String, i32>, sandbox_exists: bool, now: &Now) {
    let mut any_live = false;
    for c in record.containers.values_mut() {
        for removing in c.garbage.values_mut() {
            *removing = false;
        }
        match std::mem::take(&mut c.state) {
            ContainerState::Pulling { reason, message } => {
                c.state = ContainerState::Waiting { reason, message, retry_at: None };
            }
            ContainerState::Starting { id, reason, message } => match live.get(&id) {
                Some(0) => {
                    any_live = true;
                    c.state = ContainerState::Starting { id, reason, message };
                }
                Some(pid) => {
                    any_live = true;
                    c.state = ContainerState::Running { id, pid: *pid, started_at: now.wall, since: now.mono };
                }
                None => c.state = ContainerState::Waiting { reason, message, retry_at: None },
            },
            ContainerState::Running { id, pid, started_at, since } => {
                let found = live.contains_key(&id);
                any_live |= found;
                c.state = ContainerState::Running { id: id.clone(), pid, started_at, since };
                if !found {
                    exited(c, &id, unseen_exit(now), now);
                }
            }
            ContainerState::Stopping { id, pid, started_at, because, kill_at, signal } => {
                let found = live.get(&id).copied();
                any_live |= found.is_some();
                let signal = if found.is_some() { SignalState::None } else { signal };
                let started_at = started_at.or(found.filter(|pid| *pid != 0).map(|_| now.wall));
                let pid = found.unwrap_or(pid);
                c.state = ContainerState::Stopping { id: id.clone(), pid, started_at, because, kill_at, signal };
                if found.is_none() {
                    if started_at.is_some() {
                        exited(c, &id, unseen_exit(now), now);
                    } else {
                        c.state = ContainerState::waiting();
                    }
                }
            }
            other @ (ContainerState::Waiting { .. }
            | ContainerState::ImageReady { .. }
            | ContainerState::Terminated(_)) => {
                c.state = other;
            }
        }
    }
    record.sandbox.state = match std::mem::take(&mut record.sandbox.state) {
        SandboxState::Preparing => SandboxState::Lost,
        SandboxState::TearingDown => SandboxState::Failed {
            reason: "FailedKillPod".to_owned(),
            message: "interrupted".to_owned(),
            retry_at: now.mono,
        },
        SandboxState::Ready { .. } if !sandbox_exists && !any_live => SandboxState::Lost,
        other => other,
    };
}

fn unseen_exit(now: &Now) -> Exit {
    Exit {
        code: UNKNOWN_EXIT,
        signal: None,
        oom_killed: false,
        unknown: true,
        finished_at: now.wall,
        message: String::new(),
    }
}

fn image_failed(c: &mut ContainerRecord, failure: ImageFailure, message: String, now: &Now) {
    let (reason, pause) = match failure {
        ImageFailure::Pull => {
            let b = Backoff::next(c.pull_backoff, now.mono, now.mono);
            c.pull_backoff = Some(b);
            ("ErrImagePull", Duration::from_secs(b.delay_s.into()))
        }
        ImageFailure::NeverPull => ("ErrImageNeverPull", NEVER_PULL_RETRY),
        ImageFailure::InvalidName => ("InvalidImageName", NEVER_PULL_RETRY),
        ImageFailure::Inspect => ("ImageInspectError", CONFIG_RETRY),
    };
    c.state = ContainerState::Waiting { reason: reason.to_owned(), message, retry_at: Some(now.mono.after(pause)) };
}

fn started(c: &mut ContainerRecord, id: String, pid: i32, started_at: jiff::Timestamp, now: &Now) {
    match &mut c.state {
        ContainerState::Starting { id: current, .. } if *current == id => {
            c.probes = ProbeResults::default();
            c.state = ContainerState::Running { id, pid, started_at, since: now.mono };
        }
        ContainerState::Stopping { id: current, pid: known, started_at: at, signal, .. } if *current == id => {
            *known = pid;
            if at.is_none() {
                *at = Some(started_at);
                // A signal issued before there was a process has reached nobody.
                *signal = SignalState::None;
            }
        }
        _ => {}
    }
}

fn start_failed(c: &mut ContainerRecord, id: &str, failure: StartFailure, message: String, now: &Now) {
    let stopped = match &c.state {
        ContainerState::Starting { id: current, .. } if current == id => None,
        ContainerState::Stopping { id: current, started_at: None, because, .. } if current == id => Some(*because),
        _ => return,
    };
    c.state = match failure {
        StartFailure::Run => ContainerState::Terminated(Terminated {
            id: id.to_owned(),
            attempt: c.attempt,
            exit_code: START_ERROR_EXIT,
            signal: None,
            reason: "StartError".to_owned(),
            message,
            started_at: None,
            finished_at: now.wall,
            finished_mono: now.mono,
            stopped,
        }),
        StartFailure::Config | StartFailure::Create => ContainerState::Waiting {
            reason: failure.reason().to_owned(),
            message,
            retry_at: Some(now.mono.after(CONFIG_RETRY)),
        },
    };
}

fn exited(c: &mut ContainerRecord, id: &str, exit: Exit, now: &Now) {
    let (started_at, stopped) = match &c.state {
        ContainerState::Starting { id: current, .. } if current == id => (None, None),
        ContainerState::Running { id: current, started_at, .. } if current == id => (Some(*started_at), None),
        ContainerState::Stopping { id: current, started_at, because, .. } if current == id => {
            (*started_at, Some(*because))
        }
        _ => return,
    };
    c.garbage.insert(c.attempt, false);
    let (exit_code, reason, message) = if exit.unknown {
        let message = "The container could not be located when the pod was terminated".to_owned();
        (UNKNOWN_EXIT, "ContainerStatusUnknown", message)
    } else {
        let reason = match exit.code {
            0 => "Completed",
            _ if exit.oom_killed => "OOMKilled",
            _ => "Error",
        };
        (exit.code, reason, exit.message)
    };
    c.state = ContainerState::Terminated(Terminated {
        id: id.to_owned(),
        attempt: c.attempt,
        exit_code,
        signal: exit.signal,
        reason: reason.to_owned(),
        message,
        started_at: started_at.or(Some(exit.finished_at)),
        finished_at: exit.finished_at,
        finished_mono: now.mono,
        stopped,
    });
    if c.kind == ContainerKind::Init && exit_code == 0 {
        c.restart_backoff = None;
    }
}

#[cfg(test)]
mod tests;
