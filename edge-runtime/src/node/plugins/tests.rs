//! From the order of a start to its end, with a helper that is never started. Orders are numbered from 1.

use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;
use sampan_plugins_control::{Asked, Assigned, Device, Edits, FromHelper, Resources};
use serde_json::json;

use super::*;
use crate::helper::client::Heard;
use crate::launch::devices::plugins::{Plugins as Resource, is_early};
use crate::node::bench::{Bench, running};
use crate::node::containers::ContainerRef;
use crate::node::pods::Entry;
use crate::pod::event::{PodEvent, WAITING_FOR_DEVICE};
use crate::pod::id::container_id;
use crate::pod::record::{ContainerState, PodRecord, PodSource};

const GPU: &str = "example.com/gpu";

/// A node whose helper is connected.
pub(super) fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.node.launch.containers.plugins = Resource::for_tests();
    let cx = &bench.node.cx;
    let settings = cx.config.plugins.settings(&cx.config.devices);
    let greeting = ToHelper::Daemon { version: VERSION, node: "n".to_owned(), settings };
    let news = cx.senders.news.clone();
    let (teller, work) =
        Helper::new(&PROGRAM, &cx.paths, &greeting).keep(news, |event| Ok(News::Plugins(event.read()?)));
    let task = cx.tasks.spawn(work);
    bench.node.plugins.running = Some(Running { teller, _task: task });
    bench.node.take_plugins(Heard::Up(1)).unwrap();
    bench
}

/// A pod whose container wants a device, and waits for its start.
fn starts(bench: &mut Bench, uid: &str) -> String {
    add(bench, uid, true);
    start(bench, uid)
}

fn add(bench: &mut Bench, uid: &str, admitted: bool) {
    let container = json!({"name": "c", "image": "registry.example/app:1", "resources": {"limits": {GPU: "1"}}});
    let metadata = json!({"name": uid, "namespace": "ns", "uid": uid});
    let spec = json!({"hostNetwork": true, "hostIPC": true, "containers": [container]});
    let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    let mut record = PodRecord::new(uid, "ns", uid, PodSource::Api, &bench.node.cx.clock.now());
    record.admitted = admitted;
    bench.node.cx.pods.insert(Entry::new(Rc::new(pod), record));
    std::fs::create_dir_all(bench.node.cx.paths.pod(uid)).unwrap();
}

fn start(bench: &mut Bench, uid: &str) -> String {
    let (reason, message) = (String::new(), String::new());
    let state = ContainerState::Starting { id: container_id(uid, "c", 0), reason, message };
    let id = bench.container(uid, state);
    let pod = Rc::clone(&bench.node.cx.pods.get(uid).unwrap().pod);
    let of = ContainerRef { uid: uid.to_owned(), container: "c".to_owned(), attempt: 0 };
    assert_eq!(bench.node.start_container(&pod, of, &id, "sha256:gone"), None, "it waits");
    bench.node.plugins_step().unwrap();
    id
}

fn lists(bench: &mut Bench, all: &[(&str, bool)]) {
    let all = all.iter().map(|(id, healthy)| Device { id: (*id).to_owned(), healthy: *healthy, numa: Vec::new() });
    says(bench, FromHelper::Devices { resource: GPU.to_owned(), all: all.collect() });
}

fn says(bench: &mut Bench, line: FromHelper) {
    bench.node.take_plugins(Heard::Line(line)).unwrap();
    bench.node.plugins_step().unwrap();
}

fn allocated(bench: &mut Bench, id: u64, device: &str, pre_start: bool) {
    says(bench, FromHelper::Allocated { id, ids: vec![device.to_owned()], pre_start, edits: json!(Edits::default()) });
}

fn shown(bench: &Bench, uid: &str) -> (String, String) {
    let (reason, message) = bench.record(uid).containers["c"].state.shown();
    (reason.to_owned(), message.to_owned())
}

fn ids(bench: &Bench, uid: &str) -> Vec<String> {
    let kept = &bench.node.launch.containers.plugins.kept;
    kept.get(uid, "c", GPU).map(|one| one.ids.clone()).unwrap_or_default()
}

/// The bench has no images: that is as far as a start gets.
const STARTED: &str = "image sha256:gone is no longer on this node";

#[test]
fn start_waits_for_the_allocation_which_is_on_the_disk_then() {
    let mut bench = bench();
    lists(&mut bench, &[("0", true), ("1", true)]);
    starts(&mut bench, "a");
    starts(&mut bench, "b");
    assert_eq!((bench.node.plugins.last, bench.node.plugins.starts.len()), (1, 2), "one order at a time");
    assert!(!bench.node.cx.paths.plugin_devices("a").exists());
    allocated(&mut bench, 1, "0", false);
    assert_eq!(shown(&bench, "a").1, STARTED);
    let file = std::fs::read_to_string(bench.node.cx.paths.plugin_devices("a")).unwrap();
    assert!(file.contains(r#""ids":["0"]"#), "{file}");
    assert_eq!(bench.node.plugins.last, 2);
    allocated(&mut bench, 1, "1", false);
    assert_eq!(ids(&bench, "a"), ["0"], "nobody waits for this answer");
    allocated(&mut bench, 2, "1", false);
    assert_eq!((ids(&bench, "b"), shown(&bench, "b").1.as_str()), (vec!["1".to_owned()], STARTED));

    // The second start of a container needs no order.
    start(&mut bench, "a");
    assert_eq!((bench.node.plugins.last, bench.node.plugins.starts.len()), (2, 0));
    bench.node.forget("a");
    assert!(ids(&bench, "a").is_empty());
}

#[test]
fn plugin_knows_of_every_start_that_it_wants_to_know_of() {
    let mut bench = bench();
    lists(&mut bench, &[("0", true)]);
    starts(&mut bench, "a");
    allocated(&mut bench, 1, "0", true);
    assert_eq!((bench.node.plugins.last, shown(&bench, "a").1), (2, String::new()), "not yet");
    says(&mut bench, FromHelper::Prepared { id: 2 });
    assert_eq!(shown(&bench, "a").1, STARTED);
    start(&mut bench, "a");
    says(&mut bench, FromHelper::Failed { id: 3, why: "it is hot".to_owned(), gone: false });
    let (reason, message) = shown(&bench, "a");
    assert_eq!(reason, "CreateContainerConfigError");
    assert_eq!(message, "device plugin PreStartContainer rpc failed with err: it is hot");
    assert_eq!(ids(&bench, "a"), ["0"]);
}

#[test]
fn container_waits_until_its_device_is_there() {
    let mut bench = bench();
    lists(&mut bench, &[("0", false)]);
    starts(&mut bench, "a");
    let unhealthy = format!("no healthy devices present; cannot allocate unhealthy devices {GPU}");
    assert_eq!(shown(&bench, "a"), (WAITING_FOR_DEVICE.to_owned(), unhealthy));
    bench.take_dirty();
    lists(&mut bench, &[("0", false)]);
    assert!(bench.take_dirty().is_empty(), "nothing has changed");
    lists(&mut bench, &[("0", true)]);
    assert_eq!(bench.take_dirty(), ["a"]);
    let retries = |state: &ContainerState| match state {
        ContainerState::Waiting { retry_at, .. } => *retry_at,
        other => panic!("{other:?}"),
    };
    assert!(retries(&bench.record("a").containers["c"].state) <= Some(bench.node.cx.mono()));
}

#[test]
fn helper_that_ends_leaves_no_start_behind() {
    let mut bench = bench();
    lists(&mut bench, &[("0", true), ("1", true)]);
    starts(&mut bench, "a");
    allocated(&mut bench, 1, "0", false);
    starts(&mut bench, "b");
    bench.node.take_plugins(Heard::Down("killed".to_owned())).unwrap();
    assert_eq!(shown(&bench, "b").0, WAITING_FOR_DEVICE);
    assert!(bench.node.plugins.starts.is_empty() && bench.node.plugins.ordered.is_empty());
    assert_eq!(ids(&bench, "a"), ["0"], "it keeps its device");
    start(&mut bench, "a");
    assert_eq!(shown(&bench, "a").1, STARTED, "which needs no helper");
    bench.node.take_plugins(Heard::Up(2)).unwrap();
    lists(&mut bench, &[("0", true), ("1", true)]);
    start(&mut bench, "b");
    allocated(&mut bench, 3, "1", false);
    assert_eq!((bench.node.plugins.last, ids(&bench, "b")), (3, vec!["1".to_owned()]));
}

#[test]
fn stop_ends_the_wait() {
    let mut bench = bench();
    lists(&mut bench, &[("0", true)]);
    let id = starts(&mut bench, "a");
    assert!(bench.node.plugins.stop(&id) && !bench.node.plugins.stop(&id));
    starts(&mut bench, "b");
    assert_eq!(bench.node.plugins.last, 1, "the plugin is at work: orders do not pile up");
    allocated(&mut bench, 1, "0", false);
    assert!(ids(&bench, "a").is_empty() && ids(&bench, "b").is_empty());
    assert_eq!(bench.node.plugins.last, 2);
    // The container is started anew meanwhile, as after the loss of the monitor.
    start(&mut bench, "b");
    assert_eq!((bench.node.plugins.last, bench.node.plugins.starts.len()), (2, 1));
    says(&mut bench, FromHelper::Failed { id: 2, why: "no".to_owned(), gone: false });
    assert_eq!(bench.node.plugins.last, 3, "no container waited for that answer");
    allocated(&mut bench, 3, "0", false);
    assert_eq!(ids(&bench, "b"), ["0"]);
}

#[test]
fn device_that_is_gone_is_replaced_on_the_disk() {
    let mut bench = bench();
    lists(&mut bench, &[("0", true)]);
    starts(&mut bench, "a");
    allocated(&mut bench, 1, "0", false);
    lists(&mut bench, &[("1", true)]);
    assert_eq!(ids(&bench, "a"), ["0"], "as long as it runs");
    start(&mut bench, "a");
    assert_eq!(bench.node.plugins.last, 2);
    allocated(&mut bench, 2, "1", false);
    let file = std::fs::read_to_string(bench.node.cx.paths.plugin_devices("a")).unwrap();
    assert!(file.contains(r#""ids":["1"]"#), "{file}");
    lists(&mut bench, &[("0", true), ("1", true)]);
    starts(&mut bench, "b");
    allocated(&mut bench, 3, "0", false);
    assert_eq!([ids(&bench, "a"), ids(&bench, "b")], [["1"], ["0"]], "another pod may have it");
}

#[test]
fn changes_of_a_device_concern_the_pods_that_ask_for_it() {
    let mut bench = bench();
    add(&mut bench, "a", false);
    add(&mut bench, "t", false);
    let pod = &mut bench.node.cx.pods.get_mut("t").unwrap().pod;
    let tpu = serde_json::to_string(&**pod).unwrap().replace(GPU, "example.com/tpu");
    *pod = Rc::new(serde_json::from_str(&tpu).unwrap());
    bench.take_dirty();
    let now = bench.node.cx.mono();
    let later = now.after(Duration::from_secs(60));
    bench.node.cx.look_at = Some(later);
    lists(&mut bench, &[("0", true)]);
    assert!(bench.node.cx.look_at < Some(later), "the first change is reported soon");
    assert_eq!(bench.take_dirty(), ["a"]);
    bench.node.cx.look_at = Some(later);
    for healthy in [false, true, false, true] {
        lists(&mut bench, &[("0", healthy)]);
        assert_eq!(bench.take_dirty(), ["a"]);
    }
    assert_eq!(bench.node.cx.look_at, Some(later), "the others with the regular report");
    bench.node.take_plugins(Heard::Down("killed".to_owned())).unwrap();
    assert_eq!(bench.take_dirty(), ["a", "t"], "plugins of all resources are away");
}

#[test]
fn refused_pod_fails_unless_it_has_run() {
    let mut bench = bench();
    lists(&mut bench, &[("0", true)]);
    starts(&mut bench, "a");
    says(&mut bench, FromHelper::Failed { id: 1, why: "no".to_owned(), gone: false });
    let is_early = is_early(bench.node.cx.mono());
    let end = bench.record("a").terminal.clone().map(|end| (end.reason, end.message));
    let message = "Pod was rejected: Allocate failed due to no, which is unexpected".to_owned();
    assert_eq!(end, (!is_early).then(|| ("UnexpectedAdmissionError".to_owned(), message)));

    starts(&mut bench, "b");
    bench.record_mut("b").sandbox.generation = 2;
    says(&mut bench, FromHelper::Failed { id: 2, why: "no".to_owned(), gone: false });
    assert!(bench.record("b").terminal.is_none());
    let waits = "Allocate failed due to no, which is unexpected".to_owned();
    assert_eq!(shown(&bench, "b"), ("CreateContainerError".to_owned(), waits));
    start(&mut bench, "b");
    says(&mut bench, FromHelper::Failed { id: 3, why: "away".to_owned(), gone: true });
    assert_eq!(shown(&bench, "b"), (WAITING_FOR_DEVICE.to_owned(), "away".to_owned()));
    start(&mut bench, "b");
    allocated(&mut bench, 4, "other", false);
    assert!(ids(&bench, "b").is_empty(), "it was not offered");
}

#[test]
fn pod_is_admitted_while_there_are_devices() {
    let mut bench = bench();
    lists(&mut bench, &[("0", true)]);
    for uid in ["a", "x"] {
        add(&mut bench, uid, false);
        bench.node.settle(uid).unwrap();
    }
    assert!(bench.record("a").admitted && bench.record("a").terminal.is_none());
    let refused = bench.record("x").terminal.clone().map(|end| (end.reason, end.message));
    let why = format!("requested number of devices unavailable for {GPU}. Requested: 1, Available: 0");
    let message = format!("Allocate failed due to {why}, which is unexpected");
    let is_early = is_early(bench.node.cx.mono());
    assert_eq!(refused, (!is_early).then(|| ("UnexpectedAdmissionError".to_owned(), message)));
    assert_eq!(bench.record("x").admitted, !is_early);
}

#[test]
fn statuses_and_clients_are_told_of_devices() {
    let mut bench = bench();
    lists(&mut bench, &[("0", true)]);
    starts(&mut bench, "a");
    allocated(&mut bench, 1, "0", false);
    bench.container("a", running("a", 1));
    let health = |bench: &Bench| {
        let status = json!({"containerStatuses": [{"name": "c"}, {"name": "d"}]});
        let mut status = serde_json::from_value(status).unwrap();
        status::add(&mut status, "a", &bench.node.launch.containers.plugins);
        serde_json::to_value(&status).unwrap()["containerStatuses"].clone()
    };
    let expected = |health: &str| json!([{"name": GPU, "resources": [{"resourceID": "0", "health": health}]}]);
    assert_eq!(health(&bench)[0]["allocatedResourcesStatus"], expected("Healthy"));
    assert!(health(&bench)[1]["allocatedResourcesStatus"].is_null());
    lists(&mut bench, &[("0", false)]);
    assert_eq!(health(&bench)[0]["allocatedResourcesStatus"], expected("Unhealthy"));
    says(&mut bench, FromHelper::Gone { resource: GPU.to_owned() });
    assert_eq!(health(&bench)[0]["allocatedResourcesStatus"], expected("Unknown"));

    let containers = &bench.node.launch.containers;
    let of = |what: &Asked| resources::of(what, &bench.node.cx.pods, &containers.plugins.kept, &containers.cpus);
    let Resources::Pods(pods) = of(&Asked::List {}) else { panic!("pods") };
    assert_eq!((pods.len(), pods[0].name.as_str()), (1, "a"));
    assert_eq!(pods[0].containers[0].devices, [Assigned { resource: GPU.to_owned(), ids: vec!["0".to_owned()] }]);
    assert_eq!(of(&Asked::Get { namespace: "ns".to_owned(), name: "a".to_owned() }), Resources::Pods(pods));
    let none = Asked::Get { namespace: "ns".to_owned(), name: "b".to_owned() };
    assert_eq!(of(&none), Resources::Refused("pod b in namespace ns not found".to_owned()));
    assert_eq!(of(&Asked::Allocatable {}), Resources::Cpus(Vec::new()));
}

#[test]
fn node_without_plugins_has_no_helper_and_waits_for_none() {
    let mut bench = Bench::new();
    bench.node.plugins.start(&bench.node.cx);
    assert!(bench.node.plugins.running.is_none());
    add(&mut bench, "a", true);
    let id = bench.container("a", ContainerState::waiting());
    let pod = Rc::clone(&bench.node.cx.pods.get("a").unwrap().pod);
    let of = ContainerRef { uid: "a".to_owned(), container: "c".to_owned(), attempt: 0 };
    let answer = bench.node.start_container(&pod, of, &id, "sha256:gone");
    assert!(matches!(answer, Some(PodEvent::StartFailed { .. })), "{answer:?}");
    assert!(!bench.node.cx.paths.plugin_devices("a").exists());
}

#[test]
fn too_many_questions_are_not_kept() {
    let mut bench = bench();
    bench.node.plugins.connection = None;
    for id in 0..2 * ANSWERS as u64 {
        says(&mut bench, FromHelper::AskResources { id, what: Asked::List {} });
    }
    assert_eq!(bench.node.plugins.answers.len(), ANSWERS);
}
