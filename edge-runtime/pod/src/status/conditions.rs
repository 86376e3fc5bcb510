//! The pod conditions a node owns, with the kubelet's reasons and messages.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec};

use super::super::hold::{HELD, START_HELD};
use super::super::record::{ContainerKind, PodRecord, Resize, SandboxState, StartHold};
use super::super::spec::kind_in_init;
use super::text;

/// Type of the condition of a pod whose stop lock holds a stop.
const STOP_HELD: &str = "StopHeld";

/// Status, reason and message of one condition.
#[derive(Clone)]
struct Verdict {
    ok: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn of(ok: bool) -> Self {
        Self { ok, reason: "", message: String::new() }
    }

    fn not(reason: &'static str, message: String) -> Self {
        Self { ok: false, reason, message }
    }
}

pub(super) fn all(
    pod: &Pod,
    spec: &PodSpec,
    record: &PodRecord,
    phase: &str,
    init: &[ContainerStatus],
    apps: &[ContainerStatus],
) -> Vec<PodCondition> {
    let sandbox = matches!(record.sandbox.state, SandboxState::Ready { .. });
    let containers_ready = containers_ready(spec, phase, init, apps);
    let ready = if containers_ready.ok { gates(pod, spec) } else { containers_ready.clone() };
    let verdicts = [
        ("PodReadyToStartContainers", Verdict::of(sandbox)),
        ("Initialized", initialized(spec, phase, init, apps)),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", Verdict::of(true)),
    ];
    let disrupted = record.terminal.as_ref().filter(|_| record.node_end.as_ref().is_some_and(|end| end.disruption));
    let disrupted = disrupted.map(|end| {
        let message = end.message.clone();
        ("DisruptionTarget", Verdict { ok: true, reason: "TerminationByKubelet", message })
    });
    verdicts
        .into_iter()
        .chain(disrupted)
        .chain(resizing(record))
        .chain(held(record))
        .map(|(type_, v)| PodCondition {
            type_: type_.to_owned(),
            status: if v.ok { "True" } else { "False" }.to_owned(),
            reason: text(v.reason),
            message: text(&v.message),
            observed_generation: pod.metadata.generation,
            ..PodCondition::default()
        })
        .collect()
}

/// Present only while a resize waits for room, or is under way.
fn resizing(record: &PodRecord) -> Option<(&'static str, Verdict)> {
    if record.terminal.is_some() || record.deletion.is_some() {
        return None;
    }
    if let Some(pending) = &record.resize_pending {
        let reason = if pending.reason == "Infeasible" { "Infeasible" } else { "Deferred" };
        return Some(("PodResizePending", Verdict { ok: true, reason, message: pending.message.clone() }));
    }
    let under_way = record.containers.values().find_map(|c| match &c.resize {
        Resize::Idle => None,
        Resize::UnderWay { message, .. } if message.is_empty() => Some(Verdict::of(true)),
        Resize::UnderWay { message, .. } | Resize::Failed { message, .. } => {
            Some(Verdict { ok: true, reason: "Error", message: message.clone() })
        }
    });
    under_way.map(|verdict| ("PodResizeInProgress", verdict))
}

/// Holds of the pod's start and stop. Other clients see the end of a hold, too: a condition that was reported once becomes
/// False. A pod that is never held has neither.
fn held(record: &PodRecord) -> impl Iterator<Item = (&'static str, Verdict)> {
    let ends = record.terminal.is_some() || record.deletion.is_some();
    let start = match record.start_hold {
        StartHold::Open => None,
        StartHold::Held if !ends => {
            Some(Verdict { ok: true, reason: "HoldUpgradeEnabled", message: START_HELD.to_owned() })
        }
        StartHold::Held | StartHold::Released => Some(Verdict::of(false)),
    };
    let stop = match &record.stop_hold {
        Some(hold) => Some(Verdict { ok: true, reason: "StopLocked", message: hold.message() }),
        None => record.conditions.contains_key(STOP_HELD).then(|| Verdict::of(false)),
    };
    start.map(|verdict| (HELD, verdict)).into_iter().chain(stop.map(|verdict| (STOP_HELD, verdict)))
}

fn containers_ready(spec: &PodSpec, phase: &str, init: &[ContainerStatus], apps: &[ContainerStatus]) -> Verdict {
    match phase {
        "Succeeded" => return Verdict::not("PodCompleted", String::new()),
        "Failed" => return Verdict::not("PodFailed", String::new()),
        _ => {}
    }
    let sidecars = spec.init_containers.iter().flatten().zip(init);
    let sidecars = sidecars.filter(|(c, _)| kind_in_init(c) == ContainerKind::Sidecar).map(|(_, s)| s);
    let unready: Vec<&str> = sidecars.chain(apps).filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
    match unready.is_empty() {
        true => Verdict::of(true),
        false => Verdict::not("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))),
    }
}

fn initialized(spec: &PodSpec, phase: &str, init: &[ContainerStatus], apps: &[ContainerStatus]) -> Verdict {
    if phase == "Succeeded" {
        return Verdict { ok: true, reason: "PodCompleted", message: String::new() };
    }
    let has_run = |s: &ContainerStatus| {
        s.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    if apps.iter().any(has_run) {
        return Verdict::of(true);
    }
    let done = |kind: ContainerKind, s: &ContainerStatus| match kind {
        ContainerKind::Sidecar => s.started == Some(true),
        ContainerKind::Init | ContainerKind::App | ContainerKind::Ephemeral | ContainerKind::Pause => s.ready,
    };
    let all = spec.init_containers.iter().flatten().zip(init);
    let open: Vec<&str> = all.filter(|(c, s)| !done(kind_in_init(c), s)).map(|(c, _)| c.name.as_str()).collect();
    match open.is_empty() {
        true => Verdict::of(true),
        false => {
            let message = format!("containers with incomplete status: [{}]", open.join(" "));
            Verdict::not("ContainersNotInitialized", message)
        }
    }
}

/// Readiness gates: conditions that other controllers set on the object.
fn gates(pod: &Pod, spec: &PodSpec) -> Verdict {
    let known = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let complaint = |gate: &str| match known.iter().find(|c| c.type_ == gate) {
        None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
        Some(c) if c.status != "True" => {
            Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {}", c.status))
        }
        Some(_) => None,
    };
    let open: Vec<String> =
        spec.readiness_gates.iter().flatten().filter_map(|g| complaint(&g.condition_type)).collect();
    match open.is_empty() {
        true => Verdict::of(true),
        false => Verdict::not("ReadinessGatesNotReady", open.join(", ")),
    }
}
