//! Changes of a record by a reboot and by a restart of the daemon.

use std::collections::BTreeMap;

use super::super::clock::{Mono, Now};
use super::super::record::{
    ContainerState, Hooks, PodRecord, ProbeResults, Resize, SandboxState, SignalState, Terminated,
};
use super::containers::{exited, unseen_exit};

/// Before 2020-01-01 a clock does not know the time: this program did not exist then.
const CLOCK_FLOOR: i64 = 1_577_836_800;

/// Exit code and reason of containers that a reboot ended, as container runtimes report them.
const REBOOT_EXIT: i32 = 255;

/// Converts a record after a reboot: running containers have ended, unfinished steps are void, boot times restart.
pub(crate) fn settle_boot(mut record: PodRecord, now: &Now) -> PodRecord {
    if record.boot_id == *now.boot_id {
        return record;
    }
    record.boot_id = now.boot_id.to_string();
    // Only the wall clock knows how long the machine was off. A clock that was set back subtracts nothing, and one that
    // was not set when the pod started adds nothing.
    let from = record.active_from.unwrap_or(record.started_at);
    let started = Some(from.as_second()).filter(|second| *second >= CLOCK_FLOOR);
    let active = started.map_or(0, |second| now.wall.as_second().saturating_sub(second));
    record.active_before_s = record.active_before_s.max(u32::try_from(active).unwrap_or(0));
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
    record.stop_hold = None;
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
        c.hooks = Hooks::default();
        if let Some(last) = &mut c.last {
            last.finished_mono = Mono(0);
        }
        c.state = match std::mem::take(&mut c.state) {
            ContainerState::Running { id, started_at, .. } => rebooted(c.attempt, id, Some(started_at), now),
            ContainerState::Stopping { id, started_at: Some(at), .. } => rebooted(c.attempt, id, Some(at), now),
            ContainerState::Terminated(t) => ContainerState::Terminated(Terminated { finished_mono: Mono(0), ..t }),
            // Whether it had started cannot be known; its log and writable layer are made again with the attempt.
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

/// Compares the record with the running containers, and causes unfinished steps to be issued again.
pub(super) fn resume(record: &mut PodRecord, live: &BTreeMap<String, i32>, sandbox_exists: bool, now: &Now) {
    let mut any_live = false;
    for c in record.containers.values_mut() {
        for removing in c.garbage.values_mut() {
            *removing = false;
        }
        c.hooks.interrupt();
        if matches!(c.resize, Resize::UnderWay { .. }) {
            c.resize = Resize::Idle;
        }
        match std::mem::take(&mut c.state) {
            ContainerState::Pulling { reason, message, .. } => {
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
            ContainerState::Stopping { id, pid, started_at, because, kill_at, spare_until, signal } => {
                let found = live.get(&id).copied();
                any_live |= found.is_some();
                let signal = if found.is_some() { SignalState::None } else { signal };
                let started_at = started_at.or(found.filter(|pid| *pid != 0).map(|_| now.wall));
                let pid = found.unwrap_or(pid);
                c.state =
                    ContainerState::Stopping { id: id.clone(), pid, started_at, because, kill_at, spare_until, signal };
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
