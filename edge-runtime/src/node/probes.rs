//! The probes of containers that run: which there are, and what their verdicts mean for the pod.

use super::context::Context;
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
        let address = cx.address_of(entry);
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
                pod_uid: uid.to_owned(),
                container: container.name.clone(),
                id: id.clone(),
                address,
                started,
                ending,
                probes,
            });
        }
        self.0.sync(uid, &targets);
    }

    /// Nothing of the pod is probed any more.
    pub(super) fn stop(&mut self, uid: &str) {
        self.0.sync(uid, &[]);
    }
}
