//! What the end of a pull does to the queue and to the container that waits for it.

use std::collections::BTreeMap;

use super::*;
use crate::node::pods::Entry;
use crate::pod::record::{ContainerKind, ContainerRecord, ContainerState, PodRecord, PodSource};
use crate::store::image_record::{ImageConfig, ImageRecord};

/// A node on which container `c` of pod `u` waits for this pull.
fn waiting(stage: Stage) -> (tempfile::TempDir, Context, Pulls, u64) {
    let (folder, mut cx) = Context::in_a_folder();
    let mut entry = Entry::new(Rc::default(), PodRecord::new("u", "ns", "p", PodSource::Api, &cx.clock.now()));
    let state = ContainerState::Pulling { reason: String::new(), message: String::new(), volume: None };
    let record = ContainerRecord { state, ..ContainerRecord::new(ContainerKind::App) };
    entry.record.containers.insert("c".into(), record);
    cx.pods.insert(entry);
    let (uid, container, reference) = ("u".into(), "c".into(), "registry.example/app:1".into());
    let waiter = Waiter { uid, container, for_volume: false, reference, asked: Mono(0) };
    let (name, registry) = ("registry.example/app:1".into(), "registry.example".into());
    let waiters = vec![waiter];
    let job = Job { number: 0, name, registry, secrets: Vec::new(), waiters, stage, started: Mono(0) };
    let mut pulls = Pulls::default();
    let number = pulls.queue.add(job);
    (folder, cx, pulls, number)
}

fn store_image(cx: &mut Context) {
    let image = ImageRecord {
        id: "sha256:1".into(),
        references: vec!["registry.example/app:1".into()],
        config: ImageConfig::default(),
        layers: Vec::new(),
        size: 7,
        pulled_at: 0,
        access: BTreeMap::new(),
    };
    cx.store.write(|writer| writer.image_put(&image)).unwrap();
}

fn state(cx: &Context) -> &ContainerState {
    &cx.pods.get("u").unwrap().record.containers.get("c").unwrap().state
}

#[test]
fn outdated_local_image_is_downloaded() {
    let (_folder, mut cx, mut pulls, number) = waiting(Stage::Checked);
    pulls.done(&mut cx, number, Ok(None));
    assert_eq!(pulls.queue.get(number).map(|job| job.stage), Some(Stage::Fetched));
    assert!(matches!(state(&cx), ContainerState::Pulling { .. }), "the container waits on");
}

#[test]
fn container_starts_with_the_local_image_without_its_registry() {
    let (_folder, mut cx, mut pulls, number) = waiting(Stage::Checked);
    store_image(&mut cx);
    pulls.done(&mut cx, number, Err(not_asked("no answer".into())));
    assert!(matches!(state(&cx), ContainerState::ImageReady { .. }), "{:?}", state(&cx));
    assert_eq!(cx.store.outbox().unwrap().len(), 1, "with a warning");
    assert!(pulls.queue.is_empty() && pulls.queue.is_silent("registry.example", cx.mono()));
}

#[test]
fn container_without_an_image_backs_off() {
    let (_folder, mut cx, mut pulls, number) = waiting(Stage::Fetched);
    pulls.done(&mut cx, number, Err(not_asked("no answer".into())));
    let ContainerState::Waiting { reason, message, .. } = state(&cx) else { panic!("{:?}", state(&cx)) };
    assert_eq!((reason.as_str(), message.as_str()), ("ErrImagePull", "no answer"));
}

#[test]
fn second_result_of_a_pull_changes_nothing() {
    let (_folder, mut cx, mut pulls, number) = waiting(Stage::Fetched);
    pulls.stop(&mut cx, "the disk is full");
    let before = state(&cx).clone();
    assert!(matches!(before, ContainerState::Waiting { .. }) && pulls.queue.is_empty());
    store_image(&mut cx);
    pulls.done(&mut cx, number, Ok(Some("sha256:1".into())));
    assert_eq!(*state(&cx), before);
}
