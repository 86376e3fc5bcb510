//! What the cloud sent: first into the store, acknowledged when it is durable there, then to the pods.

use std::rc::Rc;

use edge_protocol::edge::{Change, EdgeFacts};
use edge_protocol::message::{ObjectKey, Position};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::Node;
use super::pods::Entry;
use crate::intake::{self, Applied};
use crate::link::LinkEvent;
use crate::pod::event::PodEvent;
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::refusal::Refusal;
use crate::pod::services;
use crate::pod::spec::{MIRROR, annotation, grace_s, termination_grace_s};
use crate::store::{Fact, StoreError};

impl Node {
    pub(super) fn take_link(&mut self, event: LinkEvent) -> Result<(), StoreError> {
        match event {
            LinkEvent::NeedFacts => self.link_facts()?,
            LinkEvent::Connected(welcome) => {
                log::info!("connected to the bridge of cluster {}", welcome.cluster);
                self.time_told(welcome.identity.map(|terms| terms.now_ms));
                self.resync.welcomed(welcome.repeat_within_ms);
                self.store.write(|writer| writer.set_fact(Fact::Cluster, &welcome.cluster))?;
                self.tell_dropped()?;
                let now = self.mono();
                self.outgoing.connected(self.store.outbox()?, now);
                self.mirrors_asked.clear();
                self.node_status.connected();
                self.ask_for_mirrors()?;
            }
            LinkEvent::Disconnected(why) => {
                log::warn!("no connection to the bridge: {why}");
                self.outgoing.disconnected();
                self.tokens_disconnected();
            }
            LinkEvent::Refused(reason, message) => log::error!("the bridge refused this node ({reason:?}): {message}"),
            LinkEvent::Changes { stream, changes } => self.take_changes(&stream, changes)?,
            LinkEvent::UpAcked(ids) => {
                self.reports_taken(&ids)?;
                self.store.write(|writer| ids.iter().try_for_each(|id| writer.acknowledged(*id)))?;
            }
            LinkEvent::UpRefused(id, reason) => {
                log::warn!("the bridge refused report {id}: {reason}");
                self.report_refused(id)?;
                self.store.write(|writer| writer.acknowledged(id))?;
            }
            LinkEvent::Token { id, answer } => self.token_answered(id, answer)?,
            LinkEvent::Stream(event) => self.take_stream(event),
        }
        Ok(())
    }

    fn link_facts(&mut self) -> Result<(), StoreError> {
        let Some(link) = &self.link else { return Ok(()) };
        let stream = self.store.fact(Fact::Stream)?;
        let seq = self.store.fact(Fact::LastSequence)?.and_then(|seq| seq.parse().ok());
        link.facts(EdgeFacts {
            agent: format!("edge-runtime/{}", env!("CARGO_PKG_VERSION")),
            cluster: self.store.fact(Fact::Cluster)?,
            position: stream.zip(seq).map(|(stream, seq)| Position { stream, seq }),
            held: self.store.held()?,
            compress: true,
            ..EdgeFacts::new(self.config.node_name.clone(), self.clock.boot_id().to_string())
        });
        Ok(())
    }

    /// One durable commit for the batch, then the acknowledgement, then its effects.
    fn take_changes(&mut self, stream: &str, changes: Vec<Change>) -> Result<(), StoreError> {
        let pods = &self.pods;
        let manifest_of = |uid: &str| serde_json::to_value(&*pods.get(uid)?.pod).ok();
        let Some(batch) = intake::commit(&mut self.store, stream, changes, &manifest_of)? else { return Ok(()) };
        for (digest, reason) in &batch.refused {
            let ObjectKey { kind, namespace, name } = &digest.key;
            log::error!("{kind} {namespace}/{name} cannot be applied: {reason}");
            if let Some(link) = &self.link {
                link.nack(&digest.key, &digest.uid, reason);
            }
        }
        if let Some(link) = &self.link {
            link.committed(batch.seq);
        }
        self.outgoing.queue(batch.reports.into_iter());
        self.backup.changed();
        for effect in batch.applied {
            match effect {
                Applied::Pod(pod, refusal) => self.pod_wanted(*pod, refusal),
                // Variables of Services are for containers that start later: nothing waits for them.
                Applied::Other(key) if key.kind == services::KIND => {}
                Applied::Other(key) => self.dependency_changed(&key.namespace),
                Applied::Gone(key, uid) => self.object_gone(&key, &uid),
            }
        }
        if batch.complete { self.listed() } else { Ok(()) }
    }

    /// The newest object of a pod bound to this node.
    pub(super) fn pod_wanted(&mut self, pod: Pod, refusal: Option<Refusal>) {
        let meta = &pod.metadata;
        let uid = meta.uid.clone().unwrap_or_default();
        if let Some(static_uid) = annotation(&pod, MIRROR) {
            self.mirror_known(&pod, static_uid, &uid);
            return;
        }
        let deletion = meta.deletion_timestamp.is_some().then(|| grace_s(meta.deletion_grace_period_seconds));
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let pod = Rc::new(pod);
        if let Some(entry) = self.pods.get_mut(&uid) {
            if entry.pod != pod && self.poison.changed(&uid) {
                log::info!("pod {namespace}/{name} has changed and is attended to again");
            }
            entry.pod = Rc::clone(&pod);
            self.pods.touch(&uid);
            self.refresh_volumes(&uid);
        } else {
            // A successor of the same name: the one before is over, whatever its tombstone does.
            let before = self.pods.by_name(&namespace, &name).map(|entry| entry.record.uid.clone());
            if let Some(before) = before {
                self.pod_gone(&before);
            }
            match self.lost_and_found(&uid) {
                Some(record) => self.adopt(Entry { refusal, ..Entry::new(pod, record) }),
                None => {
                    let mut record = PodRecord::new(&uid, &namespace, &name, PodSource::Api, &self.clock.now());
                    self.end_unattended(&pod, &mut record);
                    self.pods.insert(Entry { refusal, ..Entry::new(pod, record) });
                }
            }
        }
        if let Some(entry) = self.pods.get(&uid) {
            let pod = Rc::clone(&entry.pod);
            self.want_tokens(&uid, &pod);
        }
        if let Some(grace_s) = deletion {
            self.tell(&uid, PodEvent::DeletionRequested { grace_s });
        }
    }

    fn object_gone(&mut self, key: &ObjectKey, uid: &str) {
        if key.kind == "Pod" {
            self.mirror_gone(uid);
            self.pod_gone(uid);
        } else if key.kind != services::KIND {
            // Optional files go with it; all others stay as they are, as on a kubelet.
            self.dependency_changed(&key.namespace);
        }
    }

    /// The pod's object (or manifest file) is no more.
    pub(super) fn pod_gone(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let grace_s = termination_grace_s(&entry.pod);
        self.tell(uid, PodEvent::ObjectGone { grace_s });
    }

    /// A ConfigMap or Secret of this namespace came or changed, or, without one, a RuntimeClass.
    fn dependency_changed(&mut self, namespace: &str) {
        let here = |entry: &Entry| namespace.is_empty() || entry.record.namespace == namespace;
        let concerned = self.pods.iter().filter(|(_, entry)| here(entry));
        let uids: Vec<String> = concerned.map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.tell(&uid, PodEvent::DependencyChanged);
            self.refresh_volumes(&uid);
        }
    }

    pub(super) fn refresh_volumes(&self, uid: &str) {
        let Some(entry) = self.pods.get(uid).filter(|entry| entry.sandbox_ready()) else { return };
        let objects = |kind: &str, namespace: &str, name: &str| self.object(kind, namespace, name);
        if let Err(error) = self.launcher.refresh_volumes(&entry.pod, &entry.record.ips, &objects) {
            log::warn!("pod {}/{}: {error}", entry.record.namespace, entry.record.name);
        }
    }

    /// What volumes and environments are made from, see [`Store::lookup`](crate::store::Store::lookup).
    pub(super) fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.store.lookup(kind, namespace, name)
    }
}
