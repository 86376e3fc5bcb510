//! What the cloud sent: first into the store, acknowledged when it is durable there, then to the pods.

use std::rc::Rc;

use edge_protocol::edge::{Change, EdgeFacts};
use edge_protocol::message::{ObjectKey, Position};
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::{POLICIES, Wants};
use k8s_openapi::api::core::v1::Pod;

use super::Node;
use super::pods::Entry;
use super::static_pods;
use super::streams::Backend;
use crate::intake::{self, Applied};
use crate::link::LinkEvent;
use crate::pod::event::PodEvent;
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::refusal::Refusal;
use crate::pod::services;
use crate::pod::spec::{MIRROR, annotation, grace_s};
use crate::store::{Fact, StoreError};

impl Node {
    pub(super) fn take_link(&mut self, event: LinkEvent) -> Result<(), StoreError> {
        match event {
            LinkEvent::Resolved(addresses) => self.services.set_link(addresses),
            LinkEvent::NeedFacts => self.link_facts()?,
            LinkEvent::Connected(welcome) => {
                log::info!("connected to the bridge of cluster {}", welcome.cluster);
                if self.cx.config.network.policies && !welcome.features.iter().any(|feature| feature == POLICIES) {
                    log::warn!("the bridge is older than NetworkPolicies of nodes: there are none here");
                }
                let told = welcome.identity.map(|terms| terms.now_ms);
                self.host_watch.time_told(&self.cx, told);
                self.tokens.time_told(told, self.cx.mono());
                self.resync.welcomed(welcome.repeat_within_ms);
                self.cx.store.write(|writer| writer.set_fact(Fact::Cluster, &welcome.cluster))?;
                self.cx.tell_dropped()?;
                let now = self.cx.mono();
                self.cx.delete_acknowledged()?;
                self.cx.outgoing.connected(self.cx.store.outbox()?, now);
                self.node_status.force();
                self.cx.look_now();
                self.dns.connected(&mut self.services, &welcome.features);
                self.devices.connected(&mut self.cx, &welcome.features)?;
                self.static_pods.connected();
                self.static_pods.ask_for_mirrors(&mut self.cx)?;
            }
            LinkEvent::Disconnected(why) => {
                log::warn!("no connection to the bridge: {why}");
                // What the bridge has counted is not counted once more.
                self.cx.delete_acknowledged()?;
                self.cx.outgoing.disconnected();
                self.tokens.disconnected();
                self.services.names_changed();
                self.devices.disconnected();
            }
            LinkEvent::DevicesAcked { batch, refused } => self.devices.acked(batch, refused),
            LinkEvent::MessagesAcked(ids) => self.devices.messages.acked(&mut self.cx, &ids)?,
            LinkEvent::Call { id, call } => self.devices.call(&self.cx, id, call),
            LinkEvent::Response { id, response } => self.devices.responded(id, response),
            LinkEvent::Refused(reason, message) => log::error!("the bridge refused this node ({reason:?}): {message}"),
            LinkEvent::Changes { stream, changes } => self.take_changes(&stream, changes)?,
            LinkEvent::UpAcked(ids) => {
                self.resync.reports_taken(&self.cx, &ids)?;
                let now = self.cx.mono();
                self.cx.acknowledged.add(ids, now);
            }
            LinkEvent::UpRefused(id, reason) => {
                log::warn!("the bridge refused report {id}: {reason}");
                self.resync.report_refused(&self.cx, id)?;
                let now = self.cx.mono();
                self.cx.acknowledged.add(vec![id], now);
            }
            LinkEvent::Token { id, answer } => self.tokens.answered(id, answer, self.cx.mono()),
            LinkEvent::Stream(event) => self.take_stream(event),
        }
        Ok(())
    }

    fn link_facts(&mut self) -> Result<(), StoreError> {
        let interests = self.dns.interests(&mut self.cx);
        let Some(link) = &self.cx.link else { return Ok(()) };
        let stream = self.cx.store.fact(Fact::Stream)?;
        let seq = self.cx.store.fact(Fact::LastSequence)?.and_then(|seq| seq.parse().ok());
        link.facts(EdgeFacts {
            agent: format!("edge-runtime/{}", env!("CARGO_PKG_VERSION")),
            cluster: self.cx.store.fact(Fact::Cluster)?,
            position: stream.zip(seq).map(|(stream, seq)| Position { stream, seq }),
            held: self.cx.store.held()?,
            compress: true,
            wants: Wants {
                services: self.cx.config.services.enabled,
                routes: self.cx.config.network.has_routes(),
                policies: self.cx.config.network.policies,
                devices: self.cx.config.device_twin.is_some(),
                rules: self.cx.config.device_twin.is_some(),
            },
            interests,
            ..EdgeFacts::new(self.cx.config.node_name.clone(), self.cx.clock.boot_id().to_string())
        });
        Ok(())
    }

    /// One durable commit for the batch, then the acknowledgement, then its effects.
    fn take_changes(&mut self, stream: &str, changes: Vec<Change>) -> Result<(), StoreError> {
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

    /// A ConfigMap or Secret of this namespace came or changed, or, without one, a RuntimeClass.
    fn dependency_changed(&mut self, namespace: &str) {
        let here = |entry: &Entry| namespace.is_empty() || entry.record.namespace == namespace;
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

    fn take_stream(&mut self, event: StreamEvent) {
        let backend = Backend {
            cx: &self.cx,
            cgroups: &self.launch.base.cgroups,
            runtimes: &self.launch.runtimes,
            volumes_trash: &self.launch.base.volumes_trash,
            monitor: &self.containers.monitor,
        };
        self.streams.take(&backend, event);
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::{Object, ObjectDigest, ToCloud, ToEdge};
    use serde_json::{Value, json};

    use super::super::bench::{Bench, pod};
    use super::*;
    use crate::link::LinkHandle;
    use crate::net::policy::view::POLICY_VIEW;
    use crate::net::services::view::SERVICE_VIEW;
    use crate::net::site::view::SITE_VIEW;

    fn key(kind: &str, name: &str) -> ObjectKey {
        ObjectKey { kind: kind.to_owned(), namespace: "ns".to_owned(), name: name.to_owned() }
    }

    /// A node that has heard of change 11: the pod `u` of the name `web`, with this body.
    fn heard(body: Value) -> (Bench, LinkHandle, Vec<Change>) {
        let mut bench = Bench::new();
        let link = LinkHandle::for_tests(&bench.node.cx.paths, &[]);
        bench.node.cx.link = Some(link.clone());
        let digest = ObjectDigest { key: key("Pod", "web"), uid: "u".to_owned(), digest: "d".to_owned() };
        let changes = link.hears(&ToEdge::Put { seq: 11, sync: false, object: Object { digest, body } });
        link.says();
        (bench, link, changes)
    }

    fn take(bench: &mut Bench, changes: &[Change]) -> Result<(), StoreError> {
        bench.node.take_link(LinkEvent::Changes { stream: "s".to_owned(), changes: changes.to_vec() })
    }

    /// The pod with another value in its metadata.
    fn with(pod: &Pod, field: &str, value: Value) -> Pod {
        let mut body = serde_json::to_value(pod).unwrap();
        body["metadata"][field] = value;
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn changes_are_acknowledged_after_a_synced_commit() {
        let (mut bench, link, changes) = heard(serde_json::to_value(pod("u", "web")).unwrap());
        bench.node.cx.store.refuse_writes(true);
        assert!(take(&mut bench, &changes).is_err());
        assert!(link.says().is_empty());
        assert!(bench.node.cx.pods.is_empty(), "nor has it an effect");

        bench.node.cx.store.refuse_writes(false);
        take(&mut bench, &changes).unwrap();
        assert_eq!(link.says(), [ToCloud::Ack { seq: 11 }]);
        assert!(bench.node.cx.store.is_synced(), "a power cut takes nothing back that was acknowledged");
        assert_eq!(bench.node.cx.store.fact(Fact::LastSequence).unwrap().as_deref(), Some("11"));
        assert!(bench.node.cx.pods.contains("u"));
    }

    #[test]
    fn object_that_cannot_be_applied_is_refused_and_passed() {
        let (mut bench, link, changes) = heard(json!({"spec": 7}));
        take(&mut bench, &changes).unwrap();
        let said = link.says();
        let [ToCloud::Nack { object, reason }, ToCloud::Ack { seq: 11 }] = said.as_slice() else { panic!("{said:?}") };
        assert!(object.uid == "u" && reason.contains("not a v1 Pod"), "{reason}");
        assert!(bench.node.cx.pods.is_empty());
    }

    #[test]
    fn successor_of_the_same_name_ends_the_pod_before_it() {
        let mut bench = Bench::new();
        for uid in ["a", "b", "b"] {
            bench.node.pod_wanted(pod(uid, "web"), None).unwrap();
        }
        let gone = ["a", "b"].map(|uid| bench.record(uid).deletion.as_ref().is_some_and(|it| it.object_gone));
        assert_eq!(gone, [true, false]);
    }

    #[test]
    fn newer_object_gives_its_pod_a_turn() {
        let mut bench = Bench::new();
        bench.add("u");
        bench.take_dirty();
        let newer = with(&pod("u", "u"), "labels", json!({"tier": "edge"}));
        bench.node.pod_wanted(newer, None).unwrap();
        assert_eq!(bench.take_dirty(), ["u"]);
        assert!(bench.node.cx.pods.get("u").unwrap().pod.metadata.labels.is_some());

        let ending = with(&pod("u", "u"), "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        let ending = with(&ending, "deletionGracePeriodSeconds", json!(7));
        bench.node.pod_wanted(ending, None).unwrap();
        let deletion = bench.record("u").deletion.as_ref().map(|deletion| (deletion.grace_s, deletion.object_gone));
        assert_eq!(deletion, Some((7, false)));
    }

    #[test]
    fn mirror_is_no_pod_of_its_own() {
        let mut bench = Bench::new();
        let mirror = with(&pod("m", "m"), "annotations", json!({ MIRROR: "static" }));
        bench.node.pod_wanted(mirror.clone(), None).unwrap();
        assert!(bench.node.cx.pods.is_empty());
        bench.node.cx.store.refuse_writes(true);
        assert!(bench.node.pod_wanted(mirror, None).is_err(), "its deletion cannot be reported");
    }

    #[test]
    fn tombstone_ends_the_pod_of_its_uid_alone() {
        let mut bench = Bench::new();
        bench.add("u");
        bench.node.object_gone(&key("Pod", "u"), "another of this name").unwrap();
        assert_eq!(bench.record("u").deletion, None);
        bench.node.object_gone(&key("Pod", "u"), "u").unwrap();
        assert!(bench.record("u").deletion.as_ref().is_some_and(|deletion| deletion.object_gone));
    }

    #[test]
    fn object_concerns_the_pods_of_its_namespace() {
        let mut bench = Bench::new();
        ["a", "b"].iter().for_each(|uid| bench.add(uid));
        bench.record_mut("b").namespace = "other".to_owned();
        bench.take_dirty();
        bench.node.dependency_changed("ns");
        assert_eq!(bench.take_dirty(), ["a"]);
        bench.node.dependency_changed("");
        assert_eq!(bench.take_dirty(), ["a", "b"], "a RuntimeClass has no namespace");
    }

    #[test]
    fn deleted_object_gives_turns_only_if_pods_may_name_it() {
        let mut bench = Bench::new();
        bench.add("a");
        bench.take_dirty();
        for (kind, turns) in
            [("ConfigMap", 1), ("Secret", 1), (services::KIND, 0), (SERVICE_VIEW, 0), (SITE_VIEW, 0), (POLICY_VIEW, 0)]
        {
            bench.node.object_gone(&key(kind, "x"), "x").unwrap();
            assert_eq!(bench.take_dirty().len(), turns, "{kind}");
        }
    }

    #[test]
    fn static_pod_waits_for_its_name_and_begins_when_it_is_stored() {
        let mut bench = Bench::new();
        bench.add("web");
        let manifest = || pod("s", "web");
        bench.node.begin_static(manifest()).unwrap();
        assert!(!bench.node.cx.pods.contains("s"), "its predecessor still ends");
        bench.node.cx.pods.remove("web");
        bench.node.cx.store.refuse_writes(true);
        assert!(bench.node.begin_static(manifest()).is_err() && !bench.node.cx.pods.contains("s"));
        bench.node.cx.store.refuse_writes(false);
        bench.node.begin_static(manifest()).unwrap();
        assert!(bench.node.cx.pods.contains("s") && bench.node.cx.store.is_synced());
        let (stored, _) = bench.node.cx.store.pods().unwrap();
        let [stored] = stored.as_slice() else { panic!("{} pods", stored.len()) };
        assert_eq!((stored.record.source, &stored.manifest["metadata"]["uid"]), (PodSource::Static, &json!("s")));
    }
}
