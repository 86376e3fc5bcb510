//! What the cloud sent: first into the store, acknowledged when it is durable there, then to the pods.

use std::rc::Rc;

use edge_protocol::edge::Change;
use edge_protocol::message::ObjectKey;
use k8s_openapi::api::core::v1::Pod;

use super::Node;
use super::pods::Entry;
use super::static_pods;
use crate::intake::{self, Applied};
use crate::pod::event::PodEvent;
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::refusal::Refusal;
use crate::pod::services;
use crate::pod::spec::{MIRROR, annotation, grace_s};
use crate::store::StoreError;

impl Node {
    /// One durable commit for the batch, then the acknowledgement, then its effects.
    pub(super) fn take_changes(&mut self, stream: &str, changes: Vec<Change>) -> Result<(), StoreError> {
        let pods = &self.cx.pods;
        let manifest_of = |uid: &str| serde_json::to_value(&*pods.get(uid)?.pod).ok();
        let Some(batch) = intake::commit(&mut self.cx.store, stream, changes, &manifest_of)? else { return Ok(()) };
        for (digest, reason) in &batch.refused {
            let ObjectKey { kind, namespace, name } = &digest.key;
            log::error!("{kind} {namespace}/{name} cannot be applied: {reason}");
            if let Some(link) = &self.cx.link {
                link.nack(&digest.key, &digest.uid, reason);
            }
        }
        if let Some(link) = &self.cx.link {
            link.committed(batch.seq);
        }
        self.cx.outgoing.queue(batch.reports.into_iter());
        self.backup.changed();
        for effect in batch.applied {
            match effect {
                Applied::Pod(pod, refusal) => self.pod_wanted(*pod, refusal)?,
                // Variables of Services are for containers that start later: nothing waits for them.
                Applied::Other(key) if key.kind == services::KIND => {}
                Applied::Other(key) if self.services.take(&self.cx, &key) || self.policies.take(&self.cx, &key) => {}
                Applied::Other(key) if self.neighbours.take(&self.cx, &key) || self.devices.take(&key) => {}
                Applied::Other(key) if self.orders.take(&key) => {}
                Applied::Other(key) => self.dependency_changed(&key.namespace),
                Applied::Gone(key, uid) => {
                    if !self.orders.gone(&key) && !self.devices.gone(&mut self.cx, &key, &uid)? {
                        self.object_gone(&key, &uid)?;
                    }
                }
            }
        }
        if batch.complete { self.listed() } else { Ok(()) }
    }

    /// The newest object of a pod bound to this node.
    pub(super) fn pod_wanted(&mut self, pod: Pod, refusal: Option<Refusal>) -> Result<(), StoreError> {
        let meta = &pod.metadata;
        let uid = meta.uid.clone().unwrap_or_default();
        if let Some(static_uid) = annotation(&pod, MIRROR) {
            return static_pods::mirror_known(&mut self.cx, &pod, static_uid);
        }
        let deletion = meta.deletion_timestamp.is_some().then(|| grace_s(meta.deletion_grace_period_seconds));
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let pod = Rc::new(pod);
        if let Some(entry) = self.cx.pods.get_mut(&uid) {
            // As JSON: the code that compares all types of a pod would be for this case alone.
            let differs = || serde_json::to_value(&*entry.pod).ok() != serde_json::to_value(&*pod).ok();
            if self.crash_loop.skips(&uid) && differs() && self.crash_loop.changed(&uid) {
                log::info!("pod {namespace}/{name} has changed and is attended to again");
            }
            entry.pod = Rc::clone(&pod);
            self.cx.pods.touch(&uid);
            self.refresh_volumes(&uid);
        } else {
            // A successor of the same name: the one before is over, whatever its tombstone does.
            let before = self.cx.pods.by_name(&namespace, &name).map(|entry| entry.record.uid.clone());
            if let Some(before) = before {
                self.cx.pod_gone(&before);
            }
            match self.lost_and_found(&uid)? {
                Some(record) => self.adopt(Entry { refusal, ..Entry::new(pod, record) })?,
                None => {
                    let mut record = PodRecord::new(&uid, &namespace, &name, PodSource::Api, &self.cx.clock.now());
                    self.end_unattended(&pod, &mut record);
                    self.cx.pods.insert(Entry { refusal, ..Entry::new(pod, record) });
                }
            }
        }
        if let Some(entry) = self.cx.pods.get(&uid) {
            let pod = Rc::clone(&entry.pod);
            self.tokens.want(&self.cx, &uid, &pod);
        }
        if let Some(grace_s) = deletion {
            self.cx.tell(&uid, PodEvent::DeletionRequested { grace_s });
        }
        Ok(())
    }

    fn object_gone(&mut self, key: &ObjectKey, uid: &str) -> Result<(), StoreError> {
        if key.kind == "Pod" {
            self.static_pods.mirror_gone(&mut self.cx, uid)?;
            self.cx.pod_gone(uid);
            // Its token is void from now on, and not after the turns of others.
            self.local_api.look_at_pod(&self.cx, &self.tokens, uid);
        } else if key.kind != services::KIND
            && !self.services.take(&self.cx, key)
            && !self.neighbours.take(&self.cx, key)
            && !self.policies.take(&self.cx, key)
        {
            // Optional files go with it; all others stay as they are, as on a kubelet.
            self.dependency_changed(&key.namespace);
        }
        Ok(())
    }

    /// A ConfigMap or Secret of this namespace came or changed, or, without one, a RuntimeClass or CSIDriver. Secrets of CSI
    /// volumes may be of other namespaces.
    fn dependency_changed(&mut self, namespace: &str) {
        let kept = &self.plugins.volumes.kept;
        let here =
            |entry: &Entry| namespace.is_empty() || entry.record.namespace == namespace || kept.has(&entry.record.uid);
        for uid in self.cx.pods.uids(here) {
            self.cx.tell(&uid, PodEvent::DependencyChanged);
            self.refresh_volumes(&uid);
        }
    }

    pub(super) fn refresh_volumes(&self, uid: &str) {
        let Some(entry) = self.cx.pods.get(uid).filter(|entry| entry.sandbox_ready()) else { return };
        if let Err(error) = self.launch.sandboxes.refresh_volumes(&entry.pod, &entry.record.ips, &self.cx.objects()) {
            log::warn!("pod {}/{}: {error}", entry.record.namespace, entry.record.name);
        }
    }

    /// Stores the tokens that the last news had, and gives them to their pods.
    pub(super) fn keep_tokens(&mut self) -> Result<(), StoreError> {
        for uid in self.tokens.keep(&mut self.cx)? {
            // A pod may use a token as soon as it can read it.
            self.local_api.look_at_pod(&self.cx, &self.tokens, &uid);
            self.local_api.step();
            self.refresh_volumes(&uid);
        }
        Ok(())
    }

    /// Makes the static pods match their folder.
    pub(super) fn scan_manifests(&mut self) -> Result<(), StoreError> {
        for pod in self.static_pods.scan(&mut self.cx)? {
            self.begin_static(pod)?;
        }
        self.static_pods.ask_for_mirrors(&mut self.cx)
    }

    /// The pod of a manifest.
    fn begin_static(&mut self, pod: Pod) -> Result<(), StoreError> {
        let meta = &pod.metadata;
        let uid = meta.uid.clone().unwrap_or_default();
        if self.cx.pods.contains(&uid) || self.runs_unattended(&uid) {
            return Ok(());
        }
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        if self.cx.pods.by_name(&namespace, &name).is_some() {
            // Its predecessor still ends; the folder is read again when that is forgotten.
            return Ok(());
        }
        log::info!("static pod {namespace}/{name}");
        let mut record = PodRecord::new(&uid, &namespace, &name, PodSource::Static, &self.cx.clock.now());
        self.end_unattended(&pod, &mut record);
        let manifest = serde_json::to_value(&pod).unwrap_or_default();
        self.cx.store.write_durable(|writer| {
            writer.put_pod(&record)?;
            writer.put_manifest(&uid, &manifest)
        })?;
        self.cx.pods.insert(Entry::new(Rc::new(pod), record));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
