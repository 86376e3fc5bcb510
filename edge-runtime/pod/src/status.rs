//! Converts a record to `PodStatus`, which kubectl shows for this pod. Pure; the wording follows the kubelet.
//!
//! Conditions that others own (readiness gates) are read from the desired object and never reported.

mod conditions;
mod containers;
mod phase;
mod volume_mounts;

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::clock::Now;
use super::qos::qos_class;
use super::record::{ConditionMark, PodRecord, Terminal};

/// Node facts that appear in pod statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// `hostIPs`, the primary first; also the pod's own addresses with `hostNetwork`.
    pub host_ips: Vec<IpAddr>,
    /// Recursive read-only mounts can be had.
    pub recursive_read_only: bool,
    /// Name of the default OCI runtime, `crun`; empty is `runc`.
    pub runtime: String,
}

/// The status to report, and the record with the moments at which conditions changed.
/// Call after every change of the record; report when the status differs from the last reported one.
/// What the API knew before keeps its moment (K8s pkg/kubelet/status, `updateLastTransitionTime`).
pub fn publish(pod: &Pod, mut record: PodRecord, host: &HostFacts, now: &Now) -> (PodRecord, PodStatus) {
    let mut status = match &record.terminal {
        Some(end) if record.containers.is_empty() => never_ran(pod, &record, end),
        _ => of_containers(pod, &record, host),
    };
    for condition in status.conditions.iter_mut().flatten() {
        let mark = record.conditions.get(&condition.type_).filter(|m| m.status == condition.status);
        let mut known = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let known = known.find(|c| c.type_ == condition.type_ && c.status == condition.status);
        let known = known.and_then(|c| c.last_transition_time.as_ref()).map_or(now.wall, |time| time.0);
        let since = mark.map_or(known, |m| m.since);
        condition.last_transition_time = Some(time(since));
        if mark.is_none() {
            let mark = ConditionMark { status: condition.status.clone(), since };
            record.conditions.insert(condition.type_.clone(), mark);
        }
    }
    (record, status)
}

/// Status of a refused pod, or of one that ended before this node knew it: then the API's status is kept.
fn never_ran(pod: &Pod, record: &PodRecord, end: &Terminal) -> PodStatus {
    let phase = if end.succeeded { "Succeeded" } else { "Failed" };
    if let Some(known) = pod.status.as_ref().filter(|s| s.phase.as_deref() == Some(phase)) {
        return PodStatus { conditions: None, ..known.clone() };
    }
    PodStatus {
        phase: Some(phase.to_owned()),
        reason: text(&end.reason),
        message: Some(format!("Pod was rejected: {}", end.message)),
        qos_class: Some(qos_class(pod).name().to_owned()),
        start_time: Some(time(record.started_at)),
        observed_generation: pod.metadata.generation,
        ..PodStatus::default()
    }
}

fn of_containers(pod: &Pod, record: &PodRecord, host: &HostFacts) -> PodStatus {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let mut init = containers::statuses(spec, record, &host.runtime, true);
    let mut apps = containers::statuses(spec, record, &host.runtime, false);
    let recursive = host.recursive_read_only;
    volume_mounts::add(spec.init_containers.as_deref().unwrap_or_default(), &mut init, recursive);
    volume_mounts::add(&spec.containers, &mut apps, recursive);
    let phase = phase::of(spec, record, &init, &apps);
    let conditions = conditions::all(pod, spec, record, phase.of_conditions, &init, &apps);
    let ips = if spec.host_network == Some(true) { &host.host_ips } else { &record.ips };
    let ended = record.terminal.as_ref().filter(|_| matches!(phase.shown, "Succeeded" | "Failed"));
    PodStatus {
        phase: Some(phase.shown.to_owned()),
        reason: ended.and_then(|e| text(&e.reason)),
        message: ended.and_then(|e| text(&e.message)),
        conditions: Some(conditions),
        init_container_statuses: Some(init).filter(|s| !s.is_empty()),
        ephemeral_container_statuses: Some(containers::ephemeral(spec, record, &host.runtime))
            .filter(|s| !s.is_empty()),
        container_statuses: Some(apps).filter(|s| !s.is_empty()),
        host_ip: host.host_ips.first().map(IpAddr::to_string),
        host_ips: list(&host.host_ips, |ip| HostIP { ip }),
        pod_ip: ips.first().map(IpAddr::to_string),
        pod_ips: list(ips, |ip| PodIP { ip }),
        qos_class: Some(qos_class(pod).name().to_owned()),
        start_time: Some(time(record.started_at)),
        observed_generation: pod.metadata.generation,
        ..PodStatus::default()
    }
}

fn list<T>(ips: &[IpAddr], make: impl Fn(String) -> T) -> Option<Vec<T>> {
    (!ips.is_empty()).then(|| ips.iter().map(|ip| make(ip.to_string())).collect())
}

/// API times have whole seconds: finer ones would make equal statuses differ after a trip through the API.
fn time(t: Timestamp) -> Time {
    Time(Timestamp::from_second(t.as_second()).unwrap_or(t))
}

fn text(s: &str) -> Option<String> {
    (!s.is_empty()).then(|| s.to_owned())
}

#[cfg(test)]
mod tests;
