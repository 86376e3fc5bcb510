//! The listener with the clients of mosquitto: what a broker does for them, and their rights.

mod support;

use std::io::BufRead;
use std::process::Command;
use std::time::Duration;

use sampan_devices_control::{Kind, ToHelper};
use support::raw::Raw;
use support::{Broker, Heard, Helper, device, golden, say_until_answered, secret};

const T1: &str = "$hw/events/device/default/t1";

fn listening(broker: &Broker, led: &str) -> Helper {
    let mut helper = Helper::start(&broker.settings());
    helper.lab(led);
    helper.told();
    broker.wait();
    helper
}

fn report(value: &str) -> String {
    format!(r#"{{"event_id":"{value}","twin":{{"led":{{"actual":{{"value":"{value}"}}}}}}}}"#)
}

fn value_of(helper: &mut Helper) -> String {
    let (batch, devices) = helper.report();
    helper.say(&ToHelper::Ack { batch, refused: Vec::new() });
    devices[0].twins[0].reported.as_ref().expect("a value").value.clone()
}

/// Output of a client of mosquitto when it ends.
fn client(broker: &Broker, name: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(name);
    command.args(["-h", "127.0.0.1", "-p", &broker.port.to_string()]).args(arguments);
    let output = command.output().expect("mosquitto-clients is installed");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn clients_speak_with_each_other_as_over_a_broker() {
    let broker = Broker::none();
    let _helper = listening(&broker, "");
    let heard = broker.subscribe_to(&["house/+/temp", "#"], &["-q", "2"]);
    for (topic, payload, more) in [
        ("house/a/temp", "1", &["-q", "0"][..]),
        ("house/b/temp", "2", &["-q", "1"]),
        ("house/c/temp", "3", &["-q", "2"]),
        ("other", "4", &[]),
    ] {
        broker.publish_with(topic, payload, more);
        assert_eq!(heard.next(topic), payload);
    }
    // `$` trees like this one are closed to clients.
    broker.publish("$SYS/broker/uptime", "5");
    // Messages for an offline client, and for two matching filters, arrive once.
    broker.publish("last", "6");
    let all = heard.all_within(Duration::from_millis(500));
    assert_eq!(all, ["last 6"]);
}

#[test]
fn retained_messages_reach_later_subscribers() {
    let broker = Broker::none();
    let _helper = listening(&broker, "");
    for (topic, payload) in [("r/a", "1"), ("r/b", "2"), ("r/b", "3"), ("r/c", "4"), ("r/c", "")] {
        broker.publish_with(topic, payload, &["-r"]);
    }
    broker.publish("r/d", "5");
    let (_, said) = client(&broker, "mosquitto_sub", &["-t", "r/#", "-F", "%t %p %r", "-C", "2", "-W", "5"]);
    assert_eq!(said, "r/a 1 1\nr/b 3 1\n");
    // Each arrives once for one SUBSCRIBE, before later messages.
    let arguments = ["-t", "r/+", "-t", "r/#", "-F", "%t %p", "-W", "1"];
    assert!(client(&broker, "mosquitto_sub", &arguments).1.starts_with("r/a 1\nr/b 3\nTimed out"));
    broker.publish_with("r/a", "", &["-r"]);
    let (ended, said) = client(&broker, "mosquitto_sub", &["-t", "r/a", "-C", "1", "-W", "1"]);
    assert!(!ended && said.contains("Timed out"), "{said}");
}

#[test]
fn will_is_published_after_a_lost_connection() {
    let broker = Broker::none();
    let helper = listening(&broker, "");
    let heard = broker.subscribe_to(&["wills/#"], &[]);
    let will = |id: &str, topic: &str, text: &str| {
        // It would keep its lines back for a pipe.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "mosquitto_sub", "-h", "127.0.0.1", "-p", &broker.port.to_string()]);
        command.args(["-i", id, "-t", "nothing", "-d"]);
        command.args(["--will-topic", topic, "--will-payload", text, "--will-qos", "1", "--will-retain"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("mosquitto-clients is installed");
        let out = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
        let subscribed = out.lines().map_while(Result::ok).any(|line| line.contains("Subscribed"));
        assert!(subscribed, "{id} is connected");
        child
    };
    let mut cut = will("cut", "wills/cut", "gone");
    cut.kill().expect("killed");
    cut.wait().expect("over");
    assert_eq!(heard.next("wills/cut"), "gone");
    // A client with its id replaces it, which does not count as a DISCONNECT either.
    let mut first = will("same", "wills/same", "taken over");
    let _other = Raw::client(broker.port, "same");
    assert_eq!(heard.next("wills/same"), "taken over");
    first.kill().expect("killed");
    first.wait().expect("over");
    // The will publishes the state that a dead device cannot.
    let mut device = will("t1", &format!("{T1}/state/update"), r#"{"event_id":"1","state":"offline"}"#);
    device.kill().expect("killed");
    device.wait().expect("over");
    let (_, devices) = helper.report();
    assert_eq!(devices[0].state.as_ref().map(|state| state.state.as_str()), Some("offline"));
    // A client that sends DISCONNECT has no will.
    broker.publish_with("wills/x", "bye", &["--will-topic", "wills/y", "--will-payload", "no"]);
    assert_eq!(heard.next("wills/x"), "bye");
    assert!(heard.all_within(Duration::from_millis(500)).is_empty());
}

#[test]
fn other_versions_are_refused() {
    let broker = Broker::none();
    let _helper = listening(&broker, "");
    for version in ["mqttv5", "mqttv31"] {
        let (done, said) = client(&broker, "mosquitto_pub", &["-V", version, "-t", "a", "-m", "x"]);
        assert!(!done && said.to_lowercase().contains("protocol"), "{version}: {said}");
    }
    assert!(client(&broker, "mosquitto_pub", &["-V", "mqttv311", "-t", "a", "-m", "x"]).0);
}

#[test]
fn desired_value_reaches_later_subscribers() {
    let broker = Broker::none();
    let mut helper = listening(&broker, "ON");
    let delta = r#"{"event_id":"UUID","timestamp":T,"twin":{"led":{"expected":{"value":"ON","metadata":{"timestamp":T}},"optional":true,"metadata":{"type":"string"}}},"delta":{"led":"ON"}}"#;
    let arguments = ["-t", "$hw/events/device/default/+/twin/update/delta", "-C", "1", "-W", "10"];
    let (_, said) = client(&broker, "mosquitto_sub", &arguments);
    assert_eq!(golden(said.trim_end()), delta);
    let heard = broker.subscribe();
    helper.object(Kind::Device, "t1", "device-1", device("OFF"));
    assert!(heard.next(&format!("{T1}/twin/update/delta")).contains(r#""delta":{"led":"OFF"}"#));
    drop(heard);

    helper.again(&broker.settings());
    helper.lab("OFF");
    helper.told();
    broker.wait();
    let (ended, said) = client(&broker, "mosquitto_sub", &arguments);
    assert!(ended && said.contains(r#""delta":{"led":"OFF"}"#), "{said}");
    broker.publish(&format!("{T1}/twin/update"), &report("OFF"));
    assert_eq!(value_of(&mut helper), "OFF");
}

#[test]
fn a_broker_and_the_listener_do_not_bridge() {
    let (mosquitto, own) = (Broker::start(), Broker::none());
    let mut settings = own.settings();
    settings.mqtt = Some(mosquitto.mqtt());
    let mut helper = Helper::start(&settings);
    helper.lab("");
    helper.told();
    own.wait();
    let (there, here) = (mosquitto.subscribe_to(&["x/#"], &[]), own.subscribe_to(&["x/#"], &[]));
    say_until_answered(&mosquitto, &there);
    let result = format!("{T1}/twin/update/result");
    let both = |event: &str, there: &Heard, here: &Heard| {
        for heard in [there, here] {
            while !heard.next(&result).contains(event) {}
        }
    };
    mosquitto.publish(&format!("{T1}/twin/update"), &report("far"));
    both("far", &there, &here);
    own.publish(&format!("{T1}/twin/update"), &report("near"));
    both("near", &there, &here);
    mosquitto.publish("x/there", "1");
    own.publish("x/here", "2");
    assert_eq!((there.next("x/there"), here.next("x/here")), ("1".to_owned(), "2".to_owned()));
    let rest = [there.all_within(Duration::from_millis(300)), here.all_within(Duration::from_millis(300))].concat();
    assert!(!rest.iter().any(|line| line.starts_with("x/") || line.contains("twin/update ")), "{rest:?}");

    // Without the broker clients of the listener go on.
    let mut mosquitto = mosquitto;
    mosquitto.stop();
    own.publish(&format!("{T1}/twin/update"), &report("alone"));
    while !here.next(&result).contains("alone") {}
    helper.object(Kind::Device, "t1", "device-1", device("ON"));
    assert!(here.next(&format!("{T1}/twin/update/delta")).contains("ON"));
    helper.say(&ToHelper::End {});
    assert_eq!(helper.exit(), Some(0));
}

#[test]
fn a_device_speaks_for_itself_alone() {
    let users = "# bench\nt1 s3cret device=default/t1 read=house/#\napp secret all\nspy secret read=house/#\n";
    let broker = Broker::none_with(users);
    let mut helper = listening(&broker, "");
    let as_t1 = ["-u", "t1", "-P", "s3cret"];
    let as_app = ["-u", "app", "-P", "secret"];
    let heard = broker.subscribe_to(&["house/#"], &as_app);
    for (login, why) in [
        (&["-u", "t1", "-P", "wrong"][..], "bad user name or password"),
        (&["-u", "t2", "-P", "s3cret"], "bad user name or password"),
        (&["-u", "t1"], "bad user name or password"),
        (&[], "not authori"),
    ] {
        let (done, said) = client(&broker, "mosquitto_pub", &[login, &["-t", "a", "-m", "x"]].concat());
        assert!(!done && said.to_lowercase().contains(why), "{login:?}: {said}");
    }
    // Acknowledged, and nothing follows from it: MQTT 3.1.1 has no other answer.
    broker.publish_with("$hw/events/device/default/t2/twin/get", r#"{"event_id":"no"}"#, &as_t1);
    broker.publish_with("$hw/events/node/edge-1/membership/get", r#"{"event_id":"no"}"#, &as_t1);
    broker.publish_with(&format!("{T1}/twin/update"), &report("no"), &["-u", "spy", "-P", "secret"]);
    broker.publish_with("house/t1", "no", &as_t1);
    // Only the node may publish its own messages, whatever rights a user has.
    broker.publish_with(&format!("{T1}/twin/update/delta"), "no", &as_app);
    broker.publish_with(&format!("{T1}/twin/update"), &report("yes"), &as_t1);
    assert!(heard.next(&format!("{T1}/twin/update/result")).contains("yes"));
    assert_eq!(value_of(&mut helper), "yes");
    let rest = heard.all_within(Duration::from_millis(300));
    assert!(!rest.iter().any(|line| line.contains("no")), "{rest:?}");
    for (filter, code) in [
        (format!("{T1}/#"), "Subscribed (mid: 1): 1"),
        ("house/+".to_owned(), "Subscribed (mid: 1): 1"),
        ("$hw/events/device/default/t2/#".to_owned(), "Subscribed (mid: 1): 128"),
        ("$hw/events/#".to_owned(), "Subscribed (mid: 1): 128"),
        ("#".to_owned(), "Subscribed (mid: 1): 128"),
    ] {
        let arguments = [&as_t1[..], &["-q", "1", "-d", "-W", "1", "-t", &filter]].concat();
        let (_, said) = client(&broker, "mosquitto_sub", &arguments);
        assert!(said.contains(code), "{filter}: {said}");
    }

    // A change takes effect at once, also for connected clients; a malformed line locks no other user out.
    let users_file = broker.folder().join("users");
    secret(&users_file, "t1 newer device=default/t1\nbroken\napp secret all\n");
    assert!(!client(&broker, "mosquitto_pub", &[&as_t1[..], &["-t", "a", "-m", "x"]].concat()).0);
    broker.publish_with(&format!("{T1}/twin/update"), &report("newer"), &["-u", "t1", "-P", "newer"]);
    assert_eq!(value_of(&mut helper), "newer");
    assert!(heard.next(&format!("{T1}/twin/update/result")).contains("newer"), "who may as before stays");
    secret(&users_file, "t1 newer device=default/t1\n");
    broker.publish_with(&format!("{T1}/twin/update"), &report("final"), &["-u", "t1", "-P", "newer"]);
    assert_eq!(value_of(&mut helper), "final");
    let rest = heard.all_within(Duration::from_millis(500));
    assert!(!rest.iter().any(|line| line.contains("final")), "the user is gone, and hears nothing: {rest:?}");
}

#[test]
fn a_device_that_comes_after_its_retained_message_has_it() {
    let broker = Broker::none();
    let mut helper = listening(&broker, "");
    broker.publish_with("$hw/events/device/default/late/twin/update", &report("ON"), &["-r"]);
    helper.object(Kind::Device, "late", "device-2", device(""));
    let (batch, devices) = helper.report();
    helper.say(&ToHelper::Ack { batch, refused: Vec::new() });
    let value = devices[0].twins[0].reported.as_ref().map(|value| value.value.as_str());
    assert_eq!((devices[0].name.as_str(), value), ("late", Some("ON")));
}
