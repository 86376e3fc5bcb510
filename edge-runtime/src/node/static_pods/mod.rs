//! Static pods: manifests in a folder run without any cloud; the API shows them as mirror pods.

mod manifests;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::message::Report;
use k8s_openapi::api::core::v1::Pod;

use super::Node;
use super::pods::Entry;
use crate::pod::clock::Mono;
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::static_pod;
use crate::store::{Fact, StoreError};
use manifests::{Found, Listing};

/// The kubelet's `fileCheckFrequency`.
const PERIOD: Duration = Duration::from_secs(20);

/// What was last said of the manifests.
#[derive(Default)]
pub(super) struct StaticPods {
    next: Option<Mono>,
    /// Of the folder, so that it is complained about once.
    trouble: String,
    /// Of files, by name.
    refused: BTreeMap<String, String>,
}

impl Node {
    /// Reads the folder and makes the static pods match it. What cannot be read keeps what runs.
    pub(super) fn scan_manifests(&mut self) -> Result<(), StoreError> {
        self.static_pods.next = Some(self.mono().after(PERIOD));
        let folder = self.paths.static_pods();
        let before = self.found_before()?;
        let listing = match manifests::list(&folder) {
            Ok(listing) if listing.says_nothing(&before) => {
                self.folder_unclear(format!("{} is another folder than before, and empty", folder.display()));
                return self.ask_for_mirrors();
            }
            Ok(listing) => listing,
            Err(error) => {
                self.folder_unclear(format!("{}: {error}", folder.display()));
                return self.ask_for_mirrors();
            }
        };
        self.static_pods.trouble.clear();
        let (wanted, unclear) = self.parse_manifests(&listing);
        self.end_unwanted(&wanted, &unclear, &before);
        let mut found = Found { folder: listing.folder, pods: BTreeMap::new() };
        // A file that cannot be told to be another's has the pod that it had.
        found
            .pods
            .extend(before.pods.iter().filter(|(file, _)| unclear.contains(file)).map(|(f, u)| (f.clone(), u.clone())));
        for (file, pod) in wanted {
            found.pods.insert(file, pod.metadata.uid.clone().unwrap_or_default());
            self.begin_static(pod)?;
        }
        self.remember(&before, found)?;
        self.ask_for_mirrors()
    }

    /// As often as the kubelet (`fileCheckFrequency`): not every change of a folder is told.
    pub(super) fn rescan_manifests(&mut self, now: Mono) -> Result<(), StoreError> {
        if self.static_pods.next.is_some_and(|next| now < next) { Ok(()) } else { self.scan_manifests() }
    }

    fn folder_unclear(&mut self, why: String) {
        if self.static_pods.trouble != why {
            log::error!("{why}; static pods stay as they are");
            self.static_pods.trouble = why;
        }
    }

    fn begin_static(&mut self, pod: Pod) -> Result<(), StoreError> {
        let meta = &pod.metadata;
        let uid = meta.uid.clone().unwrap_or_default();
        if self.pods.contains(&uid) || self.runs_unattended(&uid) {
            return Ok(());
        }
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        if self.pods.by_name(&namespace, &name).is_some() {
            // Its predecessor still ends; the folder is read again when that is forgotten.
            return Ok(());
        }
        log::info!("static pod {namespace}/{name}");
        let mut record = PodRecord::new(&uid, &namespace, &name, PodSource::Static, &self.clock.now());
        self.end_unattended(&pod, &mut record);
        let manifest = serde_json::to_value(&pod).unwrap_or_default();
        self.store.write_durable(|writer| {
            writer.put_pod(&record)?;
            writer.put_manifest(&uid, &manifest)
        })?;
        self.pods.insert(Entry::new(Rc::new(pod), record));
        Ok(())
    }

    fn end_unwanted(&mut self, wanted: &[(String, Pod)], unclear: &[String], before: &Found) {
        let is_wanted = |uid: &String| wanted.iter().any(|(_, pod)| pod.metadata.uid.as_ref() == Some(uid));
        let statics = self.pods.iter().filter(|(_, entry)| entry.record.source == PodSource::Static);
        let gone = statics.filter(|(uid, _)| !is_wanted(uid) && !manifests::keeps(before, unclear, uid));
        for uid in gone.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            // Its mirror stays until nothing of it runs.
            self.pod_gone(&uid);
        }
    }

    fn found_before(&self) -> Result<Found, StoreError> {
        let text = self.store.fact(Fact::Manifests)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    fn remember(&mut self, before: &Found, found: Found) -> Result<(), StoreError> {
        // A node that never had a manifest writes nothing.
        if *before == found || (before.pods.is_empty() && found.pods.is_empty()) {
            return Ok(());
        }
        let text = serde_json::to_string(&found).unwrap_or_default();
        self.store.write(|writer| writer.set_fact(Fact::Manifests, &text))
    }

    /// The pods by file, and the files that are there and tell no pod.
    fn parse_manifests(&mut self, listing: &Listing) -> (Vec<(String, Pod)>, Vec<String>) {
        let (mut wanted, mut unclear) = (Vec::new(), Vec::new());
        let now = self.wall();
        self.static_pods.refused.retain(|name, _| listing.files.contains_key(name));
        for (name, text) in &listing.files {
            let parsed = match text {
                Some(text) => static_pod::parse(name, text, &self.config.node_name, now).map_err(|e| e.to_string()),
                None => Err(format!("static pod {name}: the file cannot be read")),
            };
            match parsed {
                Ok(pod) => {
                    self.static_pods.refused.remove(name);
                    wanted.push((name.clone(), pod));
                }
                Err(error) => {
                    if self.static_pods.refused.get(name) != Some(&error) {
                        log::error!("{error}; what ran of it runs on");
                        self.static_pods.refused.insert(name.clone(), error);
                    }
                    unclear.push(name.clone());
                }
            }
        }
        (wanted, unclear)
    }

    /// Asks the bridge for the mirrors that the API lacks, once per connection.
    pub(super) fn ask_for_mirrors(&mut self) -> Result<(), StoreError> {
        if !self.link.as_ref().is_some_and(crate::link::LinkHandle::is_connected) {
            return Ok(());
        }
        let lacking: Vec<(String, Rc<Pod>)> = self
            .pods
            .iter()
            .filter(|(uid, entry)| {
                entry.record.source == PodSource::Static
                    && entry.mirror_uid.is_none()
                    && entry.record.deletion.is_none()
                    && !self.mirrors_asked.contains(*uid)
            })
            .map(|(uid, entry)| (uid.clone(), Rc::clone(&entry.pod)))
            .collect();
        for (uid, pod) in lacking {
            let Ok(pod) = serde_json::to_value(static_pod::mirror(&pod)) else { continue };
            let report = Report::MirrorPod { pod };
            let id = self.store.write(|writer| writer.report(&report))?;
            self.outgoing.queue(std::iter::once((id, report)));
            self.mirrors_asked.insert(uid);
        }
        Ok(())
    }

    /// The API's copy of a static pod has this uid: statuses go there.
    pub(super) fn mirror_known(&mut self, mirror: &Pod, static_uid: &str, mirror_uid: &str) {
        if !self.pods.contains(static_uid) {
            return self.orphaned(mirror, static_uid);
        }
        if let Some(entry) = self.pods.get_mut(static_uid)
            && entry.mirror_uid.as_deref() != Some(mirror_uid)
        {
            entry.mirror_uid = Some(mirror_uid.to_owned());
            entry.reported = serde_json::Value::Null;
            self.pods.touch(static_uid);
        }
    }

    /// A mirror of nothing: its manifest went while the node was made anew. As K8s pkg/kubelet/kubelet_pods.go,
    /// `deleteOrphanedMirrorPods`.
    fn orphaned(&mut self, mirror: &Pod, static_uid: &str) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&mirror.metadata.namespace), text(&mirror.metadata.name));
        log::info!("pod {namespace}/{name} mirrors no static pod of this node: it is deleted");
        let report = Report::MirrorGone { namespace, name, static_uid: static_uid.to_owned() };
        match self.store.write(|writer| writer.report(&report)) {
            Ok(id) => self.outgoing.queue(std::iter::once((id, report))),
            Err(error) => log::error!("{error}"),
        }
    }

    /// Somebody deleted a mirror: a static pod still there gets a new one.
    pub(super) fn mirror_gone(&mut self, mirror_uid: &str) {
        let owner = self.pods.iter().find(|(_, entry)| entry.mirror_uid.as_deref() == Some(mirror_uid));
        let Some(uid) = owner.map(|(uid, _)| uid.clone()) else { return };
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.mirror_uid = None;
        }
        self.mirrors_asked.remove(&uid);
        if let Err(error) = self.ask_for_mirrors() {
            log::error!("{error}");
        }
    }
}
