//! Static pods: manifests in a folder run without any cloud; the API shows them as mirror pods.

mod manifests;

use std::collections::BTreeMap;
use std::time::Duration;

use edge_protocol::message::Report;
use k8s_openapi::api::core::v1::Pod;

use super::context::Context;
use super::pods::Entry;
use crate::pod::clock::Mono;
use crate::pod::record::PodSource;
use crate::pod::static_pod;
use crate::store::{Fact, Store, StoreError};
use crate::sys::vec_map::VecMap;
use manifests::{Found, Listing};

/// The kubelet's `fileCheckFrequency`.
const PERIOD: Duration = Duration::from_secs(20);
/// Delay until a missing mirror is requested again: doubled each time, up to the second one. A kubelet tries
/// at each sync of the pod (K8s pkg/kubelet/kubelet.go, `tryReconcileMirrorPods`); its namespace may be created later.
const AGAIN: Duration = Duration::from_mins(5);
const AGAIN_AT_MOST: Duration = Duration::from_secs(3600);

/// Last logged problems of the manifests.
#[derive(Default)]
pub(super) struct StaticPods {
    next: Option<Mono>,
    /// Last error of the folder, so that it is logged once.
    trouble: String,
    /// Errors of files, by name.
    refused: BTreeMap<String, String>,
    /// Requests for mirrors since the link came up, by uid of their pods.
    mirrors_asked: VecMap<String, MirrorAsked>,
}

/// A request for a missing mirror.
#[derive(Debug, PartialEq, Eq)]
struct MirrorAsked {
    pause: Duration,
    /// Time of the next request.
    due: Mono,
}

impl MirrorAsked {
    /// A request at this time, after the one before.
    fn after(before: Option<&Self>, now: Mono) -> Self {
        let pause = before.map_or(AGAIN, |before| (before.pause * 2).min(AGAIN_AT_MOST));
        Self { pause, due: now.after(pause) }
    }
}

impl StaticPods {
    /// Reads the folder: ends pods whose manifest is gone, and returns pods that may have to start. An unreadable
    /// manifest keeps its running pod.
    pub(super) fn scan(&mut self, cx: &mut Context) -> Result<Vec<Pod>, StoreError> {
        self.next = Some(cx.mono().after(PERIOD));
        let folder = cx.paths.static_pods();
        let before = found_before(&cx.store)?;
        let listing = match manifests::list(&folder) {
            Ok(listing) if listing.says_nothing(&before) => {
                self.folder_unclear(format!("{} is another folder than before, and empty", folder.display()));
                return Ok(Vec::new());
            }
            Ok(listing) => listing,
            Err(error) => {
                self.folder_unclear(format!("{}: {error}", folder.display()));
                return Ok(Vec::new());
            }
        };
        self.trouble.clear();
        let (wanted, unclear) = self.parse_manifests(cx, &listing);
        end_unwanted(cx, &wanted, &unclear, &before);
        // A file with an unclear owner keeps its earlier pod.
        let kept = before.pods.iter().filter(|(file, _)| unclear.contains(file));
        let mut found = Found { folder: listing.folder, pods: kept.map(|(f, u)| (f.clone(), u.clone())).collect() };
        found
            .pods
            .extend(wanted.iter().map(|(file, pod)| (file.clone(), pod.metadata.uid.clone().unwrap_or_default())));
        remember(cx, &before, &found)?;
        Ok(wanted.into_iter().map(|(_, pod)| pod).collect())
    }

    /// Whether to read the folder now, as often as the kubelet (`fileCheckFrequency`): not every change of a folder
    /// causes an event.
    pub(super) fn is_due(&self, now: Mono) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    fn folder_unclear(&mut self, why: String) {
        if self.trouble != why {
            log::error!("{why}; static pods stay as they are");
            self.trouble = why;
        }
    }

    /// The pods by file, and the files that are there and tell no pod.
    fn parse_manifests(&mut self, cx: &Context, listing: &Listing) -> (Vec<(String, Pod)>, Vec<String>) {
        let (mut wanted, mut unclear) = (Vec::new(), Vec::new());
        let now = cx.wall();
        self.refused.retain(|name, _| listing.files.contains_key(name));
        for (name, text) in &listing.files {
            let parsed = match text {
                Some(text) => static_pod::parse(name, text, &cx.config.node_name, now).map_err(|e| e.to_string()),
                None => Err(format!("static pod {name}: the file cannot be read")),
            };
            match parsed {
                Ok(pod) => {
                    self.refused.remove(name);
                    wanted.push((name.clone(), pod));
                }
                Err(error) => {
                    if self.refused.get(name) != Some(&error) {
                        log::error!("{error}; what ran of it runs on");
                        self.refused.insert(name.clone(), error);
                    }
                    unclear.push(name.clone());
                }
            }
        }
        (wanted, unclear)
    }

    /// A new connection: its bridge was asked for nothing yet.
    pub(super) fn connected(&mut self) {
        self.mirrors_asked.clear();
    }

    /// The pod has left, and its mirror with it: a pod of the same manifest, and so of the same uid, needs another.
    pub(super) fn forgotten(&mut self, uid: &str) {
        self.mirrors_asked.remove(uid);
    }

    /// Asks the bridge for the mirrors that the API lacks: once per connection, and again if one does not come.
    pub(super) fn ask_for_mirrors(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        if cx.connection().is_none() {
            return Ok(());
        }
        let now = cx.mono();
        let lacking = cx.pods.uids(|entry| {
            let record = &entry.record;
            let lacks = record.source == PodSource::Static && entry.mirror_uid.is_none() && record.deletion.is_none();
            lacks && self.mirrors_asked.get(&record.uid).is_none_or(|asked| asked.due <= now)
        });
        for uid in lacking {
            let mirror = cx.pods.get(&uid).map(|entry| static_pod::mirror(&entry.pod));
            let Some(Ok(pod)) = mirror else { continue };
            cx.report(Report::MirrorPod { pod })?;
            let asked = MirrorAsked::after(self.mirrors_asked.get(&uid), now);
            self.mirrors_asked.insert(uid, asked);
        }
        Ok(())
    }

    /// Handles a deleted mirror: a static pod that still exists gets a new one.
    pub(super) fn mirror_gone(&mut self, cx: &mut Context, mirror_uid: &str) -> Result<(), StoreError> {
        let Some(uid) = cx.pods.by_api_uid(mirror_uid).map(str::to_owned) else { return Ok(()) };
        if cx.pods.get_mut(&uid).and_then(|entry| entry.mirror_uid.take()).is_none() {
            return Ok(());
        }
        self.mirrors_asked.remove(&uid);
        self.ask_for_mirrors(cx)
    }
}

/// The API's copy of a static pod has this uid: statuses go there.
pub(super) fn mirror_known(cx: &mut Context, mirror: &Pod, static_uid: &str) -> Result<(), StoreError> {
    let Some(entry) = cx.pods.get_mut(static_uid) else { return orphaned(cx, mirror, static_uid) };
    if entry.mirror_uid != mirror.metadata.uid {
        entry.mirror_uid.clone_from(&mirror.metadata.uid);
        entry.reported = serde_json::Value::Null;
        cx.pods.touch(static_uid);
    }
    Ok(())
}

/// A mirror of nothing: its manifest went while the node was made again. As K8s pkg/kubelet/kubelet_pods.go,
/// `deleteOrphanedMirrorPods`.
fn orphaned(cx: &mut Context, mirror: &Pod, static_uid: &str) -> Result<(), StoreError> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&mirror.metadata.namespace), text(&mirror.metadata.name));
    log::info!("pod {namespace}/{name} mirrors no static pod of this node: it is deleted");
    cx.report(Report::MirrorGone { namespace, name, static_uid: static_uid.to_owned() })
}

fn end_unwanted(cx: &mut Context, wanted: &[(String, Pod)], unclear: &[String], before: &Found) {
    let is_wanted = |uid: &String| wanted.iter().any(|(_, pod)| pod.metadata.uid.as_ref() == Some(uid));
    let gone = cx.pods.uids(|Entry { record, .. }| {
        let is_static = record.source == PodSource::Static;
        is_static && !is_wanted(&record.uid) && !manifests::keeps(before, unclear, &record.uid)
    });
    // Their mirrors stay until nothing of them runs.
    gone.iter().for_each(|uid| cx.pod_gone(uid));
}

fn found_before(store: &Store) -> Result<Found, StoreError> {
    let text = store.fact(Fact::Manifests)?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

fn remember(cx: &mut Context, before: &Found, found: &Found) -> Result<(), StoreError> {
    // A node that never had a manifest writes nothing.
    if before == found || (before.pods.is_empty() && found.pods.is_empty()) {
        return Ok(());
    }
    let text = serde_json::to_string(found).unwrap_or_default();
    cx.store.write(|writer| writer.set_fact(Fact::Manifests, &text))
}

#[cfg(test)]
mod tests;
