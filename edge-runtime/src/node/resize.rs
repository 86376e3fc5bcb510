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

#[cfg(test)]
mod tests {
    use edge_protocol::message::Report;
    use serde_json::{Value, json};

    use super::*;
    use crate::node::pods::Entry;
    use crate::pod::record::PodRecord;
    use crate::pod::refusal::Refusal;

    /// A pod whose newest object has this generation.
    fn pod(generation: i64) -> Rc<Pod> {
        let containers = json!([{"name": "c", "image": "i"}]);
        let pod = json!({"metadata": {"generation": generation}, "spec": {"containers": containers}});
        Rc::new(serde_json::from_value(pod).unwrap())
    }

    fn record(uid: &str) -> PodRecord {
        PodRecord { uid: uid.to_owned(), ..PodRecord::default() }
    }

    fn answer(cx: &mut Context, result: Result<(), String>) -> Vec<PodEvent> {
        let (container, id) = ("c".to_owned(), "id".to_owned());
        answers(cx, "u", vec![Resized { container, id, resources: Resources::default() }], vec![result])
    }

    #[test]
    fn failed_resize_is_reported_once_for_each_generation() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        cx.pods.insert(Entry::new(pod(3), record("u")));
        for _ in 0..2 {
            let told = answer(&mut cx, Err("busy".to_owned()));
            assert!(matches!(told.as_slice(), [PodEvent::Resized { error: Some(error), .. }] if error == "busy"));
        }
        cx.pods.get_mut("u").unwrap().pod = pod(4);
        answer(&mut cx, Err("busy".to_owned()));
        let rows = cx.store.outbox().unwrap().into_iter();
        let of =
            |report: Report| if let Report::Event { event } = report { Some(event["count"].clone()) } else { None };
        assert_eq!(rows.filter_map(|row| of(row.report)).collect::<Vec<Value>>(), [json!(1), json!(1)]);
    }

    #[test]
    fn done_resize_has_those_that_wait_look_for_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let waits = Refusal { reason: "Deferred".to_owned(), message: String::new() };
        cx.pods.insert(Entry::new(pod(1), PodRecord { resize_pending: Some(waits), ..record("waits") }));
        cx.pods.insert(Entry::new(pod(1), record("u")));
        while cx.pods.next_dirty().is_some() {}
        let told = answer(&mut cx, Ok(()));
        assert!(matches!(told.as_slice(), [PodEvent::Resized { error: None, .. }]), "{told:?}");
        assert_eq!(cx.pods.next_dirty().as_deref(), Some("waits"));
        assert!(cx.store.outbox().unwrap().is_empty());
    }
}
