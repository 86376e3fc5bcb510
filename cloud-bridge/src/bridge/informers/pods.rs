//! The watch of all pods: which nodes hold them, and what a new list lacks.

use edge_protocol::message::ObjectKey;
use futures::FutureExt;
use kube::runtime::watcher::Event;

use super::Informers;
use super::ask::{reconcile_tolerations, tolerations};
use crate::bridge::requests::Requests;
use crate::bridge::slim::{BoundPod, SlimPod};
use crate::bridge::world::{Effect, World};

impl Informers {
    pub(super) fn pods(&mut self, event: Event<SlimPod>) {
        match event {
            Event::Init => (self.listing, self.unswept) = (true, self.world.nodes()),
            Event::InitApply(pod) => {
                let (node, uid) = (pod.node().to_owned(), pod.uid().to_owned());
                self.pod(pod, World::pod_applied);
                self.world.listed(&node, &uid);
            }
            Event::InitDone => (self.listing, self.unswept) = (false, self.world.nodes()),
            Event::Apply(pod) => self.pod(pod, World::pod_applied),
            Event::Delete(pod) => {
                let effects = self.world.pod_deleted(pod.node(), &pod.key(), pod.uid());
                self.apply(effects);
            }
        }
    }

    /// Prepares the pods of one node for a list, or compares them with it. All nodes are processed before the next
    /// event.
    pub(super) fn sweep(&mut self, node: &str) {
        if self.listing {
            return self.world.relisted(node);
        }
        // A pod that is missing in a list is not yet deleted: ask for each by name.
        for (key, uid) in self.world.missing(node) {
            self.ask_if_gone(node.to_owned(), key, uid);
        }
    }

    /// Applies the tolerations of the node's object to a pod. After a conflict the watch delivers a newer pod.
    pub(super) fn patch_tolerations(&mut self, key: ObjectKey, patch: String) {
        let requests = Requests::new(self.clients.own().clone());
        self.questions.push(reconcile_tolerations(requests, key, patch).boxed());
    }

    pub(super) fn pod(&mut self, pod: SlimPod, enter: fn(&mut World, BoundPod) -> Vec<Effect>) {
        if let Some((key, patch)) = tolerations(&self.autonomy, &pod) {
            self.patch_tolerations(key, patch);
        }
        if !self.world.is_ours(pod.node()) {
            return;
        }
        if let Some(pod) = pod.into_bound() {
            let effects = enter(&mut self.world, pod);
            self.apply(effects);
        }
    }
}
