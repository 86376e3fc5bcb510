//! Order and bounds of what the helper is told, and what its messages do.

use std::collections::BTreeSet;

use edge_protocol::message::{Object, ObjectDigest};
use sampan_devices_control::Row;
use serde_json::json;
use tempfile::TempDir;

use super::*;

/// A node, and a helper that is connected and knows nothing yet.
fn bench() -> (TempDir, Context, Devices) {
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    let mut devices = Devices::default();
    devices.heard(&mut cx, Heard::Up(1)).unwrap();
    (folder, cx, devices)
}

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey { kind: kind.to_owned(), namespace: "ns".to_owned(), name: name.to_owned() }
}

fn put(cx: &mut Context, key: ObjectKey) {
    let digest = ObjectDigest { key, uid: "u".to_owned(), digest: "d".to_owned() };
    let object = Object { digest, body: json!({"metadata": {"uid": "u"}}) };
    cx.store.write(|writer| writer.put_object(&object)).unwrap();
}

#[test]
fn helper_learns_of_each_break_of_the_link() {
    let (_folder, mut cx, mut devices) = bench();
    let features = [DEVICES.to_owned()];
    assert_eq!(devices.untold.links, [false]);
    devices.connected(&mut cx, &features).unwrap();
    assert_eq!(devices.untold.links, [false, true]);
    devices.untold.links.clear();
    devices.acked(7, Vec::new());
    devices.connected(&mut cx, &features).unwrap();
    assert_eq!(devices.untold.links, [false, true], "the batch under way is void");
    assert!(devices.untold.ack.is_none(), "so is its acknowledgement");
    devices.disconnected();
    assert_eq!(devices.untold.links, [true, false], "the last two");
    devices.untold.links.clear();
    devices.connected(&mut cx, &[]).unwrap();
    assert_eq!(devices.untold.links, [false], "an older bridge takes no reports");
}

#[test]
fn helper_that_went_is_told_nothing() {
    let (_folder, mut cx, mut devices) = bench();
    devices.heard(&mut cx, Heard::Down("killed".to_owned())).unwrap();
    assert!(devices.take(&key("Device", "a")), "no pod is concerned");
    assert!(devices.gone(&mut cx, &key("Rule", "a"), "u").unwrap());
    devices.connected(&mut cx, &[DEVICES.to_owned()]).unwrap();
    devices.acked(1, Vec::new());
    devices.call(&cx, 1, Value::Null);
    devices.responded(1, Value::Null);
    assert!(devices.untold.is_empty());
}

#[test]
fn new_helper_gets_all_that_is_stored() {
    let (_folder, mut cx, mut devices) = bench();
    for (kind, name) in [("Device", "a"), ("DeviceModel", "m"), ("Rule", "r"), ("ConfigMap", "c")] {
        put(&mut cx, key(kind, name));
    }
    cx.store.write(|writer| writer.keep_device("u", "record", 0)).unwrap();
    devices.heard(&mut cx, Heard::Up(2)).unwrap();
    assert_eq!(devices.connection, Some(2));
    let kinds: BTreeSet<Kind> = devices.untold.objects.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, BTreeSet::from([Kind::Device, Kind::DeviceModel, Kind::Rule]));
    assert_eq!(devices.untold.objects.len(), 3);
    assert_eq!(devices.untold.kept, [("u".to_owned(), "record".to_owned())]);
    assert!(devices.untold.told);
}

#[test]
fn deletions_are_told_first_and_acknowledgements_last() {
    let (_folder, mut cx, mut devices) = bench();
    put(&mut cx, key("Device", "there"));
    for name in ["there", "deleted since", "there"] {
        assert!(devices.take(&key("Device", name)));
    }
    assert!(!devices.take(&key("Secret", "s")));
    devices.gone(&mut cx, &key("Device", "other"), "v").unwrap();
    devices.acked(7, Vec::new());
    devices.untold.kept.push(("u".to_owned(), "record".to_owned()));
    devices.untold.stored = Some(3);
    devices.call(&cx, 1, Value::Null);
    let mut told = Vec::new();
    while !devices.untold.is_empty() {
        told.push(match devices.untold.next(&cx) {
            None => "nothing",
            Some(ToHelper::Gone { .. }) => "gone",
            Some(ToHelper::Object { uid, .. }) if uid == "u" => "object",
            Some(ToHelper::Kept { .. }) => "kept",
            Some(ToHelper::Told {}) => "told",
            Some(ToHelper::Link { up: false, .. }) => "link",
            Some(ToHelper::Stored { batch: 3 }) => "stored",
            Some(ToHelper::Call { id: 1, .. }) => "call",
            Some(ToHelper::Ack { batch: 7, .. }) => "ack",
            Some(other) => panic!("{other:?}"),
        });
    }
    assert_eq!(told, ["gone", "nothing", "object", "kept", "told", "link", "stored", "call", "ack"]);
}

#[test]
fn calls_leave_room_for_answers() {
    let (_folder, mut cx, mut devices) = bench();
    let waiting = |devices: &Devices| devices.untold.lines.len();
    (0..=64).for_each(|id| devices.call(&cx, id, Value::Null));
    assert_eq!(waiting(&devices), LINES);
    (0..=64).for_each(|id| devices.responded(id, Value::Null));
    assert_eq!(waiting(&devices), 2 * LINES);
    for _ in 0..=64 {
        let asked = FromHelper::Pod { uid: "unknown".to_owned() };
        devices.heard(&mut cx, Heard::Line(asked)).unwrap();
    }
    assert_eq!(waiting(&devices), 3 * LINES);
    let last = devices.untold.lines.back();
    assert_eq!(last, Some(&ToHelper::Pod { uid: "unknown".to_owned(), namespace: None }));
}

#[test]
fn helper_decides_what_is_kept_of_a_device() {
    let (_folder, mut cx, mut devices) = bench();
    let row = |uid: &str, record: &str| Row { uid: uid.to_owned(), record: record.to_owned() };
    for (rows, expected) in [(vec![row("u", "r"), row("v", "s")], 2), (vec![row("u", "")], 1)] {
        devices.heard(&mut cx, Heard::Line(FromHelper::Keep { rows, durable: true })).unwrap();
        assert_eq!(cx.store.kept_devices().unwrap().len(), expected);
    }
    assert!(cx.store.is_synced());
    devices.gone(&mut cx, &key("Device", "a"), "v").unwrap();
    assert_eq!(cx.store.kept_devices().unwrap().len(), 1, "the module is off, and may be on again");
}
