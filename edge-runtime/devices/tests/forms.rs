//! Every message that devices and their programs exchange with a node, over a real broker and over the listener of its own,
//! compared as text: keys, their order, codes.

mod support;

use std::time::Duration;

use sampan_devices_control::{Kind, Settings, ToHelper};
use serde_json::json;
use support::{Broker, Heard, Helper, golden, say_until_answered};

const T1: &str = "$hw/events/device/default/t1";

struct Lab {
    broker: Broker,
    helper: Helper,
    heard: Heard,
}

impl Lab {
    /// One setup with a broker, and one without.
    fn both() -> [Self; 2] {
        [Broker::start(), Broker::none()].map(|broker| {
            let mut helper = Helper::start(&broker.settings());
            helper.lab("");
            helper.told();
            broker.wait();
            let heard = broker.subscribe();
            say_until_answered(&broker, &heard);
            Self { broker, helper, heard }
        })
    }

    /// Publishes `text`, and returns the message on `answer`.
    fn asked(&self, topic: &str, text: &str, answer: &str) -> String {
        self.broker.publish(topic, text);
        golden(&self.heard.next(answer))
    }

    fn t1(&self, what: &str, text: &str, answer: &str) -> String {
        self.asked(&format!("{T1}/{what}"), text, &format!("{T1}/{answer}"))
    }
}

#[test]
fn twins() {
    Lab::both().into_iter().for_each(twins_of);
}

fn twins_of(lab: Lab) {
    let both = r#"{"event_id":"7","timestamp":1700000000000,"twin":{"temp":{"actual":{"value":"21.5"},"metadata":{"type":"float"}},"led":{"expected":{"value":"ON"}},"old":null}}"#;
    assert_eq!(
        lab.t1("twin/update", both, "twin/update/result"),
        r#"{"event_id":"7","timestamp":T,"twin":{"led":{"expected":{"value":"ON","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"string"}},"old":null,"temp":{"actual":{"value":"21.5","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"float"}}}}"#
    );
    assert_eq!(
        golden(&lab.heard.next(&format!("{T1}/twin/update/document"))),
        r#"{"event_id":"7","timestamp":T,"twin":{"led":{"last":null,"current":{"expected":{"value":"ON","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"string"}}},"old":{"last":null,"current":null},"temp":{"last":null,"current":{"actual":{"value":"21.5","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"float"}}}}}"#
    );
    assert_eq!(
        golden(&lab.heard.next(&format!("{T1}/twin/update/delta"))),
        r#"{"event_id":"UUID","timestamp":T,"twin":{"led":{"expected":{"value":"ON","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"string"}}},"delta":{"led":"ON"}}"#
    );
    assert_eq!(
        lab.t1("twin/get", r#"{"event_id":"8","timestamp":0}"#, "twin/get/result"),
        r#"{"event_id":"8","timestamp":T,"twin":{"led":{"expected":{"value":"ON","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"string"}},"temp":{"actual":{"value":"21.5","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"float"}}}}"#
    );
}

#[test]
fn refusals() {
    Lab::both().into_iter().for_each(refusals_of);
}

fn refusals_of(lab: Lab) {
    let longest = "é".repeat(2_048);
    let long = format!("{longest}x");
    let with = |value: &str| format!(r#"{{"event_id":"1","twin":{{"led":{{"actual":{{"value":"{value}"}}}}}}}}"#);
    for (text, code, id) in [
        (with(&long), 413, "1"),
        (r#"{"event_id":"1","twin":{"temp":{"actual":{"value":"hot"}}}}"#.to_owned(), 400, "1"),
        (r#"{"event_id":"1","twin":{"temp":{"actual":{"value":"126"}}}}"#.to_owned(), 400, "1"),
        (r#"{"event_id":"1","twin":{"temp":{"actual":{}}}}"#.to_owned(), 400, "1"),
        (r#"{"event_id":"1","twin":{"temp":null}}"#.to_owned(), 400, "1"),
        (r#"{"event_id":"1"}"#.to_owned(), 400, "1"),
        ("no JSON".to_owned(), 400, ""),
        (String::new(), 400, ""),
        // Longer than a message may be, and than a packet may be.
        (with(&"x".repeat(70 << 10)), 413, ""),
        (with(&"x".repeat(300 << 10)), 413, ""),
    ] {
        let answer = lab.t1("twin/update", &text, "twin/update/result");
        let start = format!(r#"{{"event_id":"{id}","timestamp":T,"code":{code},"reason":""#);
        assert!(answer.starts_with(&start), "{answer} for {}", &text[..text.len().min(80)]);
    }
    let answer = lab.t1("twin/update", &with(&longest), "twin/update/result");
    assert!(answer.contains(&longest), "a value of 4 KiB arrives as it is");

    for namespace in ["dev", "device", "$hw", "a b"] {
        let topic = format!("$hw/events/device/{namespace}/t1");
        let answer =
            |what: &str, text: &str| lab.asked(&format!("{topic}/{what}"), text, &format!("{topic}/{what}/result"));
        let reason = format!("no device {namespace}/t1 is bound to this node");
        let wanted = format!(r#"{{"event_id":"2","timestamp":T,"code":404,"reason":"{reason}"}}"#);
        if namespace == "a b" {
            // The subscriber's lines separate topic and payload by a space.
            continue;
        }
        assert_eq!(answer("twin/update", r#"{"event_id":"2","twin":{"a":null}}"#), wanted);
        assert_eq!(answer("twin/get", r#"{"event_id":"2"}"#), wanted);
        assert_eq!(answer("state/update", r#"{"event_id":"2","state":"ok"}"#), wanted);
    }
    lab.broker
        .publish(&format!("{T1}/twin/cloud_updated"), r#"{"event_id":"3","twin":{"temp":{"actual":{"value":"1"}}}}"#);
    let answers = lab.heard.all_within(Duration::from_millis(500));
    assert!(answers.iter().all(|line| !line.contains("/result")), "{answers:?}");
}

#[test]
fn states_and_membership() {
    Lab::both().into_iter().for_each(states_and_membership_of);
}

fn states_and_membership_of(mut lab: Lab) {
    let answer = lab.t1("state/update", r#"{"event_id":"9","timestamp":0,"state":"online"}"#, "state/update/result");
    let (before, after) = answer.split_once("\"lastOnlineTime\":\"").expect("a time");
    assert_eq!(before, r#"{"event_id":"UUID","timestamp":T,"device":{"name":"t1","state":"online","#);
    assert!(after.ends_with("Z\"}}") && after.len() == "2023-11-14T22:13:20Z\"}}".len(), "{after}");
    let answer = lab.t1("state/update", r#"{"event_id":"9","state":"up"}"#, "state/update/result");
    assert!(answer.starts_with(r#"{"event_id":"9","timestamp":T,"code":400,"reason":""#), "{answer}");
    let (batch, devices) = lab.helper.report();
    assert_eq!(devices[0].state.as_ref().map(|state| state.state.as_str()), Some("online"));
    lab.helper.say(&ToHelper::Ack { batch, refused: Vec::new() });

    let members = "$hw/events/node/edge-1/membership/get/result";
    let answer = lab.asked("$hw/events/node/edge-1/membership/get", r#"{"event_id":"10"}"#, members);
    let wanted = r#"{"event_id":"10","timestamp":T,"devices":[{"id":"default/t1","name":"t1","description":"bench","state":"online","last_online":""#;
    assert!(answer.starts_with(wanted), "{answer}");

    let updated = "$hw/events/node/edge-1/membership/updated";
    lab.helper.object(Kind::Device, "t2", "device-2", json!({"spec": {}}));
    assert_eq!(
        golden(&lab.heard.next(updated)),
        r#"{"event_id":"UUID","timestamp":T,"added_devices":[{"id":"default/t2","name":"t2"}],"removed_devices":null}"#
    );
    let (namespace, name) = ("default".to_owned(), "t2".to_owned());
    lab.helper.say(&ToHelper::Gone { kind: Kind::Device, namespace, name, uid: "device-2".into() });
    assert_eq!(
        golden(&lab.heard.next(updated)),
        r#"{"event_id":"UUID","timestamp":T,"added_devices":null,"removed_devices":[{"id":"default/t2","name":"t2"}]}"#
    );
}

#[test]
fn a_large_message_that_the_broker_keeps_ends_no_connection() {
    let broker = Broker::start();
    let large = format!(r#"{{"twin":{{"led":{{"actual":{{"value":"{}"}}}}}}}}"#, "x".repeat(1 << 20));
    broker.publish_with(&format!("{T1}/twin/update"), &large, &["-r"]);
    broker.publish_with("$hw/events/device/default/t2/twin/update", &large, &["-r"]);
    let heard = broker.subscribe();
    let mut helper = Helper::start(&broker.settings());
    helper.lab("");
    helper.told();
    say_until_answered(&broker, &heard);
    broker.publish(&format!("{T1}/twin/update"), r#"{"event_id":"7","twin":{"led":{"actual":{"value":"ON"}}}}"#);
    let (_, devices) = helper.report();
    assert_eq!(devices[0].twins[0].reported.as_ref().map(|reported| reported.value.as_str()), Some("ON"));
    assert_eq!(broker.connections(), 1, "it stays connected");
}

#[test]
fn a_broker_may_want_a_password_and_not_allow_everything() {
    let broker = Broker::with("allow_anonymous false\npassword_file PASSWORDS\nacl_file ACL\n");
    let password = broker.folder().join("password");
    std::fs::write(&password, "secret\nnot this\n").expect("written");
    let heard = broker.subscribe_with(&["-u", "test", "-P", "secret"]);
    let mut settings = broker.settings();
    if let Some(mqtt) = &mut settings.mqtt {
        mqtt.username = "node".into();
        mqtt.password_file = password.to_string_lossy().into_owned();
        mqtt.broker = format!("unix://{}", broker.socket.display());
    }
    let mut helper = Helper::start(&settings);
    // This client may not set the LED.
    helper.lab("ON");
    helper.told();
    let login = ["-u", "test", "-P", "secret"];
    let text = r#"{"event_id":"7","twin":{"temp":{"actual":{"value":"1"}}}}"#;
    for _ in 0..100 {
        broker.publish_with(&format!("{T1}/twin/update"), text, &login);
        if heard.all_within(Duration::from_millis(200)).iter().any(|line| line.contains("/twin/update/result")) {
            break;
        }
    }
    let (_, devices) = helper.report();
    assert_eq!(devices[0].twins[0].reported.as_ref().map(|reported| reported.value.as_str()), Some("1"));
    assert_eq!(broker.connections(), 1, "it stays connected though its deltas are refused");
    let wrong = Settings {
        mqtt: settings.mqtt.map(|mqtt| sampan_devices_control::Mqtt { username: "x".into(), ..mqtt }),
        ..Settings::default()
    };
    let mut other = Helper::start(&wrong);
    other.told();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(other.exit_after_end(), Some(0), "a broker that refuses is no reason to end");
}
