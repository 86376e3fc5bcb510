//! The step that gives running containers other resources, and what its answers mean for the pod.

use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;

use super::context::Context;
use super::sources::{News, Resized};
use crate::launch::container::Containers;
use crate::pod::event::PodEvent;
use crate::pod::reconcile::resize_text;
use crate::pod::record::Resources;
use crate::pod::spec::containers_of;

/// The answers are there at once where cgroup files are written, and come later where systemd does it.
pub(super) fn begin(
    cx: &mut Context,
    launch: &Containers,
    uid: &str,
    pod: &Pod,
    containers: Vec<(String, String)>,
) -> Vec<PodEvent> {
    let resizing = launch.resize(pod, uid, &containers);
    let resized = containers.into_iter().map(|(container, id)| {
        let definition = containers_of(pod).find(|one| one.name == container);
        Resized { container, id, resources: definition.map(Resources::of).unwrap_or_default() }
    });
    let resized = resized.collect();
    if resizing.is_settled() {
        let done = smol::future::block_on(resizing.settle());
        return answers(cx, uid, resized, done);
    }
    let uid = uid.to_owned();
    cx.background(async move { News::Resized { uid, resized, done: resizing.settle().await } });
    Vec::new()
}

pub(super) fn done(cx: &mut Context, uid: &str, resized: Vec<Resized>, done: Vec<Result<(), String>>) {
    for answer in answers(cx, uid, resized, done) {
        cx.tell(uid, answer);
    }
}

fn answers(cx: &mut Context, uid: &str, resized: Vec<Resized>, done: Vec<Result<(), String>>) -> Vec<PodEvent> {
    let errors: Vec<&str> = done.iter().filter_map(|one| one.as_ref().err()).map(String::as_str).collect();
    if !errors.is_empty() {
        tell_error(cx, uid, &errors.join(", "));
    }
    // One that has shrunk makes room (K8s pkg/kubelet/allocation, `TriggerReasonPodResized`).
    cx.pods.touch_pending_resizes();
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

fn tell_error(cx: &mut Context, uid: &str, error: &str) {
    let Some(entry) = cx.pods.get_mut(uid) else { return };
    let pod = Rc::clone(&entry.pod);
    let generation = pod.metadata.generation.unwrap_or_default();
    let Some(spec) = pod.spec.as_ref().filter(|_| entry.resize_error_of.replace(generation) != Some(generation)) else {
        return;
    };
    let message = resize_text::text(spec, "error", generation, error);
    cx.warn_about_pod(uid, "ResizeError", message);
}
