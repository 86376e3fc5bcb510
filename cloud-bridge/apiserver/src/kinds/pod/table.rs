//! The row of a pod. STATUS is a summary of the container statuses, not the phase.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, human_duration, name, or_none};
use apimachinery::json::{by_text, flag, integer, items, present, text};

/// Table of pods.
pub(crate) const TABLE: Table<9> = Table {
    columns: [
        NAME,
        ("Ready", "string", 0, "Ready containers of all containers."),
        ("Status", "string", 0, "The aggregate status of the containers in this pod."),
        ("Restarts", "string", 0, "How often containers of this pod were restarted, and when last."),
        AGE,
        ("IP", "string", 1, "Address of the pod."),
        ("Node", "string", 1, "Node on which the pod is."),
        ("Nominated Node", "string", 1, "Node on which the pod may be placed once others have left it."),
        ("Readiness Gates", "string", 1, "Readiness gates that are true of all gates."),
    ],
    row,
};

/// The cells of one pod.
fn row(pod: &Value, now: Timestamp) -> [Value; 9] {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let summary = summary(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, human_duration(now.as_second() - last.as_second()))
        }
        _ => summary.restarts.to_string(),
    };
    let ip = items(status, "podIPs").first().map_or(text(status, "podIP"), |ip| text(ip, "ip"));
    [
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now),
        or_none(ip),
        or_none(text(spec, "nodeName")),
        or_none(text(status, "nominatedNodeName")),
        readiness_gates(spec, status).into(),
    ]
}

#[derive(Default)]
struct Summary {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
}

impl Summary {
    fn count(&mut self, status: &Value) {
        self.restarts += integer(status, "restartCount").unwrap_or_default();
        self.last_restart = self.last_restart.max(last_end(status));
    }
}

fn last_end(status: &Value) -> Option<Timestamp> {
    text(&status["lastState"]["terminated"], "finishedAt").parse().ok()
}

fn summary(pod: &Value) -> Summary {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let phase = text(status, "phase");
    let conditions = items(status, "conditions");
    let mut out = Summary {
        total: items(spec, "containers").len(),
        reason: match text(status, "reason") {
            "" => phase.to_owned(),
            reason => reason.to_owned(),
        },
        ..Summary::default()
    };
    if conditions.iter().any(|c| text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated") {
        out.reason = "SchedulingGated".to_owned();
    }
    let sidecars: HashSet<&str> = items(spec, "initContainers")
        .iter()
        .filter(|c| text(c, "restartPolicy") == "Always")
        .map(|c| text(c, "name"))
        .collect();
    out.total += sidecars.len();

    let mut restartable = Summary::default();
    let initializing = init_containers(&mut out, &mut restartable, spec, status, &sidecars);
    let initialized = conditions.iter().any(|c| text(c, "type") == "Initialized" && text(c, "status") == "True");
    if !initializing || initialized {
        out.restarts = restartable.restarts;
        out.last_restart = restartable.last_restart;
        containers(&mut out, status, conditions);
    }

    if !text(&pod["metadata"], "deletionTimestamp").is_empty() {
        if text(status, "reason") == "NodeLost" {
            out.reason = "Unknown".to_owned();
        } else if !["Failed", "Succeeded"].contains(&phase) {
            out.reason = "Terminating".to_owned();
        }
    }
    out
}

/// Reads init containers in order up to the first that is not done; true if there is one.
fn init_containers(
    out: &mut Summary,
    restartable: &mut Summary,
    spec: &Value,
    status: &Value,
    sidecars: &HashSet<&str>,
) -> bool {
    let total = items(spec, "initContainers").len();
    for (i, container) in items(status, "initContainerStatuses").iter().enumerate() {
        out.count(container);
        let sidecar = sidecars.contains(text(container, "name"));
        if sidecar {
            restartable.count(container);
        }
        let state = &container["state"];
        let ended = present(state, "terminated");
        if ended.is_some_and(|e| integer(e, "exitCode").unwrap_or_default() == 0) {
            continue;
        }
        if sidecar && flag(container, "started") {
            out.ready += usize::from(flag(container, "ready"));
            continue;
        }
        let waiting = text(&state["waiting"], "reason");
        out.reason = match ended {
            Some(ended) => format!("Init:{}", end_reason(ended)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{i}/{total}"),
        };
        return true;
    }
    false
}

fn containers(out: &mut Summary, status: &Value, conditions: &[Value]) {
    let mut running = false;
    let mut error = None;
    for container in items(status, "containerStatuses").iter().rev() {
        out.count(container);
        let state = &container["state"];
        let waiting = text(&state["waiting"], "reason");
        if !waiting.is_empty() {
            out.reason = waiting.to_owned();
        } else if let Some(ended) = present(state, "terminated") {
            out.reason = end_reason(ended);
            if integer(ended, "exitCode").unwrap_or_default() != 0 {
                error = Some(out.reason.clone());
            }
        } else if flag(container, "ready") && present(state, "running").is_some() {
            running = true;
            out.ready += 1;
        }
    }
    if out.reason == "Completed" {
        let ready = conditions.iter().any(|c| text(c, "type") == "Ready" && text(c, "status") == "True");
        if running && ready {
            out.reason = "Running".to_owned();
        } else if let Some(error) = error {
            out.reason = error;
        } else if running {
            out.reason = "NotReady".to_owned();
        }
    }
}

fn end_reason(ended: &Value) -> String {
    match (text(ended, "reason"), integer(ended, "signal").unwrap_or_default()) {
        ("", 0) => format!("ExitCode:{}", integer(ended, "exitCode").unwrap_or_default()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(spec: &Value, status: &Value) -> String {
    let gates = items(spec, "readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let conditions = by_text(items(status, "conditions"), "type");
    let is_true =
        |gate: &&Value| conditions.get(text(gate, "conditionType")).is_some_and(|one| text(one, "status") == "True");
    format!("{}/{}", gates.iter().filter(is_true).count(), gates.len())
}
