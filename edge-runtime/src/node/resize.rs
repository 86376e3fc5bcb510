//! Resizing running pods: whether there is room, and the step itself.

use k8s_openapi::api::core::v1::Pod;

use super::Node;
use crate::launch::all_containers;
use crate::pod::admission::{self, Allocatable};
use crate::pod::event::PodEvent;
use crate::pod::reconcile::Refusal;
use crate::pod::reconcile::resize_text::{self, Told};
use crate::pod::record::Resources;
use crate::pod::step::EventDraft;

impl Node {
    /// The words of the kubelet (K8s pkg/kubelet/allocation, `handlePodResourcesResize`): `Infeasible`, or what the
    /// pod would be refused for today.
    pub(super) fn no_room(&self, pod: &Pod) -> Option<Refusal> {
        let has = self.allocatable();
        if let Some(never) = admission::admit(pod, std::iter::empty::<&Pod>(), has) {
            return Some(Refusal { reason: "Infeasible".to_owned(), message: never.message });
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let others = self.pods.iter().filter(|(other, entry)| *other != uid && entry.record.terminal.is_none());
        // The pod is here already: only cpu and memory can be short.
        let has = Allocatable { pods: usize::MAX, ..has };
        let others = others.map(|(_, entry)| admission::allocated(&entry.pod, &entry.record));
        admission::admit(pod, others, has)
    }

    /// Writes cgroup files only, so the answers are there at once.
    pub(super) fn resize(&mut self, uid: &str, pod: &Pod, containers: Vec<(String, String)>) -> Vec<PodEvent> {
        let done = self.launcher.resize(pod, uid, &containers);
        let errors: Vec<&str> = done.iter().filter_map(|one| one.as_ref().err()).map(String::as_str).collect();
        if !errors.is_empty() {
            self.tell_resize_error(uid, pod, &errors.join(", "));
        }
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

    fn tell_resize_error(&mut self, uid: &str, pod: &Pod, error: &str) {
        let generation = pod.metadata.generation.unwrap_or_default();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let Some(spec) = pod.spec.as_ref().filter(|_| entry.resize_error_of.replace(generation) != Some(generation))
        else {
            return;
        };
        let message = resize_text::text(spec, &Told { what: "error", generation, error });
        if let Err(error) = self.pod_event(uid, &EventDraft::pod(true, "ResizeError", message)) {
            log::error!("{error}");
        }
    }
}
