//! Messages to devices and their programs.

use super::*;

#[test]
fn an_update_is_answered_by_result_document_and_delta() {
    let mut world = World::lab("ON");
    world.tick();
    world.wait(1_000);
    world.said.clear();
    world.t1(
        "twin/update",
        r#"{"event_id":"7","twin":{"temp":{"actual":{"value":"21.5"}},"led":{"actual":{"value":"OFF"}}}}"#,
    );
    let published = world.published();
    let topics: Vec<&str> = published.iter().map(|(topic, _)| topic.as_str()).collect();
    assert_eq!(topics, ["t1/twin/update/result", "t1/twin/update/document", "t1/twin/update/delta"]);
    assert_eq!(
        published[0].1,
        r#"{"event_id":"7","timestamp":1700000001000,"twin":{"led":{"actual":{"value":"OFF","metadata":{"timestamp":1700000001000}},"optional":true,"metadata":{"type":"string"}},"temp":{"actual":{"value":"21.5","metadata":{"timestamp":1700000001000}},"optional":true,"metadata":{"type":"float"}}}}"#
    );
    assert!(published[2].1.ends_with(r#""delta":{"led":"ON"}}"#), "{}", published[2].1);
    world.report("led", "ON");
    world.wait(1_000);
    assert_eq!(world.tick().topics(), ["t1/twin/update/result", "t1/twin/update/document"]);
}

#[test]
fn all_of_an_update_is_done_or_nothing() {
    let mut world = World::lab("");
    let long = "x".repeat(4_097);
    let many = "m".repeat(129);
    for (twin, code) in [
        (r#""temp":{"actual":{"value":"126"}}"#.to_owned(), 400),
        (r#""temp":{"actual":{"value":"warm"}}"#.to_owned(), 400),
        (r#""temp":{"actual":{}}"#.to_owned(), 400),
        (r#""temp":null"#.to_owned(), 400),
        (format!(r#""temp":{{"expected":{{"value":"{long}"}}}}"#), 413),
        (format!(r#""zz":{{"actual":{{"value":"{long}"}}}}"#), 413),
        (format!(r#""{many}":{{"actual":{{"value":""}}}}"#), 400),
        (r#""a\u0000":{"actual":{"value":""}}"#.to_owned(), 400),
    ] {
        world
            .t1("twin/update", &format!(r#"{{"event_id":"5","twin":{{"led":{{"actual":{{"value":"ON"}}}},{twin}}}}}"#));
        assert_eq!(world.refused("t1/twin/update/result"), code, "{twin}");
        assert_eq!((world.twin("led", "actual"), world.reports().len()), (None, 0));
    }
    world.t1("twin/update", r#"{"event_id":"5","twin":{"temp":{"actual":{"value":"126"}}}}"#);
    let heard = world.heard("t1/twin/update/result");
    assert_eq!(
        heard,
        r#"{"event_id":"5","timestamp":1700000000000,"code":400,"reason":"property \"temp\": \"126\" is above the maximum 125 (type float)"}"#
    );
}

#[test]
fn without_checks_any_value_is_taken() {
    let mut world = World::new(&Settings { check_values: CheckValues(false), ..settings() });
    world.model();
    world.device("t1", UID, device(""));
    world.twins.told(world.now);
    world.report("temp", "{ warm = \"yes\" }");
    assert_eq!(world.twin("temp", "actual").as_deref(), Some("{ warm = \"yes\" }"));
}

#[test]
fn unknown_device_gets_an_error_on_its_topic() {
    let mut world = World::lab("");
    for namespace in ["dev", "device", "$hw", "e"] {
        let topic = format!("$hw/events/device/{namespace}/x/");
        let answers =
            [("twin/update", r#","twin":{"a":null}"#), ("twin/get", ""), ("state/update", r#","state":"ok""#)];
        for (what, more) in answers {
            world.say(&format!("{topic}{what}"), &format!(r#"{{"event_id":"1"{more}}}"#));
            let heard = world.published();
            assert!(heard[0].0.ends_with(&format!("{namespace}/x/{what}/result")), "{heard:?}");
            assert!(heard[0].1.contains(r#""event_id":"1","timestamp":1700000000000,"code":404"#), "{heard:?}");
        }
    }
    world.say("$hw/events/device/default/t1/twin/cloud_updated", "{}");
    world.twins.message(world.now, "$hw/events/device/default/t1/twin/get", None, false);
    world.tick();
    assert_eq!(world.refused("t1/twin/get/result"), 413);
}

#[test]
fn models_and_devices_come_in_any_order() {
    for model_first in [true, false] {
        let mut world = World::new(&settings());
        if model_first {
            world.model();
        }
        world.device("t1", UID, device("ON"));
        world.twins.told(world.now);
        world.model();
        world.t1("twin/get", r#"{"event_id":"8","timestamp":0}"#);
        assert_eq!(
            world.heard("t1/twin/get/result"),
            r#"{"event_id":"8","timestamp":1700000000000,"twin":{"led":{"expected":{"value":"ON","metadata":{"timestamp":1700000000000}},"optional":true,"metadata":{"type":"string"}},"temp":{"optional":true,"metadata":{"type":"float"}}}}"#
        );
    }
}

#[test]
fn d08_desired_value_is_published_on_change_and_on_connect() {
    let mut world = World::lab("ON");
    assert_eq!(world.tick().topics(), ["t1/twin/update/document", "t1/twin/update/delta"]);
    // At most once a second, and then the newest.
    for led in ["A", "B", "C"] {
        world.device("t1", UID, device(led));
        assert!(world.tick().published().is_empty());
    }
    world.wait(1_000);
    let published = world.tick().published();
    assert!(published[0].1.contains(r#""last":{"expected":{"value":"ON""#), "{published:?}");
    assert!(published[1].1.ends_with(r#""delta":{"led":"C"}}"#), "{published:?}");
    // The same object again does not count as a change.
    world.device("t1", UID, device("C"));
    world.wait(9_000);
    assert!(world.tick().published().is_empty());

    world.twins.broker(world.now, false);
    world.device("t1", UID, device("D"));
    assert!(world.tick().published().is_empty());
    world.twins.broker(world.now, true);
    assert_eq!(world.tick().topics(), ["t1/twin/update/document", "t1/twin/update/delta"]);
    world.report("led", "D");
    world.twins.broker(world.now, false);
    world.wait(1_000);
    world.said.clear();
    world.twins.broker(world.now, true);
    assert!(world.tick().published().is_empty());
}

#[test]
fn announcements_wait_for_room() {
    let mut world = World::new(&settings());
    for n in 0..10 {
        world.device(&format!("d{n}"), &format!("uid-{n}"), device("ON"));
    }
    world.twins.told(world.now);
    let mut rounds = 0;
    while world.said.len() < 20 {
        world.twins.tick(world.now, 7);
        world.said.extend(world.twins.outputs());
        world.wait(50);
        rounds += 1;
    }
    assert_eq!(rounds, 5, "two devices in a round");
}

#[test]
fn a_wish_from_here_holds_until_the_cloud_has_another_one() {
    let mut world = World::lab("ON");
    world.t1("twin/update", r#"{"twin":{"led":{"expected":{"value":"BLINK"}}}}"#);
    assert_eq!(world.twin("led", "expected").as_deref(), Some("BLINK"));
    world.device("t1", UID, device("ON"));
    assert_eq!(world.twin("led", "expected").as_deref(), Some("BLINK"));
    world.device("t1", UID, device("OFF"));
    assert_eq!(world.twin("led", "expected").as_deref(), Some("OFF"));
    assert!(world.twins.set(world.now, &id("t1"), "led", "DIM").is_ok());
    assert_eq!(world.twin("led", "expected").as_deref(), Some("DIM"));
    // Wanting nothing here is wanting what the cloud wants.
    assert!(world.twins.set(world.now, &id("t1"), "led", "").is_ok());
    assert_eq!(world.twin("led", "expected").as_deref(), Some("OFF"));
    for (name, property, value) in [("t2", "led", "x"), ("t1", "hum", "x"), ("t1", "temp", "x")] {
        assert!(world.twins.set(world.now, &id(name), property, value).is_err(), "{name} {property} {value}");
    }
}

#[test]
fn the_broker_s_old_messages_replace_nothing_newer() {
    let mut world = World::lab("ON");
    let old = br#"{"twin":{"temp":{"actual":{"value":"1"}},"led":{"expected":{"value":"OFF"}}}}"#;
    let topic = "$hw/events/device/default/t1/twin/update";
    world.twins.message(world.now, topic, Some(old), true);
    assert_eq!(world.twin("temp", "actual").as_deref(), Some("1"));
    assert_eq!(world.twin("led", "expected").as_deref(), Some("ON"));
    world.report("temp", "2");
    world.twins.message(world.now, topic, Some(old), true);
    assert_eq!(world.twin("temp", "actual").as_deref(), Some("2"));
}

#[test]
fn unknown_properties_stay_local_and_are_limited() {
    let mut world = World::lab("");
    world.t1("twin/update", r#"{"twin":{"hum":{"actual":{"value":"40"},"metadata":{"type":"int"}}}}"#);
    let heard = world.heard("t1/twin/update/result");
    assert!(heard.ends_with(r#""optional":true,"metadata":{"type":"int"}}}}"#), "{heard}");
    let events = world.said.iter().filter(|said| matches!(said, Output::Tell(FromHelper::Event { .. }))).count();
    assert_eq!((events, world.reports().len()), (1, 0));
    world.t1("twin/update", r#"{"event_id":"1","twin":{"hum":null}}"#);
    let published = world.published();
    assert!(published[0].1.ends_with(r#""twin":{"hum":null}}"#), "{published:?}");
    assert!(published[1].1.contains(r#""current":null"#), "{published:?}");
    world.report("hum", "41");
    let events = world.said.iter().filter(|said| matches!(said, Output::Tell(FromHelper::Event { .. }))).count();
    assert_eq!(events, 1, "it is told once");
    world.t1("twin/update", r#"{"twin":{"hum":null}}"#);
    world.said.clear();
    let mut taken = 0;
    for n in 0..200 {
        world.report(&format!("x{n}"), "1");
        taken += usize::from(!world.heard("t1/twin/update/result").contains("\"code\":413"));
    }
    assert_eq!(taken, 64);
}

#[test]
fn a_state_is_answered_and_kept_when_the_device_goes() {
    let mut world = World::lab("");
    world.t1("state/update", r#"{"event_id":"9","timestamp":0,"state":"Online"}"#);
    let heard = world.heard("t1/state/update/result");
    let wanted =
        r#""timestamp":1700000000000,"device":{"name":"t1","state":"online","lastOnlineTime":"2023-11-14T22:13:20Z"}}"#;
    assert!(heard.ends_with(wanted), "{heard}");
    world.wait(5_000);
    world.t1("state/update", r#"{"state":"offline"}"#);
    let heard = world.heard("t1/state/update/result");
    assert!(heard.ends_with(r#""state":"offline","lastOnlineTime":"2023-11-14T22:13:20Z"}}"#), "{heard}");
    world.t1("state/update", r#"{"event_id":"3","state":"broken"}"#);
    assert_eq!(world.refused("t1/state/update/result"), 400);
    world.say("$hw/events/node/another/membership/get", r#"{"event_id":"10"}"#);
    assert_eq!(
        world.heard("node/edge-1/membership/get/result"),
        r#"{"event_id":"10","timestamp":1700000005000,"devices":[{"id":"default/t1","name":"t1","description":"bench","state":"offline","last_online":"2023-11-14T22:13:20Z"}]}"#
    );
}

#[test]
fn added_and_removed_devices_are_published() {
    let mut world = World::lab("");
    world.tick();
    assert!(world.published().is_empty(), "what was there at the start comes with the question");
    world.device("t2", "uid-2", device(""));
    let heard = world.tick().heard("node/edge-1/membership/updated");
    let wanted = r#""added_devices":[{"id":"default/t2","name":"t2","description":"bench"}],"removed_devices":null}"#;
    assert!(heard.ends_with(wanted), "{heard}");
    world.twins.gone(world.now, Kind::Device, &id("t2"), "another");
    assert!(world.tick().published().is_empty());
    world.twins.gone(world.now, Kind::Device, &id("t2"), "uid-2");
    let heard = world.tick().heard("node/edge-1/membership/updated");
    assert!(heard.contains(r#""added_devices":null,"removed_devices":[{"id":"default/t2""#), "{heard}");
}

/// A client that was not connected at first also gets it: it is repeated, with back-off, until it is reached.
#[test]
fn d08_delta_is_repeated_until_the_report_is_equal() {
    let mut world = World::lab("ON");
    assert!(world.tick().topics().contains(&"t1/twin/update/delta".to_owned()));
    let mut said = Vec::new();
    let begun = world.now.mono;
    while world.now.mono < begun + 3_600_000 {
        let wake = world.twins.wake().expect("it is said again");
        world.wait(wake - world.now.mono);
        let topics = world.tick().topics();
        said.extend(topics.iter().map(|topic| (topic.clone(), (world.now.mono - begun) / 1_000)));
        world.said.clear();
    }
    let times: Vec<u64> = said.iter().map(|(_, at)| *at).collect();
    assert_eq!(times[..8], [10, 30, 70, 150, 310, 630, 1_230, 1_830]);
    assert!(said.iter().all(|(topic, _)| topic == "t1/twin/update/delta"), "{said:?}");
    // With another value it starts over; a value that is no longer desired is never sent.
    world.device("t1", UID, device("OFF"));
    world.wait(1_000);
    world.tick().topics();
    world.wait(10_000);
    let again = world.tick().published();
    assert!(again.len() == 1 && again[0].1.ends_with(r#""delta":{"led":"OFF"}}"#), "{again:?}");
    // For a device that publishes all the time, at most once a second.
    for n in 0..50 {
        world.wait(100);
        world.report("temp", &n.to_string());
    }
    let deltas = world.topics().iter().filter(|topic| topic.ends_with("/delta")).count();
    assert!((4..=6).contains(&deltas), "{deltas}");
    // It is as it should be: silence, and nothing to wake up for.
    world.report("led", "OFF");
    world.link(false);
    world.said.clear();
    world.wait(600_000);
    assert!(world.tick().topics().is_empty());
    // Without a broker nothing is published.
    world.report("led", "ON");
    world.twins.broker(world.now, false);
    world.said.clear();
    world.wait(600_000);
    assert!(world.tick().topics().is_empty());
}
