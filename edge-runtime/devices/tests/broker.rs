//! The helper with a real broker, mosquitto, and its clients: messages to devices and their programs, and reports to
//! the daemon.

mod support;

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sampan_devices_control::{Kind, Settings, ToHelper};
use support::{Broker, Helper, device, golden, say_until_answered};

const UPDATE: &str = "$hw/events/device/default/t1/twin/update";
const RESULT: &str = "$hw/events/device/default/t1/twin/update/result";
const DOCUMENT: &str = "$hw/events/device/default/t1/twin/update/document";
const DELTA: &str = "$hw/events/device/default/t1/twin/update/delta";

/// A helper that is connected to the broker: until then requests get no answer.
fn connected(broker: &Broker, settings: &Settings, led: &str) -> (Helper, support::Heard) {
    let mut helper = Helper::start(settings);
    helper.lab(led);
    helper.told();
    broker.wait();
    let heard = broker.subscribe();
    say_until_answered(broker, &heard);
    (helper, heard)
}

#[test]
fn a_value_is_answered_and_reported() {
    let broker = Broker::start();
    let mut settings = broker.settings();
    if let Some(mqtt) = &mut settings.mqtt {
        mqtt.broker = format!("tcp://localhost:{}", broker.port);
    }
    let (mut helper, heard) = connected(&broker, &settings, "");
    broker.publish(UPDATE, r#"{"event_id":"7","timestamp":0,"twin":{"temp":{"actual":{"value":"21.5"}}}}"#);
    assert_eq!(
        golden(&heard.next(RESULT)),
        r#"{"event_id":"7","timestamp":T,"twin":{"temp":{"actual":{"value":"21.5","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"float"}}}}"#
    );
    assert_eq!(
        golden(&heard.next(DOCUMENT)),
        r#"{"event_id":"7","timestamp":T,"twin":{"temp":{"last":null,"current":{"actual":{"value":"21.5","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"float"}}}}}"#
    );
    let (batch, devices) = helper.report();
    assert_eq!((devices.len(), devices[0].uid.as_str(), devices[0].twins.len()), (1, "device-1", 1));
    let reported = devices[0].twins[0].reported.as_ref().expect("a value");
    assert_eq!((reported.value.as_str(), reported.kind.as_str(), reported.unsynchronized), ("21.5", "float", false));
    assert!(devices[0].seq > 0 && reported.at_ms > 1_600_000_000_000);
    helper.say(&ToHelper::Ack { batch, refused: Vec::new() });

    // The next one comes after the acknowledgement, and rises.
    broker.publish(UPDATE, r#"{"event_id":"8","twin":{"temp":{"actual":{"value":"22"}}}}"#);
    let (next, later) = helper.report();
    assert!(next > batch && later[0].seq > devices[0].seq);
}

#[test]
fn desired_value_is_published_at_once_and_after_a_reconnect() {
    let mut broker = Broker::start();
    let (mut helper, heard) = connected(&broker, &broker.settings(), "");
    helper.object(Kind::Device, "t1", "device-1", device("ON"));
    let document = golden(&heard.next(DOCUMENT));
    assert_eq!(
        document,
        r#"{"event_id":"UUID","timestamp":T,"twin":{"led":{"last":{"optional":true,"metadata":{"type":"string"}},"current":{"expected":{"value":"ON","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"string"}}}}}"#
    );
    let delta = r#"{"event_id":"UUID","timestamp":T,"twin":{"led":{"expected":{"value":"ON","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"string"}}},"delta":{"led":"ON"}}"#;
    assert_eq!(golden(&heard.next(DELTA)), delta);
    drop(heard);

    // Stopped meanwhile, so that the subscriber is there first.
    let pid = Pid::from_raw(i32::try_from(helper.pid()).expect("a process id"));
    kill(pid, Signal::SIGSTOP).expect("it runs");
    broker.stop();
    broker.again();
    let heard = broker.subscribe();
    kill(pid, Signal::SIGCONT).expect("it is there");
    assert_eq!(golden(&heard.next(DELTA)), delta);

    broker.publish(UPDATE, r#"{"event_id":"9","twin":{"led":{"actual":{"value":"ON"}}}}"#);
    let (_, devices) = helper.report();
    let observed = devices[0].twins[0].observed.as_ref().expect("the device has heard of it");
    assert_eq!(observed.value, "ON");
}

#[test]
fn killed_helper_continues_from_stored_state() {
    let broker = Broker::start();
    let (mut helper, heard) = connected(&broker, &broker.settings(), "ON");
    broker
        .publish(UPDATE, r#"{"event_id":"1","twin":{"led":{"expected":{"value":"BLINK"},"actual":{"value":"OFF"}}}}"#);
    heard.next(DOCUMENT);
    while !heard.next(DELTA).contains("BLINK") {}
    let rows = helper.kept();
    assert_eq!(rows.len(), 1);

    helper.again(&broker.settings());
    helper.lab("ON");
    for row in rows.clone() {
        helper.say(&ToHelper::Kept { uid: row.uid, record: row.record });
    }
    helper.told();
    assert!(heard.next(DELTA).contains(r#""delta":{"led":"BLINK"}"#), "the local value is remembered");
    // The killed process may have published it at its end.
    say_until_answered(&broker, &heard);

    // The cloud's next value replaces it.
    helper.object(Kind::Device, "t1", "device-1", device("OFF"));
    broker.publish("$hw/events/device/default/t1/twin/get", r#"{"event_id":"2"}"#);
    let twins = heard.next("$hw/events/device/default/t1/twin/get/result");
    assert!(twins.contains(r#""led":{"expected":{"value":"OFF""#), "{twins}");
}

#[test]
fn a_flood_ends_with_the_newest_value() {
    [Broker::start(), Broker::none()].iter().for_each(flood);
}

fn flood(broker: &Broker) {
    let (mut helper, heard) = connected(broker, &broker.settings(), "");
    let line = |n: u32| format!(r#"{{"event_id":"{n}","twin":{{"led":{{"actual":{{"value":"{n}"}}}}}}}}"#);
    let start = Instant::now();
    let lines: String = (0..5_000).map(|n| line(n) + "\n").collect();
    broker.publish_lines(UPDATE, &lines);
    broker.publish(UPDATE, &line(5_000));
    let (mut last, mut reports) = (0, 0);
    while last < 5_000 {
        let (batch, devices) = helper.report();
        helper.say(&ToHelper::Ack { batch, refused: Vec::new() });
        let value =
            devices[0].twins[0].reported.as_ref().and_then(|reported| reported.value.parse().ok()).expect("a number");
        assert!(value > last || reports == 0, "{value} after {last}");
        (last, reports) = (value, reports + 1);
    }
    let seconds = start.elapsed().as_secs();
    assert!(reports <= seconds + 2, "{reports} reports in {seconds} s, one a second at most");
    assert!(!broker.is_mosquitto() || broker.connections() == 1);
    drop(heard);
}

/// A value that a device published before its object existed counts when the object arrives, if the broker retains it.
#[test]
fn a_device_that_comes_after_its_retained_messages_has_them() {
    let broker = Broker::start();
    let (mut helper, heard) = connected(&broker, &broker.settings(), "");
    let late = "$hw/events/device/default/late";
    for (rest, text) in [
        ("twin/update", r#"{"event_id":"4","twin":{"temp":{"actual":{"value":"7"}}}}"#),
        ("state/update", r#"{"event_id":"5","state":"online"}"#),
    ] {
        broker.publish_with(&format!("{late}/{rest}"), text, &["-r"]);
        assert!(heard.next(&format!("{late}/{rest}/result")).contains("404"));
    }
    helper.object(Kind::Device, "late", "device-2", device(""));
    let (mut value, mut state) = (String::new(), String::new());
    while (value.as_str(), state.as_str()) != ("7", "online") {
        let (batch, devices) = helper.report();
        helper.say(&ToHelper::Ack { batch, refused: Vec::new() });
        for device in devices.into_iter().filter(|device| device.name == "late") {
            let reported = device.twins.into_iter().find_map(|twin| twin.reported);
            value = reported.map_or(value, |reported| reported.value);
            state = device.state.map_or(state, |said| said.state);
        }
    }
    // A further message arrives only once, though two subscriptions match for a while.
    broker.publish(&format!("{late}/twin/update"), r#"{"event_id":"6","twin":{"temp":{"actual":{"value":"8"}}}}"#);
    let is_answer = |text: &str| text.contains(r#""event_id":"6""#);
    while !is_answer(&heard.next(&format!("{late}/twin/update/result"))) {}
    let said = heard.all_within(Duration::from_millis(1_500));
    let again = said.iter().find(|line| line.contains("late/twin/update/result") && is_answer(line));
    assert_eq!(again, None, "it is answered once");
}
