//! What news does to one container's record.

use std::time::Duration;

use super::super::backoff::Backoff;
use super::super::clock::Now;
use super::super::event::{Exit, HookKind, ImageFailure, ProbeKind, StartFailure};
use super::super::record::{
    ContainerKind, ContainerRecord, ContainerState, Hook, Hooks, PodRecord, ProbeResults, Resize, Resources,
    SignalState, Terminated, VolumeImage,
};

/// Pause before a start that failed for its configuration is tried again (the kubelet's sync retry).
const CONFIG_RETRY: Duration = Duration::from_secs(10);
/// A plugin's news is reported as `DependencyChanged`. Each try is written to the disk.
const DEVICE_RETRY: Duration = Duration::from_secs(60);
/// With `imagePullPolicy: Never` an image can only appear by import, which is reported as `DependencyChanged`.
const NEVER_PULL_RETRY: Duration = Duration::from_secs(60);

/// Pause after a resize that failed, for instance below what the container uses.
const RESIZE_RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));

/// Exit code of a container whose status is unknown, as the kubelet reports it.
const UNKNOWN_EXIT: i32 = 137;
const START_ERROR_EXIT: i32 = 128;

pub(super) fn image_ready(record: &mut PodRecord, container: &str, image_id: String) {
    let Some(c) = record.containers.get_mut(container) else { return };
    let ContainerState::Pulling { reason, message, volume } = &mut c.state else { return };
    let (reason, message) = (std::mem::take(reason), std::mem::take(message));
    let volume = volume.take();
    c.pull_backoff = None;
    c.state = match volume {
        None => {
            c.image_id = image_id;
            // Reconcile finds the image known now and starts.
            ContainerState::ImageReady { reason, message }
        }
        Some(VolumeImage { volume, .. }) => {
            // Another container that mounts it may have been sooner.
            record.image_volumes.entry(volume).or_insert(image_id);
            ContainerState::Waiting { reason, message, retry_at: None }
        }
    };
}

pub(super) fn image_failed(c: &mut ContainerRecord, failure: ImageFailure, message: String, now: &Now) {
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

pub(super) fn started(c: &mut ContainerRecord, id: String, pid: i32, started_at: jiff::Timestamp, now: &Now) {
    match &mut c.state {
        ContainerState::Starting { id: current, .. } if *current == id => {
            c.probes = ProbeResults::default();
            c.hooks = Hooks::default();
            c.state = ContainerState::Running { id, pid, started_at, since: now.mono };
        }
        ContainerState::Stopping { id: current, pid: known, started_at: at, signal, .. } if *current == id => {
            *known = pid;
            if at.is_none() {
                *at = Some(started_at);
                // A signal issued before there was a process reached no process.
                *signal = SignalState::None;
            }
        }
        _ => {}
    }
}

pub(super) fn start_failed(c: &mut ContainerRecord, id: &str, failure: StartFailure, message: String, now: &Now) {
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
        StartFailure::Config | StartFailure::Create | StartFailure::Device => {
            let pause = if failure == StartFailure::Device { DEVICE_RETRY } else { CONFIG_RETRY };
            let reason = failure.reason().to_owned();
            ContainerState::Waiting { reason, message, retry_at: Some(now.mono.after(pause)) }
        }
    };
}

pub(super) fn exited(c: &mut ContainerRecord, id: &str, exit: Exit, now: &Now) {
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

pub(super) fn probed(c: &mut ContainerRecord, id: &str, probe: ProbeKind, success: bool) {
    // For a container that is being stopped only readiness counts.
    let running = matches!(c.state, ContainerState::Running { .. });
    if c.state.live_id() == Some(id) && (running || probe == ProbeKind::Readiness) {
        let verdict = match probe {
            ProbeKind::Startup => &mut c.probes.startup,
            ProbeKind::Readiness => &mut c.probes.readiness,
            ProbeKind::Liveness => &mut c.probes.liveness,
        };
        *verdict = Some(success);
    }
}

pub(super) fn hook_done(c: &mut ContainerRecord, id: &str, hook: HookKind, error: Option<String>, now: &Now) {
    if c.state.live_id() != Some(id) {
        return;
    }
    let hook = match hook {
        HookKind::PostStart => &mut c.hooks.post_start,
        HookKind::PreStop => &mut c.hooks.pre_stop,
    };
    if *hook == Hook::UnderWay {
        *hook = Hook::Done { at: now.mono, error };
    }
}

pub(super) fn resized(c: &mut ContainerRecord, id: &str, resources: Resources, error: Option<String>, now: &Now) {
    if c.state.live_id() != Some(id) {
        return;
    }
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

/// The exit of a process whose status is unknown.
pub(super) fn unseen_exit(now: &Now) -> Exit {
    Exit {
        code: UNKNOWN_EXIT,
        signal: None,
        oom_killed: false,
        unknown: true,
        finished_at: now.wall,
        message: String::new(),
    }
}
