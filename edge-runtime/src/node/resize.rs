//! Resizing running pods: whether there is room, and the step itself.

use k8s_openapi::api::core::v1::Pod;

use super::Node;
use crate::launch::all_containers;
use crate::pod::admission::{self, Allocatable};
use crate::pod::event::PodEvent;
use crate::pod::reconcile::Refusal;
use crate::pod::record::Resources;

impl Node {
    /// The words of the kubelet (K8s pkg/kubelet/allocation, `canResizePod`).
    pub(super) fn no_room(&self, pod: &Pod) -> Option<Refusal> {
        let has = self.allocatable();
        let refusal = |reason: &str, message| Refusal { reason: reason.to_owned(), message };
        if let Some(never) = admission::admit(pod, std::iter::empty(), has) {
            return Some(refusal("Infeasible", never.message));
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let others = self.pods.iter().filter(|(other, entry)| *other != uid && entry.record.terminal.is_none());
        // The pod is here already: only cpu and memory can be short.
        let has = Allocatable { pods: usize::MAX, ..has };
        admission::admit(pod, others.map(|(_, entry)| &*entry.pod), has).map(|now| refusal("Deferred", now.message))
    }

    /// Writes cgroup files only, so the answers are there at once.
    pub(super) fn resize(&mut self, uid: &str, pod: &Pod, containers: Vec<(String, String)>) -> Vec<PodEvent> {
        let done = self.launcher.resize(pod, uid, &containers);
        containers
            .into_iter()
            .zip(done)
            .map(|((container, id), result)| {
                let definition = all_containers(pod).find(|one| one.name == container);
                let resources = definition.map(Resources::of).unwrap_or_default();
                let error = result.err();
                match &error {
                    Some(error) => log::warn!("container {container} cannot be resized yet: {error}"),
                    None => log::info!("container {container} is resized"),
                }
                PodEvent::Resized { container, id, resources, error }
            })
            .collect()
    }
}
