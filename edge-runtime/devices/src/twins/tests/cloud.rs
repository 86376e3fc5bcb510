//! Reports to the bridge, and their times.

use super::*;

#[test]
fn first_value_is_reported_at_once_and_the_newest_after_a_pause() {
    let mut world = World::lab("");
    world.report("temp", "1");
    let first = world.acked();
    assert_eq!((reported(&first, "temp"), first.uid.as_str(), first.state.as_ref()), (Some("1"), UID, None));
    for value in ["2", "3", "4"] {
        world.report("temp", value);
    }
    assert!(world.tick().reports().is_empty());
    world.wait(1_000);
    world.tick();
    let second = world.acked();
    assert_eq!(reported(&second, "temp"), Some("4"));
    assert!(second.seq > first.seq);
    assert_eq!(world.twins.counters.coalesced, 2);
    world.wait(3_600_000);
    assert!(world.tick().reports().is_empty());
}

#[test]
fn unchanged_value_is_repeated_rarely() {
    let mut world = World::lab("");
    world.report("temp", "1");
    world.acked();
    let mut reports = 0;
    for _ in 0..3_600 {
        world.wait(1_000);
        world.report("temp", "1");
        for (batch, _) in world.reports() {
            reports += 1;
            world.twins.acked(world.now, batch, &[]);
        }
        world.said.clear();
    }
    assert_eq!(reports, 6);
}

#[test]
fn one_batch_is_sent_at_a_time_and_a_lost_link_voids_it() {
    let mut world = World::lab("");
    world.report("temp", "1");
    let (lost, _) = world.reports().remove(0);
    world.report("temp", "2");
    world.wait(5_000);
    assert!(world.tick().reports().is_empty());
    world.link(false);
    world.report("temp", "3");
    world.wait(5_000);
    assert!(world.tick().reports().is_empty());
    world.link(true);
    world.tick();
    // An answer to what is void means nothing.
    world.twins.acked(world.now, lost, &[]);
    world.wait(5_000);
    let reports = world.tick().reports();
    assert_eq!(reports.len(), 1);
    assert_eq!(reported(&reports[0].1[0], "temp"), Some("3"));
    // A link that was down for a moment.
    world.link(true);
    assert_eq!(world.tick().reports().len(), 1);
}

#[test]
fn reports_keep_to_the_budget_and_urgent_ones_come_first() {
    let mut world = World::new(&settings());
    for n in 0..100 {
        world.device(&format!("d{n:02}"), &format!("uid-{n}"), device(""));
    }
    world.twins.told(world.now);
    world.link(true);
    for n in 0..100 {
        let topic = format!("$hw/events/device/default/d{n:02}/twin/update");
        world.twins.message(world.now, &topic, Some(br#"{"twin":{"temp":{"actual":{"value":"1"}}}}"#), false);
        world.wait(1);
    }
    let topic = "$hw/events/device/default/d99/state/update";
    world.twins.message(world.now, topic, Some(br#"{"state":"online"}"#), false);
    let (mut told, start) = (Vec::new(), world.now.mono);
    while told.len() < 100 {
        world.tick();
        for (batch, devices) in world.reports() {
            told.extend(devices.into_iter().map(|device| device.name));
            world.twins.acked(world.now, batch, &[]);
        }
        world.wait(50);
    }
    assert_eq!((told[0].as_str(), told[1].as_str(), told[99].as_str()), ("d99", "d00", "d98"));
    assert!((8_900..9_200).contains(&(world.now.mono - start)), "{}", world.now.mono - start);
}

#[test]
fn d07_flood_keeps_to_the_budget_and_the_newest_value_arrives() {
    let mut world = World::new(&settings());
    for n in 0..300 {
        world.device(&format!("d{n:03}"), &format!("uid-{n}"), device(""));
    }
    world.twins.told(world.now);
    world.link(true);
    let (mut told, mut newest) = (0, BTreeMap::new());
    let mut take = |world: &mut World| {
        world.tick();
        for (batch, devices) in world.reports() {
            for device in devices {
                told += 1;
                newest.insert(device.name.clone(), reported(&device, "temp").map(str::to_owned));
            }
            world.twins.acked(world.now, batch, &[]);
        }
        world.said.clear();
        (told, newest.values().filter(|value| value.as_deref() == Some("29")).count())
    };
    for second in 0..30 {
        for n in 0..300 {
            let topic = format!("$hw/events/device/default/d{n:03}/twin/update");
            let text = format!(r#"{{"twin":{{"temp":{{"actual":{{"value":"{second}"}}}}}}}}"#);
            world.twins.message(world.now, &topic, Some(text.as_bytes()), false);
            if n % 30 == 0 {
                world.wait(100);
                take(&mut world);
            }
        }
    }
    let (told, _) = take(&mut world);
    assert!((300..=311).contains(&told), "{told}");
    for _ in 0..350 {
        world.wait(100);
        take(&mut world);
    }
    assert_eq!(take(&mut world).1, 300);
}

/// No replay, however long the link was down, and whatever the clock did meanwhile.
#[test]
fn d05_newest_value_is_reported_once_after_an_outage() {
    let mut world = World::lab("");
    for value in ["1", "2"] {
        world.report("temp", value);
        world.acked();
        world.wait(1_000);
    }
    world.link(false);
    let mut at = 0;
    for n in 0..3_600 {
        // An hour back, and two hours on.
        match n {
            1_000 => world.now.wall -= 3_600_000,
            2_000 => world.now.wall += 7_200_000,
            _ => {}
        }
        if n <= 3_000 {
            world.report("temp", &format!("{}", n % 100));
            at = world.now.wall;
        }
        world.wait(1_000);
        assert!(world.tick().reports().is_empty());
        world.said.clear();
    }
    world.link(true);
    world.tick();
    let report = world.acked();
    let temp = report.twins[0].reported.as_ref().map(|told| (told.value.clone(), told.at_ms));
    assert_eq!((report.twins.len(), temp), (1, Some(("0".to_owned(), at))));
    world.wait(3_600_000);
    assert!(world.tick().reports().is_empty());
}

#[test]
fn batches_are_small() {
    let mut world = World::new(&Settings {
        report: sampan_devices_control::Report { per_second: 1_000, ..Default::default() },
        ..settings()
    });
    for n in 0..200 {
        world.device(&format!("d{n}"), &format!("uid-{n}"), device(""));
    }
    world.twins.told(world.now);
    world.link(true);
    for (size, most) in [(1, 64), (4_000, 16)] {
        for n in 0..200 {
            let value = format!("{n}").repeat(size).chars().take(size.max(3)).collect::<String>();
            let text = format!(r#"{{"twin":{{"led":{{"actual":{{"value":"{value}"}}}}}}}}"#);
            let topic = format!("$hw/events/device/default/d{n}/twin/update");
            world.twins.message(world.now, &topic, Some(text.as_bytes()), false);
        }
        let mut told = 0;
        while told < 200 {
            world.wait(1_000);
            world.tick();
            for (batch, devices) in world.reports() {
                assert!(devices.len() <= most, "{}", devices.len());
                told += devices.len();
                world.twins.acked(world.now, batch, &[]);
            }
        }
    }
}

#[test]
fn value_equal_to_the_desired_one_counts_as_observed() {
    let mut world = World::lab("ON");
    world.report("led", "OFF");
    let report = world.acked();
    assert_eq!((reported(&report, "led"), observed(&report, "led")), (Some("OFF"), None));
    world.wait(1_000);
    world.report("led", "ON");
    let report = world.acked();
    assert_eq!((reported(&report, "led"), observed(&report, "led")), (Some("ON"), Some("ON")));
    world.wait(1_000);
    // A local desired value is reported as observed, and so is a desired value of the cloud that the device already
    // has.
    assert!(world.twins.set(world.now, &id("t1"), "led", "DIM").is_ok());
    world.tick();
    assert_eq!(observed(&world.acked(), "led"), Some("DIM"));
    world.wait(1_000);
    world.device("t1", UID, device("GREEN"));
    world.device("t1", UID, device("ON"));
    world.tick();
    assert_eq!(observed(&world.acked(), "led"), Some("ON"));
}

#[test]
fn another_device_of_the_same_name_shows_nothing_of_the_old_one() {
    let mut world = World::lab("ON");
    world.report("temp", "1");
    world.t1("state/update", r#"{"state":"online"}"#);
    world.acked();
    world.device("t1", "uid-2", device("ON"));
    assert_eq!(world.twin("temp", "actual"), None);
    world.wait(5_000);
    assert!(world.tick().reports().is_empty());
    world.report("led", "ON");
    let report = world.acked();
    assert_eq!((report.uid.as_str(), report.state.as_ref(), report.twins.len()), ("uid-2", None, 1));
    // A late message about the old one is harmless.
    world.twins.gone(world.now, Kind::Device, &id("t1"), UID);
    assert_eq!(world.twin("led", "actual").as_deref(), Some("ON"));
}

#[test]
fn device_that_a_new_daemon_omits_is_removed() {
    let mut world = World::lab("");
    world.device("t2", "uid-2", device(""));
    world.twins.daemon_came(world.now);
    world.device("t2", "uid-2", device(""));
    world.twins.told(world.now);
    world.said.clear();
    world.t1("twin/get", "{}");
    assert_eq!(world.refused("t1/twin/get/result"), 404);
    assert_eq!(world.twins.devices.len(), 1);
    assert!(world.twins.models.is_empty());
}

#[test]
fn a_refusal_holds_nothing_back() {
    let mut world = World::lab("");
    world.report("temp", "1");
    let (batch, _) = world.reports().remove(0);
    let refused = edge_protocol::message::DeviceRefusal { uid: UID.into(), reason: "no".into() };
    world.twins.acked(world.now, batch, &[refused]);
    world.wait(5_000);
    assert!(world.tick().reports().is_empty());
    world.report("temp", "2");
    assert_eq!(reported(&world.acked(), "temp"), Some("2"));
    assert_eq!(world.twins.counters.refused, 1);
}

#[test]
fn people_see_devices_as_they_are() {
    let mut world = World::lab("ON");
    world.report("temp", "1");
    let seen = world.twins.get(Some(&id("t1"))).expect("it is here");
    assert_eq!(seen[0]["properties"][1]["reported"]["value"], "1");
    assert_eq!(
        (&seen[0]["properties"][1]["type"], &seen[0]["properties"][1]["told"]),
        (&json!("float"), &json!(false))
    );
    assert_eq!(seen[0]["properties"][0]["desired"]["value"], "ON");
    assert_eq!(world.twins.get(None).expect("all").as_array().map(Vec::len), Some(1));
    assert!(world.twins.get(Some(&id("t2"))).is_err());
}

#[test]
fn value_is_repeated_with_its_type_after_a_late_model() {
    let mut world = World::new(&settings());
    world.device("t1", UID, device("ON"));
    world.twins.told(world.now);
    world.link(true);
    world.report("temp", "21.5").tick();
    let kind = |report: &DeviceReport| report.twins[0].reported.as_ref().map(|value| value.kind.clone());
    assert_eq!(kind(&world.acked()), Some(String::new()));
    world.model();
    world.model();
    world.wait(1_000);
    world.tick();
    assert_eq!(kind(&world.acked()), Some("float".to_owned()));
    world.wait(1_000);
    world.tick();
    assert!(world.reports().is_empty());
}

/// A stored value may be older than the last report (D4).
#[test]
fn restored_value_is_not_repeated_before_a_new_report() {
    let mut world = World::lab("ON");
    world.report("temp", "21.5").tick();
    world.acked();
    world.link(false);
    world.wait(60_000);
    world.tick();
    let told = world.kept();
    world.report("temp", "22");
    world.wait(3_600_000);
    world.tick();
    let untold = world.kept();
    for (rows, temp) in [(told, None), (untold, Some(("22", true)))] {
        let mut world = World::new(&settings());
        world.model();
        world.device("t1", UID, device("ON"));
        rows.into_iter().for_each(|row| world.twins.kept(row.uid, row.record));
        world.twins.told(world.now);
        world.link(true);
        world.report("led", "ON").tick();
        let report = world.acked();
        let value = report.twins.iter().find(|twin| twin.property == "temp").and_then(|twin| twin.reported.as_ref());
        assert_eq!(value.map(|value| (value.value.as_str(), value.kept)), temp);
    }
}

/// Without a clock the number of the report decides which value is newer. A value without a report since then has the
/// number of the first record (D4).
#[test]
fn restored_value_has_the_number_of_its_report() {
    let mut world = World::lab("ON");
    world.report("temp", "21.5").tick();
    let seq = world.acked().seq;
    world.link(false);
    world.report("temp", "22").report("led", "ON");
    let mut expected = vec![("led", "ON", seq), ("temp", "22", seq)];
    for led in ["DIM", "OFF"] {
        world.wait(60_000);
        world.tick();
        let rows = world.kept();
        world = World::new(&settings());
        world.model();
        world.device("t1", UID, device("ON"));
        rows.into_iter().for_each(|row| world.twins.kept(row.uid, row.record));
        world.twins.told(world.now);
        world.link(true);
        world.tick();
        let (_, devices) = world.reports().remove(0);
        let told = devices[0].twins.iter().map(|twin| {
            let value = twin.reported.as_ref().unwrap();
            assert!(value.kept);
            (twin.property.as_str(), value.value.as_str(), value.kept_seq)
        });
        assert_eq!(told.collect::<Vec<_>>(), expected);
        // Without an acknowledgement; one of both values is repeated, and stored.
        world.link(false);
        world.report("led", led);
        expected[0] = ("led", led, devices[0].seq);
    }
}

/// The cause of a failed write may end without a change of the object (D5).
#[test]
fn refused_report_is_repeated() {
    let mut world = World::lab("ON");
    world.report("temp", "1").tick();
    let (batch, _) = world.reports().remove(0);
    let refusal = edge_protocol::message::DeviceRefusal { uid: UID.into(), reason: "not now".into() };
    world.twins.acked(world.now, batch, &[refusal]);
    world.wait(60_000);
    assert!(world.tick().reports().is_empty());
    world.wait(540_000);
    world.tick();
    assert_eq!(reported(&world.acked(), "temp"), Some("1"));
}

/// A device that changes its state all the time is reported, and so are the others.
#[test]
fn urgent_reports_do_not_starve_others() {
    let mut world = World::new(&settings());
    world.model();
    for number in 0..20 {
        world.device(&format!("u{number}"), &format!("uid-{number}"), device("ON"));
    }
    world.device("t1", UID, device("ON"));
    world.twins.told(world.now);
    world.link(true);
    let mut told = false;
    for second in 0..30 {
        world.report("temp", "1");
        for number in 0..20 {
            let state = if second % 2 == 0 { "online" } else { "offline" };
            world.say(
                &format!("$hw/events/device/default/u{number}/state/update"),
                &json!({"state": state}).to_string(),
            );
        }
        for (batch, devices) in world.reports() {
            told |= devices.iter().any(|device| device.name == "t1");
            world.twins.acked(world.now, batch, &[]);
        }
        world.wait(1_000);
        world.tick();
    }
    assert!(told);
}
