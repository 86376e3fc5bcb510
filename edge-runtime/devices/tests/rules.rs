//! Rules at the helper, with a real broker and its clients: which messages the daemon is given, and what calls come to.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use edge_protocol::message::{Call, CallFailure, CallResult, RuleMessage};
use sampan_devices_control::{FromHelper, Kind, MessageRow, Rules, Settings, ToHelper};
use serde_json::json;
use support::{Broker, Helper};

/// Topic of the test's subscription.
const LED: &str = "$hw/events/led/set";

/// The next batch of messages, with its number.
fn batch(helper: &Helper) -> (u64, Vec<MessageRow>) {
    loop {
        if let FromHelper::Messages { batch, rows, .. } = helper.next() {
            return (batch, rows);
        }
    }
}

fn read(row: &MessageRow) -> RuleMessage {
    serde_json::from_str(&row.record).unwrap()
}

/// Sends a call, and returns its result.
fn call(helper: &mut Helper, id: u64, call: &Call) -> CallResult {
    helper.say(&ToHelper::Call { id, call: serde_json::to_value(call).unwrap() });
    loop {
        if let FromHelper::Called { id: of, answer } = helper.next() {
            assert_eq!(of, id);
            return serde_json::from_value(answer).unwrap();
        }
    }
}

fn http(port: u16, path: &str) -> Call {
    Call::Http {
        namespace: "default".into(),
        port,
        method: "GET".into(),
        path: path.into(),
        headers: vec![],
        body: vec![],
    }
}

/// A helper that has subscribed at a broker: before that, published messages are lost.
fn subscribed(broker: &Broker, topic: &str) -> Helper {
    subscribed_with(broker, topic, Rules::default())
}

fn subscribed_with(broker: &Broker, topic: &str, rules: Rules) -> Helper {
    let mut helper = Helper::start(&Settings { rules, ..broker.settings() });
    helper.object(Kind::Rule, "r", "rule-1", json!({"topic": topic, "priority": 4}));
    helper.told();
    until_subscribed(broker, &mut helper, "default/ready/1");
    helper
}

fn until_subscribed(broker: &Broker, helper: &mut Helper, topic: &str) {
    helper.object(Kind::Rule, "ready", "ready", json!({"topic": topic}));
    let began = Instant::now();
    loop {
        broker.publish(topic, "x");
        if let Some(FromHelper::Messages { batch, .. }) = helper.within(Duration::from_millis(300)) {
            helper.say(&ToHelper::Gone {
                kind: Kind::Rule,
                namespace: "default".into(),
                name: "ready".into(),
                uid: "ready".into(),
            });
            helper.say(&ToHelper::Stored { batch });
            std::thread::sleep(Duration::from_millis(1_100));
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "the subscription does not come to be");
    }
}

#[test]
fn messages_are_given_in_order_until_they_are_stored() {
    let mut broker = Broker::start();
    let mut helper = subscribed(&broker, "default/t/+");
    broker.publish("default/t/a", "1");
    let (first, rows) = batch(&helper);
    assert_eq!((rows.len(), &*rows[0].rule, rows[0].class), (1, "rule-1", 4));
    let message = read(&rows[0]);
    assert_eq!((&*message.topic, &*message.payload, &*message.rule), ("default/t/a", b"1".as_slice(), "rule-1"));
    assert!(message.at_ms > 1_600_000_000_000);
    for (topic, text) in [("default/t/b", "2"), ("default/other", "x"), ("default/t/a/b", "x"), ("default/t/a", "3")] {
        broker.publish(topic, text);
    }
    broker.publish_with("default/t/kept", "4", &["-r"]);
    helper.say(&ToHelper::Stored { batch: first });
    let (second, rows) = batch(&helper);
    let bodies = |rows: &[MessageRow]| rows.iter().map(|row| read(row).payload).collect::<Vec<_>>();
    assert_eq!(bodies(&rows), [b"2", b"3", b"4"]);

    // Another daemon is given what the one before it has not confirmed.
    let mut other = Helper::call(&helper.socket, &broker.settings());
    other.object(Kind::Rule, "r", "rule-1", json!({"topic": "default/t/+", "priority": 4}));
    other.told();
    let (third, again) = batch(&other);
    assert!(third > second && again == rows, "the same, with the same keys");
    other.say(&ToHelper::Stored { batch: third });

    // After the broker was away it is asked again; what it retained is of the past.
    broker.stop();
    broker.again();
    broker.publish_with("default/t/kept", "old", &["-r"]);
    until_subscribed(&broker, &mut other, "default/ready/2");
    broker.publish("default/t/a", "5");
    assert_eq!(bodies(&batch(&other).1), [b"5"]);
}

#[test]
fn call_is_executed_once_and_answered() {
    let mut broker = Broker::start();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let rules = Rules { ports: vec![port], topics: vec!["$hw/events/led/#".into()], ..Rules::default() };
    let mut helper = subscribed_with(&broker, "default/x", rules);
    let heard = broker.subscribe();
    let publish =
        |topic: &str| Call::Publish { namespace: "default".into(), topic: topic.into(), payload: b"ON".to_vec() };
    assert_eq!(call(&mut helper, 7, &publish(LED)), CallResult::Published {});
    assert_eq!(heard.next(LED), "ON");
    let failure = |result: CallResult| match result {
        CallResult::Failed { failure, .. } => failure,
        other => panic!("{other:?}"),
    };
    assert_eq!(failure(call(&mut helper, 8, &publish("led/+"))), CallFailure::Refused);
    assert_eq!(failure(call(&mut helper, 8, &publish("$hw/events/device/a/b/twin/update"))), CallFailure::Forbidden);
    assert_eq!(failure(call(&mut helper, 8, &http(port.wrapping_add(1), "/"))), CallFailure::Forbidden);

    let serving = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).unwrap();
        stream.write_all(b"HTTP/1.1 418 Teapot\r\nX-A: b\r\nContent-Length: 3\r\n\r\ntea").unwrap();
        (String::from_utf8_lossy(&bytes[..read]).into_owned(), server)
    });
    let headers = vec![("X-A".to_owned(), "b".to_owned())];
    assert_eq!(
        call(&mut helper, 9, &http(port, "/pot?lid=on")),
        CallResult::Http { status: 418, headers, body: b"tea".to_vec() }
    );
    let (request, server) = serving.join().unwrap();
    assert!(request.starts_with("GET /pot?lid=on HTTP/1.1\r\n"), "{request}");
    drop(server);
    assert_eq!(failure(call(&mut helper, 10, &http(port, "/"))), CallFailure::Unreachable);
    assert_eq!(failure(call(&mut helper, 11, &http(port, "/ \r\n"))), CallFailure::Refused);
    helper.say(&ToHelper::Call { id: 12, call: json!({"dance": {}}) });
    let FromHelper::Called { id: 12, answer } = helper.next() else { panic!("no answer") };
    assert_eq!(failure(serde_json::from_value(answer).unwrap()), CallFailure::Refused);

    broker.stop();
    let began = Instant::now();
    while failure(call(&mut helper, 13, &publish(LED))) != CallFailure::Unavailable {
        assert!(began.elapsed() < Duration::from_secs(10), "it is told that there is no broker");
    }
}
