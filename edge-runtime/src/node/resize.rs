//! Resizing running pods: whether there is room, and the step itself.

use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;

use super::Node;
use super::sources::News;
use crate::pod::admission::{self, Allocatable};
use crate::pod::event::PodEvent;
use crate::pod::reconcile::resize_text::{self, Told};
use crate::pod::record::Resources;
use crate::pod::refusal::Refusal;
use crate::pod::spec::containers_of;
use crate::pod::step::EventDraft;

/// A container that is given other values, and what they are.
pub(super) struct Resized {
    container: String,
    id: String,
    resources: Resources,
}

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

    /// The answers are there at once where cgroup files are written, and come later where systemd does it.
    pub(super) fn resize(&mut self, uid: &str, pod: &Pod, containers: Vec<(String, String)>) -> Vec<PodEvent> {
        let resizing = self.launcher.resize(pod, uid, &containers);
        let resized = containers.into_iter().map(|(container, id)| {
            let definition = containers_of(pod).find(|one| one.name == container);
            Resized { container, id, resources: definition.map(Resources::of).unwrap_or_default() }
        });
        let resized = resized.collect();
        if resizing.is_settled() {
            let done = smol::future::block_on(resizing.settle());
            return self.resize_answers(uid, resized, done);
        }
        let (news, uid) = (self.senders.news.clone(), uid.to_owned());
        let job = async move {
            let done = resizing.settle().await;
            // The loop is gone only when the process ends.
            let _ = news.send(News::Resized { uid, resized, done }).await;
        };
        self.executor.spawn(job).detach();
        Vec::new()
    }

    pub(super) fn resized(&mut self, uid: &str, resized: Vec<Resized>, done: Vec<Result<(), String>>) {
        for answer in self.resize_answers(uid, resized, done) {
            self.tell(uid, answer);
        }
    }

    fn resize_answers(&mut self, uid: &str, resized: Vec<Resized>, done: Vec<Result<(), String>>) -> Vec<PodEvent> {
        let errors: Vec<&str> = done.iter().filter_map(|one| one.as_ref().err()).map(String::as_str).collect();
        if !errors.is_empty() {
            self.tell_resize_error(uid, &errors.join(", "));
        }
        resized
            .into_iter()
            .zip(done)
            .map(|(Resized { container, id, resources }, result)| {
                let error = result.err();
                match &error {
                    Some(error) => log::warn!("container {container} cannot be resized yet: {error}"),
                    None => log::info!("container {container} is resized"),
                }
                PodEvent::Resized { container, id, resources, error }
            })
            .collect()
    }

    fn tell_resize_error(&mut self, uid: &str, error: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let pod = Rc::clone(&entry.pod);
        let generation = pod.metadata.generation.unwrap_or_default();
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
