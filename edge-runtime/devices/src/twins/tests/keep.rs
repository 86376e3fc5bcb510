//! Stored state: its content, when it is written, and how a new process restores it.

use super::*;
use crate::twins::tell::ROWS;

/// A process that starts with these rows.
fn started(rows: &[Row], led: &str) -> World {
    let mut world = World::new(&settings());
    for row in rows {
        world.twins.kept(row.uid.clone(), row.record.clone());
    }
    world.model();
    world.device("t1", UID, device(led));
    world.twins.told(world.now);
    world
}

#[test]
fn d14_while_there_is_a_link_only_wishes_are_written() {
    let mut world = World::lab("ON");
    for n in 0..7_200 {
        world.report("temp", &format!("{}", n % 100));
        for (batch, _) in world.reports() {
            world.twins.acked(world.now, batch, &[]);
        }
        world.wait(1_000);
        assert!(world.tick().kept().is_empty());
        world.said.clear();
    }
    assert!(world.twins.set(world.now, &id("t1"), "led", "DIM").is_ok());
    assert!(world.tick().kept().is_empty());
    world.wait(1_000);
    assert_eq!(world.tick().kept().len(), 1);
    world.wait(60_000);
    assert!(world.tick().kept().is_empty());
    world.report("temp", "1");
    world.twins.end(world.now);
    assert_eq!(world.tick().kept().len(), 1);
}

#[test]
fn d14_offline_values_are_stored_each_minute() {
    let mut world = World::lab("");
    world.link(false);
    let mut written = Vec::new();
    for n in 0..600 {
        world.report("temp", &format!("{}", n % 100));
        world.wait(1_000);
        written.extend(world.tick().kept());
        world.said.clear();
    }
    assert_eq!(written.len(), 10);
    let mut restored = started(&written[9..], "");
    restored.link(true);
    restored.tick();
    let told = restored.acked();
    assert_eq!(told.twins[0].reported.as_ref().map(|value| value.at_ms), Some(START.wall + 599_000));

    // A value that is stored as pending is stored as reported later. Otherwise a start would report it after newer
    // values.
    world.link(true);
    world.tick();
    world.acked();
    world.wait(1_000);
    assert!(world.tick().kept().is_empty(), "the medium has had its part");
    world.wait(30_000);
    let told = world.tick().kept();
    assert_eq!(told.len(), 1);
    let mut restored = started(&told, "");
    restored.link(true);
    assert!(restored.tick().reports().is_empty());
    // The first value of the device is news, whatever was kept.
    restored.report("temp", "99");
    assert_eq!(reported(&restored.acked(), "temp"), Some("99"));
    world.wait(3_600_000);
    assert!(world.tick().kept().is_empty());
}

#[test]
fn rows_may_arrive_before_or_after_their_device() {
    let mut world = World::lab("ON");
    world.t1(
        "twin/update",
        r#"{"twin":{"led":{"expected":{"value":"DIM"},"actual":{"value":"ON"}},"x":{"actual":{"value":"1"}}}}"#,
    );
    world.t1("state/update", r#"{"state":"online"}"#);
    let seq = world.acked().seq;
    world.twins.end(world.now);
    let rows = world.tick().kept();
    for first in [true, false] {
        let mut world = World::new(&settings());
        let kept = |world: &mut World| world.twins.kept(UID.into(), rows[0].record.clone());
        if first {
            kept(&mut world);
        }
        world.device("t1", UID, device("ON"));
        if !first {
            kept(&mut world);
        }
        world.twins.told(world.now);
        assert_eq!(world.twin("led", "expected").as_deref(), Some("DIM"));
        assert_eq!(world.twin("led", "actual").as_deref(), Some("ON"));
        assert_eq!(world.twin("x", "actual").as_deref(), Some("1"));
        world.link(true);
        world.t1("state/update", r#"{"state":"online"}"#);
        assert!(world.acked().seq > seq);
    }
    // The cloud has set another value meanwhile.
    let mut world = started(&rows, "OFF");
    assert_eq!(world.twin("led", "expected").as_deref(), Some("OFF"));
}

#[test]
fn rows_without_a_device_are_deleted_and_broken_ones_ignored() {
    let row = |uid: &str| Row { uid: uid.into(), record: "{broken".into() };
    let mut world = started(&[row(UID), row("other")], "ON");
    world.wait(3_600_000);
    let forgotten = world.tick().kept().into_iter().any(|row| row.record.is_empty());
    assert!(!forgotten, "without a link nobody knows what is to come");
    world.link(true);
    world.wait(1);
    assert_eq!(world.tick().kept(), [Row { uid: "other".into(), record: String::new() }]);
    assert_eq!(world.twin("led", "expected").as_deref(), Some("ON"));
}

#[test]
fn rows_that_a_new_daemon_lacks_are_sent_again() {
    let mut world = World::lab("ON");
    assert!(world.twins.set(world.now, &id("t1"), "led", "DIM").is_ok());
    world.wait(1_000);
    let rows = world.tick().kept();
    for (rows, again) in [(rows, 0), (Vec::new(), 1)] {
        world.twins.daemon_came(world.now);
        world.model();
        world.device("t1", UID, device("ON"));
        rows.into_iter().for_each(|row| world.twins.kept(row.uid, row.record));
        world.twins.told(world.now);
        world.wait(1_000);
        assert_eq!(world.tick().kept().len(), again);
        assert_eq!(world.twin("led", "expected").as_deref(), Some("DIM"));
    }
}

#[test]
fn many_rows_are_many_lines() {
    let mut world = World::new(&settings());
    for n in 0..1_000 {
        let body = json!({"spec": {"properties": [{"name": "led", "desired": {"value": "x".repeat(1_000)}}]}});
        world.device(&format!("d{n}"), &format!("uid-{n}"), body);
    }
    world.twins.told(world.now);
    world.wait(60_000);
    world.tick();
    let lines: Vec<usize> = world
        .said
        .iter()
        .filter_map(|said| match said {
            Output::Tell(line @ FromHelper::Keep { .. }) => serde_json::to_vec(line).ok().map(|text| text.len()),
            _ => None,
        })
        .collect();
    assert!(lines.len() > 3 && lines.iter().all(|line| *line < 2 * ROWS), "{lines:?}");
    assert_eq!(world.kept().len(), 1_000);
}

/// Where the module was off, the bridge sends devices after the daemon has sent all objects.
#[test]
fn late_device_gets_its_stored_state() {
    let mut old = World::lab("ON");
    assert!(old.twins.set(old.now, &id("t1"), "led", "DIM").is_ok());
    old.link(false);
    old.report("temp", "7");
    old.twins.end(old.now);
    let rows = old.tick().kept();
    let mut world = World::new(&settings());
    rows.into_iter().for_each(|row| world.twins.kept(row.uid, row.record));
    world.twins.told(world.now);
    world.link(true);
    world.tick();
    world.model();
    world.device("t1", UID, device("ON"));
    assert_eq!(world.twin("led", "expected").as_deref(), Some("DIM"));
    assert_eq!(reported(&world.acked(), "temp"), Some("7"));
    world.wait(601_000);
    assert!(world.tick().kept().iter().all(|row| !row.record.is_empty()));
}
