//! Static pods: manifests in a folder run without any cloud; the API shows them as mirror pods.

use std::collections::BTreeMap;
use std::rc::Rc;

use edge_protocol::message::Report;
use k8s_openapi::api::core::v1::Pod;

use super::Node;
use super::pods::Entry;
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::static_pod;
use crate::store::StoreError;

/// A manifest is a page of text; more than this is not one.
const MANIFEST_LIMIT: u64 = 1 << 20;

impl Node {
    /// Reads the folder and makes the static pods match it.
    pub(super) fn scan_manifests(&mut self) -> Result<(), StoreError> {
        let wanted = self.read_manifests();
        let gone: Vec<String> = self
            .pods
            .iter()
            .filter(|(uid, entry)| entry.record.source == PodSource::Static && !wanted.contains_key(*uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in gone {
            // Its mirror stays until nothing of it runs.
            self.pod_gone(&uid);
        }
        for (uid, pod) in wanted {
            if self.pods.contains(&uid) || self.runs_unattended(&uid) {
                continue;
            }
            self.end_unattended(&uid);
            let meta = &pod.metadata;
            let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
            if self.pods.by_name(&namespace, &name).is_some() {
                // Its predecessor still ends; the folder is read again when that is forgotten.
                continue;
            }
            log::info!("static pod {namespace}/{name}");
            let record = PodRecord::new(&uid, &namespace, &name, PodSource::Static, &self.clock.now());
            let manifest = serde_json::to_value(&pod).unwrap_or_default();
            self.store.write_durable(|writer| {
                writer.put_pod(&record)?;
                writer.put_manifest(&uid, &manifest)
            })?;
            self.pods.insert(Entry::new(Rc::new(pod), record));
        }
        self.ask_for_mirrors()
    }

    fn read_manifests(&mut self) -> BTreeMap<String, Pod> {
        let mut wanted = BTreeMap::new();
        let now = self.wall();
        for file in std::fs::read_dir(self.paths.static_pods()).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            // The kubelet skips hidden files too: editors leave them.
            if name.starts_with('.') || !file.path().is_file() {
                continue;
            }
            let text = crate::launch::read_bounded(&file.path(), MANIFEST_LIMIT);
            match static_pod::parse(&name, &text, &self.config.node_name, now) {
                Ok(pod) => {
                    self.refused_manifests.remove(&name);
                    wanted.insert(pod.metadata.uid.clone().unwrap_or_default(), pod);
                }
                Err(error) => {
                    if self.refused_manifests.get(&name) != Some(&text) {
                        log::error!("{error}");
                        self.refused_manifests.insert(name, text);
                    }
                }
            }
        }
        wanted
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
