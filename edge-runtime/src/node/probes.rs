//! The probes of containers that run: which there are, and what their verdicts mean for the pod.

use std::net::IpAddr;

use super::context::Context;
use super::pods::Entry;
use crate::pod::clock::Mono;
use crate::pod::event::{PodEvent, ProbeKind};
use crate::pod::reconcile::has_post_start;
use crate::pod::record::ContainerState;
use crate::pod::spec::containers_of;
use crate::probe::{ProbeEvent, ProbeTarget, Supervisor};
use crate::store::StoreError;

pub(super) struct Probes(pub(super) Supervisor);

impl Probes {
    pub(super) fn take(cx: &mut Context, event: ProbeEvent) -> Result<(), StoreError> {
        let ProbeEvent { pod_uid, container, id, kind, verdict, event } = event;
        if let Some((reason, message)) = event {
            cx.warn_about_container(&pod_uid, &container, reason, message)?;
        }
        if let Some(success) = verdict {
            cx.tell(&pod_uid, PodEvent::Probe { container, id, probe: kind, success });
        }
        Ok(())
    }

    /// Makes the probes that run match what runs.
    pub(super) fn sync(&mut self, cx: &Context, uid: &str) {
        let Some(entry) = cx.pods.get(uid) else { return };
        self.0.sync(uid, &targets(entry, cx.address_of(entry)));
    }

    /// Nothing of the pod is probed any more.
    pub(super) fn stop(&mut self, uid: &str) {
        self.0.sync(uid, &[]);
    }
}

/// The probes that are to run, with the verdicts so far.
fn targets(entry: &Entry, address: IpAddr) -> Vec<ProbeTarget> {
    let mut targets = Vec::new();
    for container in containers_of(&entry.pod) {
        let Some(record) = entry.record.containers.get(&container.name) else { continue };
        let (id, started, ending) = match &record.state {
            ContainerState::Running { id, since, .. } => (id, *since, false),
            // As in the kubelet: readiness probes run until the end, the others would only disturb it.
            ContainerState::Stopping { id, started_at: Some(_), .. }
                if container.startup_probe.is_none() || record.probes.startup == Some(true) =>
            {
                (id, Mono(0), true)
            }
            _ => continue,
        };
        if has_post_start(container) && !record.hooks.post_start.is_done() {
            continue;
        }
        let mut probes = ProbeTarget::specs(container);
        probes.retain(|spec| !ending || spec.kind == ProbeKind::Readiness);
        if probes.is_empty() {
            continue;
        }
        for spec in &mut probes {
            spec.known = match spec.kind {
                ProbeKind::Startup => record.probes.startup,
                ProbeKind::Readiness => record.probes.readiness,
                ProbeKind::Liveness => record.probes.liveness,
            };
        }
        targets.push(ProbeTarget {
            pod_uid: entry.record.uid.clone(),
            container: container.name.clone(),
            id: id.clone(),
            address,
            started,
            ending,
            probes,
        });
    }
    targets
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::rc::Rc;

    use serde_json::{Value, json};

    use super::*;
    use crate::pod::clock::Now;
    use crate::pod::record::{
        ContainerKind, ContainerRecord, Hook, PodRecord, PodSource, ProbeResults, SignalState, StopReason,
    };

    const NAMES: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Readiness, ProbeKind::Liveness];

    fn container(name: &str, fields: Value) -> Value {
        let probe = json!({"tcpSocket": {"port": 80}});
        let mut container =
            json!({"name": name, "startupProbe": probe, "readinessProbe": probe, "livenessProbe": probe});
        if let (Some(all), Value::Object(fields)) = (container.as_object_mut(), fields) {
            all.extend(fields);
        }
        container
    }

    fn entry(spec: &Value, states: &[(&str, ContainerState)]) -> Entry {
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        let mut record = PodRecord::new("u", "ns", "p", PodSource::Api, &now);
        for (name, state) in states {
            let container = ContainerRecord { state: state.clone(), ..ContainerRecord::new(ContainerKind::App) };
            record.containers.insert((*name).to_owned(), container);
        }
        Entry::new(Rc::new(serde_json::from_value(json!({ "spec": spec })).unwrap()), record)
    }

    fn running(since: u64) -> ContainerState {
        let started_at = jiff::Timestamp::UNIX_EPOCH;
        ContainerState::Running { id: "i".into(), pid: 1, started_at, since: Mono(since) }
    }

    fn stopping(has_started: bool) -> ContainerState {
        ContainerState::Stopping {
            id: "i".into(),
            pid: 1,
            started_at: has_started.then_some(jiff::Timestamp::UNIX_EPOCH),
            because: StopReason::Deleted,
            kill_at: Mono(0),
            spare_until: None,
            signal: SignalState::Stop,
        }
    }

    fn found(entry: &Entry) -> Vec<ProbeTarget> {
        targets(entry, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Kinds of the probes of each target.
    fn kinds(entry: &Entry) -> Vec<Vec<ProbeKind>> {
        found(entry).iter().map(|target| target.probes.iter().map(|spec| spec.kind).collect()).collect()
    }

    #[test]
    fn running_container_has_all_its_probes_with_their_verdicts() {
        let mut entry = entry(&json!({"containers": [container("c", json!({}))]}), &[("c", running(7))]);
        entry.record.containers.get_mut("c").unwrap().probes =
            ProbeResults { startup: Some(true), readiness: Some(false), liveness: None };
        let all = found(&entry);
        let [target] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((&*target.pod_uid, &*target.container, &*target.id), ("u", "c", "i"));
        assert_eq!((target.started, target.ending), (Mono(7), false));
        let known: Vec<_> = target.probes.iter().map(|spec| (spec.kind, spec.known)).collect();
        assert_eq!(known, Vec::from_iter(NAMES.into_iter().zip([Some(true), Some(false), None])));
    }

    #[test]
    fn only_readiness_of_a_stopping_container_is_probed() {
        let spec = json!({"containers": [container("c", json!({}))]});
        let mut entry = entry(&spec, &[("c", stopping(true))]);
        assert!(kinds(&entry).is_empty(), "it has not started up");
        let probes =
            |entry: &mut Entry, startup| entry.record.containers.get_mut("c").unwrap().probes.startup = startup;
        probes(&mut entry, Some(false));
        assert!(kinds(&entry).is_empty(), "nor will it");
        probes(&mut entry, Some(true));
        assert_eq!(kinds(&entry), [[ProbeKind::Readiness]]);
        assert!(found(&entry)[0].ending);
        entry.record.containers.get_mut("c").unwrap().state = stopping(false);
        assert!(kinds(&entry).is_empty(), "no process of it was there");
    }

    #[test]
    fn container_without_probes_or_process_is_not_probed() {
        let waiting = ContainerState::waiting();
        let plain = json!({"name": "plain", "image": "i"});
        let spec = json!({"containers": [container("waits", json!({})), plain, container("unknown", json!({}))]});
        assert!(kinds(&entry(&spec, &[("waits", waiting), ("plain", running(0))])).is_empty());
        let spec = json!({"containers": [{"name": "plain", "livenessProbe": {"tcpSocket": {"port": 80}}}]});
        assert!(kinds(&entry(&spec, &[("plain", stopping(true))])).is_empty(), "its liveness is of no interest");
        assert!(kinds(&entry(&json!({"containers": []}), &[])).is_empty());
    }

    #[test]
    fn probes_wait_for_the_post_start_hook() {
        let fields = json!({"lifecycle": {"postStart": {"exec": {"command": ["x"]}}}});
        let mut entry = entry(&json!({"containers": [container("c", fields)]}), &[("c", running(0))]);
        let hooks = [(Hook::Idle, 0), (Hook::UnderWay, 0), (Hook::Done { at: Mono(1), error: None }, 1)];
        for (hook, count) in hooks {
            entry.record.containers.get_mut("c").unwrap().hooks.post_start = hook.clone();
            assert_eq!(kinds(&entry).len(), count, "{hook:?}");
        }
    }

    #[test]
    fn sidecars_are_probed_beside_containers() {
        let spec = json!({
            "initContainers": [container("side", json!({"restartPolicy": "Always"}))],
            "containers": [container("c", json!({}))],
        });
        let entry = entry(&spec, &[("side", running(0)), ("c", running(0))]);
        assert_eq!(kinds(&entry), [NAMES, NAMES]);
    }
}
