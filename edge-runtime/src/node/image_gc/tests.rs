//! When images are deleted, and which.

use serde_json::{Value, json};

use super::*;
use crate::node::pods::Entry;
use crate::pod::record::{ContainerKind, ContainerRecord, PodRecord, Terminal};

const GIB: u64 = 1 << 30;

fn space(available: u64, capacity: u64) -> Observation {
    Observation { available, capacity }
}

#[test]
fn used_share_is_rounded_up_like_the_kubelets() {
    let used = |available| used_percent(space(available, 1000));
    assert_eq!([used(1000), used(999), used(991), used(990), used(989)], [0, 1, 1, 1, 2]);
    assert_eq!([used(150), used(151), used(149), used(0)], [85, 85, 86, 100]);
    assert_eq!(used(2000), 0, "a quota may leave more than there is");
    assert_eq!(used_percent(space(u64::MAX / 2, u64::MAX)), 99, "no overflow, whatever a file system says");
}

#[test]
fn images_go_down_to_the_low_mark() {
    assert_eq!(to_free(space(GIB, 100 * GIB), 80), 19 * GIB);
    assert_eq!(to_free(space(20 * GIB, 100 * GIB), 80), 0, "at the mark");
    assert_eq!(to_free(space(20 * GIB - 1, 100 * GIB), 80), 1);
    assert_eq!(to_free(space(90 * GIB, 100 * GIB), 80), 0, "and below it");
    assert_eq!((to_free(space(0, 100), 100), to_free(space(0, 100), 0)), (0, 100));
}

#[test]
fn evictions_wait_ten_minutes_for_a_helper_that_hangs() {
    let gc = ImageGc { running: Some(Mono(5_000)), ..ImageGc::default() };
    assert!(gc.is_waited_for(Mono(5_000)) && gc.is_waited_for(Mono(604_999)) && gc.is_waited_for(Mono(0)));
    assert!(!gc.is_waited_for(Mono(605_000)));
    assert!(!ImageGc::default().is_waited_for(Mono(0)));
}

#[test]
fn downloads_go_last_and_only_once() {
    let mut taken = None;
    let mut words = Vec::new();
    while let Some((next, word)) = Taken::after(taken) {
        assert!(taken < Some(next));
        words.push(word);
        taken = Some(next);
    }
    assert_eq!(words, ["short", "shortest"]);
}

#[test]
fn images_of_pods_that_run_or_will_are_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    let image = |name: &str| ImageRecord {
        id: format!("id-{name}"),
        references: vec![format!("docker.io/library/{name}:latest")],
        config: Default::default(),
        layers: Vec::new(),
        size: 1,
        pulled_at: 0,
        access: Default::default(),
    };
    for name in ["app", "init", "volume", "ended", "static", "before", "unused"] {
        cx.store.write(|writer| writer.image_put(&image(name))).unwrap();
    }
    let now = cx.clock.now();
    let mut add = |uid: &str, source, ended: bool, spec: Value| {
        let mut record = PodRecord::new(uid, "ns", uid, source, &now);
        let terminal = Terminal { succeeded: true, reason: String::new(), message: String::new() };
        record.terminal = ended.then_some(terminal);
        let pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        cx.pods.insert(Entry::new(Rc::new(pod), record));
    };
    let of = |image: &str| json!({"containers": [{"name": "c", "image": image}]});
    let mut spec = of("app");
    spec["initContainers"] = json!([{"name": "i", "image": "docker.io/library/init:latest"}]);
    spec["volumes"] = json!([{"name": "v", "image": {"reference": "volume"}}, {"name": "e", "emptyDir": {}}]);
    add("a", PodSource::Api, false, spec);
    add("b", PodSource::Api, true, of("ended"));
    add("c", PodSource::Static, true, of("static"));
    add("d", PodSource::Api, false, of("damaged"));
    add("e", PodSource::Api, false, of("Not Valid"));
    // The tag has moved since the container was started.
    let before = ContainerRecord { image_id: "id-before".into(), ..ContainerRecord::new(ContainerKind::App) };
    cx.pods.get_mut("a").unwrap().record.containers.insert("c".into(), before);
    let expected = ["id-app", "id-before", "id-damaged", "id-init", "id-static", "id-volume"];
    assert_eq!(Vec::from_iter(images_in_use(&cx, &[image("damaged")])), expected);
}
