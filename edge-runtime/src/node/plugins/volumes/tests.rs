//! From a pod's step to its orders and back, with a helper that is never started. Orders are numbered from 1.

use std::rc::Rc;

use edge_protocol::message::{Object, ObjectDigest, ObjectKey, Report};
use k8s_openapi::api::core::v1::Pod;
use sampan_plugins_control::{FromHelper, MAX_LINE};
use serde_json::json;

use super::super::tests;
use super::*;
use crate::helper::client::Heard;
use crate::node::bench::Bench;
use crate::node::network::connecting::Connecting;
use crate::node::pods::Entry;
use crate::pod::event::PodEvent;
use crate::pod::record::{PodRecord, PodSource, SandboxState};
use crate::store::OutboxRow;
use crate::volume::csi_kept;

const NAME: &str = "d.example.com";
const IN_USE: &str = "kubernetes.io/csi/d.example.com^vol-1";

/// A node with CSI and a helper that has said what it has.
fn bench() -> Bench {
    let mut bench = tests::bench();
    switch(&mut bench, true);
    says(&mut bench, FromHelper::Told {});
    assert!(bench.node.plugins.volumes.swept);
    bench
}

fn switch(bench: &mut Bench, on: bool) {
    let mut config = (*bench.node.cx.config).clone();
    config.plugins.csi = on;
    bench.node.cx.config = Rc::new(config);
}

fn says(bench: &mut Bench, line: FromHelper) {
    bench.node.take_plugins(Heard::Line(line)).unwrap();
    bench.node.volumes_step();
}

fn put(bench: &mut Bench, kind: &str, namespace: &str, name: &str, body: Value) {
    let key = ObjectKey { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() };
    let object = Object { digest: ObjectDigest { key, uid: name.to_owned(), digest: "d".to_owned() }, body };
    bench.node.cx.store.write(|writer| writer.put_object(&object)).unwrap();
}

fn claim(bench: &mut Bench, attached: bool) {
    let csi = json!({"driver": NAME, "volumeHandle": "vol-1"});
    let volume = json!({"name": "pvc-1", "spec": {"csi": csi, "claimRef": {"uid": "c1"}}});
    let body = json!({"metadata": {"uid": "c1"}, "spec": {}, "volume": volume, "attachment": {"attached": attached}});
    put(bench, "PersistentVolumeClaim", "ns", "disk", body);
}

/// A pod with the claim, and its step [`Node::prepare_sandbox`].
fn prepares(bench: &mut Bench, uid: &str) -> Option<PodEvent> {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
    let spec = json!({"hostNetwork": true, "hostIPC": true, "containers": [{"name": "c"}], "volumes": volumes});
    let metadata = json!({"name": uid, "namespace": "ns", "uid": uid});
    let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    let record = PodRecord::new(uid, "ns", uid, PodSource::Api, &bench.node.cx.clock.now());
    bench.node.cx.pods.insert(Entry::new(Rc::new(pod.clone()), record));
    prepares_again(bench, uid, &pod)
}

fn prepares_again(bench: &mut Bench, uid: &str, pod: &Pod) -> Option<PodEvent> {
    bench.sandbox(uid, SandboxState::Preparing);
    let answer = bench.node.prepare_sandbox(uid, pod);
    bench.node.volumes_step();
    answer
}

/// A pod whose sandbox is ready, with its volume by order 1.
fn runs(bench: &mut Bench, uid: &str) {
    claim(bench, true);
    let next = bench.node.plugins.last + 1;
    assert_eq!(prepares(bench, uid), None);
    says(bench, FromHelper::Mounted { id: next, path: "/mnt/v".to_owned() });
    assert!(matches!(bench.record(uid).sandbox.state, SandboxState::Ready { .. }), "{:?}", bench.record(uid).sandbox);
}

fn failure(bench: &Bench, uid: &str) -> (String, String) {
    match &bench.record(uid).sandbox.state {
        SandboxState::Failed { reason, message, .. } => (reason.clone(), message.clone()),
        other => panic!("{other:?}"),
    }
}

fn failed(bench: &mut Bench, id: u64, gone: bool) {
    says(bench, FromHelper::Failed { id, why: "rpc error".to_owned(), gone });
}

#[test]
fn sandbox_waits_until_its_volume_is_mounted() {
    let mut bench = bench();
    claim(&mut bench, true);
    bench.node.plugins.volumes.told = false;
    assert_eq!(prepares(&mut bench, "a"), None);
    assert_eq!(bench.node.plugins.last, 0, "the helper has not said what it has");
    says(&mut bench, FromHelper::Told {});
    assert_eq!((bench.node.plugins.last, bench.node.plugins.volumes.orders.len()), (1, 1));
    assert!(matches!(bench.node.connecting.get("a"), Some(Connecting::Mounting)));
    let kept = csi_kept::load(&bench.node.cx.paths, "a");
    assert_eq!((kept[0].folder.as_str(), kept[0].path.as_str()), ("pvc-1", ""), "on the disk before the order");
    assert_eq!(bench.node.plugins.volumes.kept.in_use(), [IN_USE]);

    says(&mut bench, FromHelper::Mounted { id: 7, path: "/wrong".to_owned() });
    assert_eq!(bench.record("a").sandbox.state, SandboxState::Preparing, "of no order");
    says(&mut bench, FromHelper::Mounted { id: 1, path: "/mnt/v".to_owned() });
    assert!(matches!(bench.record("a").sandbox.state, SandboxState::Ready { .. }));
    assert_eq!(csi_kept::load(&bench.node.cx.paths, "a")[0].path, "/mnt/v");
    assert!(bench.node.plugins.volumes.orders.is_empty() && bench.node.connecting.is_empty());
}

#[test]
fn failed_mount_fails_its_pod_alone() {
    let mut bench = bench();
    claim(&mut bench, true);
    prepares(&mut bench, "a");
    prepares(&mut bench, "b");
    failed(&mut bench, 1, false);
    let text = "MountVolume.SetUp failed for volume \"pvc-1\" : rpc error";
    assert_eq!(failure(&bench, "a"), ("FailedMount".to_owned(), text.to_owned()));
    assert_eq!(bench.record("b").sandbox.state, SandboxState::Preparing, "its driver may hang");
    // The pod's own back-off repeats it.
    let pod = Rc::clone(&bench.node.cx.pods.get("a").unwrap().pod);
    assert_eq!(prepares_again(&mut bench, "a", &pod), None);
    says(&mut bench, FromHelper::Mounted { id: 3, path: "/mnt/v".to_owned() });
    assert!(matches!(bench.record("a").sandbox.state, SandboxState::Ready { .. }));
}

#[test]
fn order_that_is_too_long_is_a_failure() {
    let mut bench = bench();
    let csi = json!({"driver": NAME, "volumeHandle": "vol-1", "volumeAttributes": {"a": "x".repeat(MAX_LINE)}});
    let volume = json!({"name": "pvc-1", "spec": {"csi": csi, "claimRef": {"uid": "c1"}}});
    let body = json!({"metadata": {"uid": "c1"}, "spec": {}, "volume": volume, "attachment": {"attached": true}});
    put(&mut bench, "PersistentVolumeClaim", "ns", "disk", body);
    assert_eq!(prepares(&mut bench, "a"), None);
    assert!(failure(&bench, "a").1.ends_with("too long together"), "{:?}", failure(&bench, "a"));
    assert!(bench.node.plugins.volumes.orders.is_empty() && bench.node.connecting.is_empty());
}

#[test]
fn volume_in_use_is_told_before_it_is_attached() {
    let mut bench = bench();
    claim(&mut bench, false);
    bench.node.cx.look_at = Some(bench.node.cx.mono());
    assert_eq!(prepares(&mut bench, "a"), None);
    let (reason, message) = failure(&bench, "a");
    assert_eq!(reason, "FailedAttachVolume");
    assert!(message.ends_with("Volume not attached according to node status"), "{message}");
    assert_eq!(bench.node.plugins.volumes.kept.in_use(), [IN_USE]);
    assert_eq!(bench.node.cx.look_at, None, "the Node object is due");
}

#[test]
fn teardown_waits_until_the_volume_is_unmounted() {
    let mut bench = bench();
    runs(&mut bench, "a");
    bench.sandbox("a", SandboxState::TearingDown);
    assert_eq!(bench.node.disconnect("a"), None);
    bench.node.volumes_step();
    assert_eq!(bench.node.plugins.last, 2);
    failed(&mut bench, 2, true);
    let text = "UnmountVolume.TearDown failed for volume \"pvc-1\" : rpc error";
    assert_eq!(failure(&bench, "a"), ("FailedKillPod".to_owned(), text.to_owned()));
    assert_eq!(bench.node.plugins.volumes.kept.in_use(), [IN_USE], "it is not detached");
    bench.sandbox("a", SandboxState::TearingDown);
    assert_eq!(bench.node.disconnect("a"), None);
    bench.node.volumes_step();
    assert_eq!(bench.node.disconnect("a"), None, "once more while it waits");
    assert!(bench.node.cx.paths.csi_volumes("a").exists());
    says(&mut bench, FromHelper::Unmounted { id: 3 });
    assert_eq!(bench.record("a").sandbox.state, SandboxState::Gone);
    assert!(!bench.node.cx.paths.csi_volumes("a").exists());
    assert!(bench.node.plugins.volumes.kept.in_use().is_empty());
}

#[test]
fn pod_that_ends_while_it_is_mounted_is_unmounted() {
    let mut bench = bench();
    claim(&mut bench, true);
    prepares(&mut bench, "a");
    bench.sandbox("a", SandboxState::TearingDown);
    assert_eq!(bench.node.disconnect("a"), None, "the answer comes first");
    says(&mut bench, FromHelper::Mounted { id: 1, path: "/mnt/v".to_owned() });
    assert!(matches!(bench.node.connecting.get("a"), Some(Connecting::Unmounting)));
    assert_eq!(bench.node.plugins.last, 2);
    says(&mut bench, FromHelper::Unmounted { id: 2 });
    assert_eq!(bench.record("a").sandbox.state, SandboxState::Gone);
}

#[test]
fn helper_that_ends_leaves_no_pod_behind() {
    let mut bench = bench();
    runs(&mut bench, "runs");
    prepares(&mut bench, "a");
    bench.node.take_plugins(Heard::Down("killed".to_owned())).unwrap();
    assert!(failure(&bench, "a").1.ends_with("edge-plugins has ended; it is started again"));
    assert!(!bench.node.plugins.volumes.told && bench.node.plugins.volumes.orders.is_empty());
    bench.node.take_plugins(Heard::Up(2)).unwrap();
    let before = bench.node.plugins.last;
    says(&mut bench, FromHelper::Told {});
    let orders = &bench.node.plugins.volumes.orders;
    assert_eq!((orders.len(), orders[0].uid.as_str(), orders[0].what), (1, "runs", What::Repeat));
    says(&mut bench, FromHelper::Mounted { id: before + 1, path: "/mnt/v".to_owned() });
    assert!(bench.node.plugins.volumes.orders.is_empty());
    assert!(matches!(bench.record("runs").sandbox.state, SandboxState::Ready { .. }));
}

#[test]
fn order_of_a_running_pod_backs_off_until_a_driver_comes() {
    let mut bench = bench();
    runs(&mut bench, "a");
    says(&mut bench, FromHelper::Again { pod: "a".to_owned(), volume: "other".to_owned() });
    says(&mut bench, FromHelper::Again { pod: "b".to_owned(), volume: "pvc-1".to_owned() });
    assert_eq!(bench.node.plugins.last, 1, "there is no such volume");
    says(&mut bench, FromHelper::Again { pod: "a".to_owned(), volume: "pvc-1".to_owned() });
    assert_eq!(bench.node.plugins.last, 2);
    failed(&mut bench, 2, true);
    let now = bench.node.cx.mono();
    let due = bench.node.plugins.volumes.wake(now).expect("it is repeated");
    assert!(due <= now.after(AGAIN.0) && bench.node.plugins.last == 2);
    assert!(matches!(bench.record("a").sandbox.state, SandboxState::Ready { .. }), "it runs on");
    bench.node.plugins.volumes.orders[0].failures = 30;
    bench.node.plugins.volumes.orders[0].id = Some(3);
    failed(&mut bench, 3, false);
    let due = bench.node.plugins.volumes.wake(now).expect("it is repeated");
    assert!(due >= now.after(AGAIN.1) && due <= bench.node.cx.mono().after(AGAIN.1));
    says(&mut bench, FromHelper::Drivers { drivers: json!([{"name": NAME}]) });
    assert_eq!((bench.node.plugins.last, bench.node.plugins.volumes.wake(now)), (3, None));
}

/// Number and drivers of the report that waits.
fn reported(bench: &Bench) -> Option<(u64, Value)> {
    let rows = bench.node.cx.store.outbox().unwrap().into_iter();
    let of = |row: OutboxRow| if let Report::CsiNode { drivers } = row.report { Some((row.id, drivers)) } else { None };
    rows.filter_map(of).next_back()
}

#[test]
fn drivers_are_reported_when_they_change() {
    let mut bench = tests::bench();
    switch(&mut bench, true);
    let one = json!([{"name": NAME}]);
    bench.node.report_drivers().unwrap();
    says(&mut bench, FromHelper::Drivers { drivers: json!([]) });
    assert_eq!(reported(&bench), None, "a helper that has just started has found none yet");
    says(&mut bench, FromHelper::Told {});
    says(&mut bench, FromHelper::Drivers { drivers: one.clone() });
    let first = reported(&bench).expect("reported");
    assert_eq!(first.1, one);
    says(&mut bench, FromHelper::Drivers { drivers: one.clone() });
    assert_eq!(reported(&bench), Some(first.clone()), "nothing has changed");
    bench.node.report_drivers().unwrap();
    let again = reported(&bench).expect("for another bridge");
    assert!(again.0 > first.0 && again.1 == one);
    says(&mut bench, FromHelper::Drivers { drivers: json!([]) });
    assert_eq!(reported(&bench).map(|(_, drivers)| drivers), Some(json!([])), "the last one has gone");
}

#[test]
fn restarted_daemon_finds_what_pods_have() {
    let mut bench = bench();
    runs(&mut bench, "a");
    let volumes = &mut bench.node.plugins.volumes;
    volumes.kept = AllKept::default();
    volumes.load(&bench.node.cx.paths);
    assert!(volumes.kept.has("a") && volumes.kept.in_use() == [IN_USE]);
    // A pod that the store does not know is swept with the next connection, but not while the store may not know all.
    drop(bench.node.cx.pods.remove("a"));
    bench.node.cx.recovery = crate::node::recovery::state::Recovery::new(true);
    bench.node.plugins.volumes.swept = false;
    bench.node.volumes_step();
    assert!(bench.node.plugins.volumes.kept.has("a") && !bench.node.plugins.volumes.swept);
    bench.node.cx.recovery = Default::default();
    bench.node.volumes_step();
    assert!(bench.node.plugins.volumes.swept);
    assert_eq!(bench.node.plugins.volumes.kept.in_use(), [IN_USE], "it is still mounted: it must not be detached");
    let last = bench.node.plugins.last;
    failed(&mut bench, last, true);
    assert_eq!(bench.node.plugins.volumes.orders.len(), 1, "the driver is away: the order is repeated");
    bench.node.plugins.volumes.orders[0].id = Some(last);
    says(&mut bench, FromHelper::Unmounted { id: last });
    assert!(!bench.node.plugins.volumes.kept.has("a") && bench.node.plugins.volumes.orders.is_empty());
    assert!(!bench.node.cx.paths.csi_volumes("a").exists());
}

#[test]
fn new_sandbox_has_no_volume_from_before_a_switch_off() {
    let mut bench = bench();
    runs(&mut bench, "a");
    switch(&mut bench, false);
    let pod = Rc::clone(&bench.node.cx.pods.get("a").unwrap().pod);
    let answer = prepares_again(&mut bench, "a", &pod);
    assert!(matches!(answer, Some(PodEvent::SandboxFailed { .. })), "{answer:?}");
    let kept = csi_kept::load(&bench.node.cx.paths, "a");
    assert_eq!((kept.len(), kept[0].path.as_str()), (1, ""), "it is not mounted again, and is unmounted one day");
}

#[test]
fn switched_off_it_orders_nothing() {
    let mut bench = tests::bench();
    claim(&mut bench, true);
    says(&mut bench, FromHelper::Told {});
    assert!(!bench.node.plugins.volumes.told && !bench.node.plugins.volumes.swept);
    let answer = prepares(&mut bench, "a");
    let Some(PodEvent::SandboxFailed { reason, message }) = answer else { panic!("{answer:?}") };
    assert_eq!(reason, "FailedMount");
    assert!(message.contains("persistentVolumeClaim of a csi (d.example.com) volume is not supported"), "{message}");
    assert!(bench.node.plugins.volumes.orders.is_empty() && !bench.node.cx.paths.csi_volumes("a").exists());
}
