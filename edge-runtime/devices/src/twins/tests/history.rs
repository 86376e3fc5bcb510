//! Histories: which devices have one, its content, and when it is written.

use super::*;

/// `t1` asks for this many changes.
fn asking(most: &str) -> Value {
    let mut body = device("");
    body["metadata"]["annotations"] = json!({"sampan.dev/history": most});
    body
}

fn lab(most: &str) -> World {
    let mut world = World::new(&settings());
    world.model();
    world.device("t1", UID, asking(most));
    world.twins.told(world.now);
    world.link(true);
    world
}

fn changes(world: &World, property: &str) -> Vec<String> {
    let history = world.twins.history(&id("t1"), Some(property)).expect("a history");
    let changes = history["properties"][0]["changes"].as_array().expect("changes");
    changes.iter().map(|change| change["value"].as_str().expect("a value").to_owned()).collect()
}

fn rows_of_histories(world: &mut World) -> Vec<Row> {
    world.kept().into_iter().filter(|row| row.uid.starts_with("history/")).collect()
}

/// Texts of the events about it.
fn refusals(world: &mut World) -> Vec<String> {
    let refusal = |said: &Output| match said {
        Output::Tell(FromHelper::Event { reason, message, .. }) if reason == "HistoryRefused" => Some(message.clone()),
        _ => None,
    };
    let found = world.said.iter().filter_map(refusal).collect();
    world.said.clear();
    found
}

/// A process that starts with these rows.
fn started(rows: &[Row], most: &str) -> World {
    let mut world = World::new(&settings());
    rows.iter().for_each(|row| world.twins.kept(row.uid.clone(), row.record.clone()));
    world.model();
    world.device("t1", UID, asking(most));
    world.twins.told(world.now);
    world
}

#[test]
fn the_last_changes_are_there_with_their_times() {
    let mut world = lab("3");
    for value in ["1", "2", "2", "3", "4"] {
        world.report("temp", value);
        world.wait(10);
    }
    world.report("led", "ON");
    assert_eq!(changes(&world, "temp"), ["2", "3", "4"]);
    let all = world.twins.history(&id("t1"), None).expect("a history");
    assert_eq!((&all["most"], all["properties"].as_array().map(Vec::len)), (&json!(3), Some(2)));
    let first = &all["properties"][1]["changes"][0];
    assert_eq!(*first, json!({"value": "2", "at": "2023-11-14T22:13:20.010Z", "atMs": START.wall + 10}));
    assert!(world.twins.history(&id("t1"), Some("speed")).is_err_and(|why| why.contains("speed")));
    assert!(world.twins.history(&id("t2"), None).is_err_and(|why| why.contains("default/t2")));
    // Fewer are wanted, then none.
    world.device("t1", UID, asking("1"));
    assert_eq!(changes(&world, "temp"), ["4"]);
    world.device("t1", UID, device(""));
    assert!(world.twins.history(&id("t1"), None).is_err_and(|why| why.contains("sampan.dev/history")));
}

#[test]
fn malformed_number_is_reported_once() {
    let mut world = lab("many");
    let why = "annotation sampan.dev/history: \"many\" is no number from 0 to 1000: no history is kept";
    assert_eq!(refusals(world.tick()), [why]);
    world.device("t1", UID, asking("many"));
    assert!(refusals(world.tick()).is_empty());
    world.report("temp", "1");
    assert!(world.twins.history(&id("t1"), None).is_err());
    world.device("t1", UID, asking("1001"));
    assert_eq!(refusals(world.tick()).len(), 1);
    world.device("t1", UID, asking("5"));
    world.device("t1", UID, asking("many"));
    assert_eq!(refusals(world.tick()).len(), 1);
}

/// Online, a history is written only at the end; without the annotation it is never written.
#[test]
fn histories_are_written_when_reported_values_are() {
    let mut world = lab("100");
    for n in 0..600 {
        world.report("temp", &format!("{}", n % 100));
        world.reports().into_iter().for_each(|(batch, _)| world.twins.acked(world.now, batch, &[]));
        world.wait(1_000);
        world.tick();
    }
    assert!(rows_of_histories(&mut world).is_empty());
    assert!(world.twins.set(world.now, &id("t1"), "led", "DIM").is_ok());
    world.wait(1_000);
    world.tick();
    assert!(rows_of_histories(&mut world).is_empty(), "a desired value takes no history with it");
    world.link(false);
    world.wait(60_000);
    world.tick();
    assert_eq!(rows_of_histories(&mut world).len(), 1);
    world.wait(3_600_000);
    world.tick();
    assert!(rows_of_histories(&mut world).is_empty(), "nothing has changed");
    world.link(true);
    world.report("temp", "77");
    world.twins.end(world.now);
    world.tick();
    assert_eq!(rows_of_histories(&mut world).len(), 1);

    let mut off = World::lab("ON");
    off.link(false);
    off.report("temp", "1");
    off.wait(60_000);
    off.tick();
    off.twins.end(off.now);
    off.tick();
    assert!(rows_of_histories(&mut off).is_empty());
}

/// Offline, with the largest history there may be, changing all the time.
#[test]
fn d14_history_keeps_to_the_write_limit() {
    let mut world = lab("1000");
    world.link(false);
    let mut written = 0;
    for n in 0..4 * 3_600 {
        world.report("led", &format!("{n:0>400}"));
        world.wait(1_000);
        world.tick();
        written += world.kept().iter().map(|row| 2 * row.record.len().div_ceil(4_096) * 4_096).sum::<usize>();
        world.said.clear();
    }
    assert!((1 << 20..5 << 20).contains(&written), "{written} bytes in four hours");
}

#[test]
fn written_history_is_restored_after_a_start() {
    let mut world = lab("3");
    for value in ["1", "2", "3"] {
        world.report("temp", value);
    }
    world.report("led", "ON");
    world.twins.end(world.now);
    let rows = world.tick().kept();
    // Before or after the daemon has sent all, and for the present number of changes.
    let mut restored = started(&rows, "2");
    assert_eq!(changes(&restored, "temp"), ["2", "3"]);
    restored.report("temp", "3");
    restored.report("temp", "4");
    assert_eq!(changes(&restored, "temp"), ["3", "4"]);
    let mut late = World::new(&settings());
    rows.iter().for_each(|row| late.twins.kept(row.uid.clone(), row.record.clone()));
    late.twins.told(late.now);
    late.device("t1", UID, asking("3"));
    assert_eq!(changes(&late, "temp"), ["1", "2", "3"]);
    // A helper that has lived on knows better, and gives a new daemon all of it.
    world.report("temp", "5");
    world.twins.daemon_came(world.now);
    world.device("t1", UID, asking("3"));
    rows.iter().for_each(|row| world.twins.kept(row.uid.clone(), row.record.clone()));
    world.twins.told(world.now);
    assert_eq!(changes(&world, "temp"), ["2", "3", "5"]);
    world.twins.end(world.now);
    world.tick();
    assert_eq!(rows_of_histories(&mut world).len(), 2);
    // Rows of deleted devices are deleted; rows of a device with a history stay.
    world.link(true);
    world.wait(601_000);
    assert!(rows_of_histories(world.tick()).is_empty());
}

#[test]
fn rows_go_with_the_device_the_property_and_the_annotation() {
    let gone = |change: fn(&mut World)| {
        let mut world = lab("3");
        world.report("temp", "1");
        world.report("led", "ON");
        world.twins.end(world.now);
        world.tick();
        world.said.clear();
        change(&mut world);
        world.tick();
        let rows = rows_of_histories(&mut world);
        assert!(rows.iter().all(|row| row.record.is_empty()), "{rows:?}");
        rows.into_iter().map(|row| row.uid).collect::<Vec<_>>()
    };
    let both = ["history/uid-1/led", "history/uid-1/temp"];
    assert_eq!(gone(|world| world.device("t1", UID, device(""))), both);
    assert_eq!(gone(|world| world.twins.gone(world.now, Kind::Device, &id("t1"), UID)), both);
    assert_eq!(gone(|world| world.device("t1", "uid-2", asking("3"))), both);
    let without_led = |world: &mut World| {
        let mut body = asking("3");
        body["spec"]["properties"] = json!([{"name": "temp"}]);
        world.device("t1", UID, body);
    };
    assert_eq!(gone(without_led), ["history/uid-1/led"]);
    // A process that knows of no history any more.
    let mut world = lab("3");
    world.report("temp", "1");
    world.twins.end(world.now);
    let rows = world.tick().kept();
    let mut world = started(&rows, "0");
    world.link(true);
    world.wait(601_000);
    let forgotten = rows_of_histories(world.tick());
    assert_eq!(forgotten, [Row { uid: "history/uid-1/temp".into(), record: String::new() }]);
}

/// A thousand devices with the largest histories get no more memory than permitted for all.
#[test]
fn d12_histories_of_all_devices_share_one_bound() {
    let mut world = World::new(&settings());
    let body = json!({"metadata": {"annotations": {"sampan.dev/history": "1000"}},
        "spec": {"properties": [{"name": "p"}]}});
    let held = |world: &World| {
        let devices = world.twins.devices.keys().map(|id| world.twins.history(id, None).expect("a history"));
        devices.map(|history| history["properties"][0]["changes"].as_array().map_or(0, Vec::len)).sum::<usize>()
    };
    world.device("d0", "uid-0", body.clone());
    world.twins.told(world.now);
    let report = |world: &mut World, name: &str, n: usize| {
        let text = format!(r#"{{"twin":{{"p":{{"actual":{{"value":"{n}"}}}}}}}}"#);
        world.say(&format!("$hw/events/device/default/{name}/twin/update"), &text);
        world.said.clear();
    };
    (0..2_000).for_each(|n| report(&mut world, "d0", n));
    let most = held(&world);
    assert!((500..=1_000).contains(&most), "{most}");
    for n in 1..400 {
        world.device(&format!("d{n}"), &format!("uid-{n}"), body.clone());
    }
    world.tick();
    assert!(held(&world) <= 8, "its part has become small");
    for n in 0..400 * 20 {
        report(&mut world, &format!("d{}", n % 400), n);
    }
    assert!((400 * 3..=400 * 8).contains(&held(&world)), "{}", held(&world));
}
