//! Misbehaving clients of the listener: they are cut off, and no other client is.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::raw::{Raw, TAKEN, hello, hello_with_will, packet, publish, subscribe};
use support::{Broker, Helper, PATIENCE, median};

const UPDATE: &str = "$hw/events/device/default/t1/twin/update";

struct Lab {
    helper: Helper,
    port: u16,
}

impl Lab {
    fn new() -> Self {
        let broker = Broker::none();
        let mut helper = Helper::start(&broker.settings());
        helper.lab("");
        helper.told();
        broker.wait();
        Self { helper, port: broker.port }
    }

    /// A device reports a value, is answered, and the daemon is told.
    fn works(&mut self, value: &str) {
        let mut device = Raw::subscribed(self.port, "works", &format!("{UPDATE}/result"), 0);
        let text = format!(r#"{{"event_id":"{value}","twin":{{"led":{{"actual":{{"value":"{value}"}}}}}}}}"#);
        let began = Instant::now();
        device.say(&publish(0x32, UPDATE, 7, text.as_bytes()));
        assert_eq!(device.next(), Some(vec![0x40, 2, 0, 7]));
        let result = device.next().expect("an answer");
        assert!(String::from_utf8_lossy(&result).contains(value), "{result:x?}");
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        let (batch, devices) = self.helper.report();
        assert_eq!(devices[0].twins[0].reported.as_ref().map(|reported| reported.value.as_str()), Some(value));
        self.helper.say(&sampan_devices_control::ToHelper::Ack { batch, refused: Vec::new() });
    }
}

#[test]
fn malformed_packet_ends_the_connection() {
    let mut lab = Lab::new();
    let long = packet(0x30, &vec![0; (1 << 20) + 1]);
    for (first, bytes) in [
        // Instead of CONNECT.
        (false, &b"GET / HTTP/1.1\r\n\r\n"[..]),
        (false, &[0x16, 3, 1, 2, 0]),
        (false, &[0xc0, 0]),
        (false, &[0x11, 0]),
        (false, &[0x10, 0]),
        (false, &[0x10, 0xff, 0xff, 0xff, 0xff, 1]),
        (false, &[0x10, 0xff, 0xff, 0xff, 0x7f]),
        (false, b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00"),
        (false, b"\x10\x0c\x00\x04MQTT\x04\x42\x00\x00\x00\x00"),
        (false, b"\x10\x0c\x00\x04MQTT\x04\x0a\x00\x00\x00\x00"),
        (false, b"\x10\x0c\x00\x04MQTT\x04\x22\x00\x00\x00\x00"),
        (false, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x00x"),
        (false, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01\xff"),
        (false, b"\x10\x0c\x00\x04AMQP\x04\x02\x00\x00\x00\x00"),
        // After it.
        (true, &hello("again", 0)),
        (true, &[0x00, 0]),
        (true, &[0xf0, 0]),
        (true, &[0x20, 2, 0, 0]),
        (true, &[0xc1, 0]),
        (true, &[0xc0, 1, 0]),
        (true, &[0xe0, 1, 0]),
        (true, &[0x40, 1, 0]),
        (true, &[0x50, 2, 0, 1]),
        (true, &[0x60, 2, 0, 1]),
        (true, &[0x80, 5, 0, 1, 0, 1, b'a']),
        (true, &[0x82, 2, 0, 1]),
        (true, &subscribe(0, "a", 0)),
        (true, &subscribe(1, "a", 3)),
        (true, &subscribe(1, "a#", 0)),
        (true, &subscribe(1, "", 0)),
        (true, &[0xa2, 2, 0, 1]),
        (true, &publish(0x36, "a", 1, b"")),
        (true, &publish(0x38, "a", 1, b"")),
        (true, &publish(0x32, "a", 0, b"")),
        (true, &publish(0x30, "", 0, b"")),
        (true, &publish(0x30, "a/+", 0, b"")),
        (true, &publish(0x30, "a\0", 0, b"")),
        (true, &[0x30, 3, 0, 1, 0xff]),
        (true, &[0x30, 3, 0, 9, b'a']),
        (true, &long),
        (true, &[0x82, 0x80, 0x80, 0x80, 1]),
    ] {
        let mut raw = if first { Raw::client(lab.port, "bad") } else { Raw::call(lab.port) };
        raw.say(bytes);
        assert_eq!(raw.rest(), Vec::<Vec<u8>>::new(), "{:x?}", &bytes[..bytes.len().min(40)]);
    }
    lab.works("1");
}

#[test]
fn other_versions_and_bad_ids_are_refused_by_their_code() {
    let mut lab = Lab::new();
    for (bytes, code) in [
        (&b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00"[..], 1),
        (b"\x10\x0c\x00\x04MQTT\x03\x02\x00\x00\x00\x00", 1),
        (b"\x10\x0c\x00\x04MQTT\x84\x02\x00\x00\x00\x00", 1),
        (b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x00\x00\x00", 1),
        // No id, and a persistent session.
        (b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00", 2),
        (&hello(&"x".repeat(257), 0), 2),
        (&hello_with_will("w", "w", &[0; 9_000]), 3),
    ] {
        let mut raw = Raw::call(lab.port);
        raw.say(bytes);
        assert_eq!(raw.rest(), [vec![0x20, 2, 0, code]], "{:x?}", &bytes[..12]);
    }
    // These are accepted: the listener chooses an id; a session that does not exist.
    for bytes in
        [&b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"[..], b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x00\x00\x01x"]
    {
        let mut raw = Raw::call(lab.port);
        raw.say(bytes);
        assert_eq!(raw.next(), Some(vec![0x20, 2, 0, TAKEN]));
        assert!(raw.is_served());
    }
    lab.works("1");
}

#[test]
fn bytes_come_one_by_one() {
    let mut lab = Lab::new();
    let mut raw = Raw::call(lab.port);
    let text = br#"{"event_id":"1","twin":{"led":{"actual":{"value":"slow"}}}}"#;
    let bytes = [
        hello("slow", 0),
        subscribe(9, "$hw/events/device/default/t1/twin/update/result", 1),
        publish(0x34, UPDATE, 5, text),
        // The same again, and released then.
        publish(0x3c, UPDATE, 5, text),
        vec![0x62, 2, 0, 5],
    ];
    for byte in bytes.concat() {
        raw.say(&[byte]);
        std::thread::sleep(Duration::from_micros(300));
    }
    assert_eq!(raw.next(), Some(vec![0x20, 2, 0, 0]));
    assert_eq!(raw.next(), Some(vec![0x90, 3, 0, 9, 1]));
    let mut rest = vec![raw.next(), raw.next(), raw.next(), raw.next()];
    rest.sort();
    assert_eq!(rest[1], Some(vec![0x50, 2, 0, 5]), "{rest:x?}");
    assert_eq!(rest[2], Some(vec![0x50, 2, 0, 5]));
    assert_eq!(rest[3], Some(vec![0x70, 2, 0, 5]));
    assert_eq!(rest[0].as_ref().map(|packet| packet[0]), Some(0x32), "it was taken once");
    assert!(raw.is_quiet(Duration::from_millis(300)));
    let (batch, devices) = lab.helper.report();
    assert_eq!(devices[0].twins[0].reported.as_ref().map(|reported| reported.value.as_str()), Some("slow"));
    lab.helper.say(&sampan_devices_control::ToHelper::Ack { batch, refused: Vec::new() });
    lab.works("2");
}

#[test]
fn client_without_connect_is_disconnected() {
    let mut lab = Lab::new();
    let began = Instant::now();
    let mut mute = Raw::call(lab.port);
    let mut half = Raw::call(lab.port);
    half.say(&hello("half", 0)[..5]);
    let mut watch = Raw::subscribed(lab.port, "watch", "wills/#", 0);
    let mut silent = Raw::call(lab.port);
    let mut bytes = hello_with_will("silent", "wills/silent", b"gone");
    bytes[11] = 1;
    silent.say(&bytes);
    assert_eq!(silent.next(), Some(vec![0x20, 2, 0, TAKEN]));
    let mut alive = Raw::call(lab.port);
    // Cut after one and a half times that.
    alive.say(&hello("alive", 2));
    assert_eq!(alive.next(), Some(vec![0x20, 2, 0, TAKEN]));
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(300));
        assert!(alive.is_served(), "who pings stays");
    }
    assert_eq!(silent.rest(), Vec::<Vec<u8>>::new());
    assert_eq!(watch.next(), Some(publish(0x30, "wills/silent", 0, b"gone")), "its will is published");
    assert_eq!(mute.rest(), Vec::<Vec<u8>>::new());
    assert_eq!(half.rest(), Vec::<Vec<u8>>::new());
    // Ten seconds to say CONNECT; on a slow machine up to ten times that.
    let waited = began.elapsed();
    assert!(waited > Duration::from_secs(9) && waited < Duration::from_secs(100), "{waited:?}");
    lab.works("1");
}

#[test]
fn clients_are_limited_to_64_and_others_still_connect() {
    let mut lab = Lab::new();
    // These are silent, and the oldest are replaced.
    let callers: Vec<Raw> = (0..100).map(|_| Raw::call(lab.port)).collect();
    let mut clients: Vec<Raw> = (0..64).map(|n| Raw::client(lab.port, &format!("c{n}"))).collect();
    let mut more = Raw::call(lab.port);
    more.say(&[hello("more", 0), subscribe(1, "a", 0)].concat());
    assert_eq!(more.rest(), [vec![0x20, 2, 0, 3]]);
    // One that comes again takes its own place.
    let mut again = Raw::client(lab.port, "c7");
    assert_eq!(clients[7].rest(), Vec::<Vec<u8>>::new());
    assert!(again.is_served());
    assert!(clients.iter_mut().enumerate().all(|(n, client)| n == 7 || client.is_served()));
    drop((clients.pop(), callers));
    let begun = Instant::now();
    // The place that one client left is another's, which may come again under its id.
    while !Raw::call(lab.port).is_taken("works") {
        assert!(begun.elapsed() < PATIENCE, "no place becomes free");
    }
    lab.works("1");
}

#[test]
fn client_that_does_not_read_delays_no_other() {
    let mut lab = Lab::new();
    let mut deaf = Raw::subscribed(lab.port, "deaf", "flood/#", 0);
    let mut wills = Raw::subscribed(lab.port, "wills", "wills/#", 1);
    let mut sure = Raw::call(lab.port);
    sure.say(&[hello_with_will("sure", "wills/sure", b"slow"), subscribe(1, "flood/#", 1)].concat());
    assert_eq!(sure.next(), Some(vec![0x20, 2, 0, TAKEN]));
    assert_eq!(sure.next(), Some(vec![0x90, 3, 0, 1, 1]));
    let mut reader = Raw::subscribed(lab.port, "reader", "flood/#", 1);
    let mut writer = Raw::client(lab.port, "writer");
    // A reading client gets messages about them, whatever the others do.
    let (mut rounds, mut began) = (Vec::new(), Instant::now());
    for n in 0..10_000_u32 {
        let payload = [&n.to_be_bytes()[..], &[b'x'; 1_000]].concat();
        writer.say(&publish(0x32, "flood/a", 1 + u16::try_from(n % 1_000).expect("small"), &payload));
        if n % 10 == 9 {
            for _ in 0..10 {
                assert_eq!(writer.next().map(|packet| packet[0]), Some(0x40));
            }
            for at in n - 9..=n {
                let heard = reader.next().expect("it reads, and stays");
                assert_eq!(heard[0], 0x32);
                assert_eq!(heard[14..18], at.to_be_bytes(), "in their order");
                reader.say(&[0x40, 2, heard[12], heard[13]]);
            }
            rounds.push(std::mem::replace(&mut began, Instant::now()).elapsed());
        }
        if n == 5_000 {
            lab.works("in the flood");
        }
    }
    let usual = median(rounds);
    assert!(usual < Duration::from_millis(60), "{usual:?} for ten messages");
    // With QoS 1 it was too slow, and its will is published; with QoS 0 it has lost messages, and stays.
    let will = wills.next().expect("a will");
    assert_eq!((&will[4..14], &will[16..]), (&b"wills/sure"[..], &b"slow"[..]));
    sure.rest();
    deaf.say(&[0xc0, 0]);
    let mut heard = 0;
    while deaf.next().expect("it is there") != [0xd0, 0] {
        heard += 1;
    }
    assert!(heard > 10 && heard < 9_000, "{heard} messages");
    lab.works("after it");
    let counted = lab.helper.counters()["listener"].take();
    assert!(counted["dropped"].as_u64().is_some_and(|dropped| dropped > 1_000), "{counted}");
    assert_eq!((&counted["cut"], &counted["refused"]), (&1.into(), &0.into()), "{counted}");
}

#[test]
fn disconnect_during_a_write_publishes_no_will() {
    let mut lab = Lab::new();
    let mut watch = Raw::subscribed(lab.port, "watch", "wills/#", 0);
    let mut heard = Raw::subscribed(lab.port, "heard", "last/#", 0);
    let mut writer = Raw::client(lab.port, "writer");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let writing = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            writer.say(&publish(0x30, "flood/a", 0, &[b'x'; 200]).repeat(4));
            std::thread::sleep(Duration::from_micros(50));
        }
    });
    for n in 0..300_u32 {
        let mut raw = Raw::call(lab.port);
        raw.say(&[hello_with_will("brief", "wills/brief", b"gone"), subscribe(1, "flood/#", 0)].concat());
        assert_eq!(raw.next(), Some(vec![0x20, 2, 0, TAKEN]));
        let last = publish(0x30, "last/a", 0, &n.to_be_bytes());
        raw.say(&[&last[..], &[0xe0, 0]].concat());
        // Closed with unread bytes, so that the next write to it fails.
        drop(raw);
        assert_eq!(heard.next(), Some(last));
    }
    stop.store(true, Ordering::Relaxed);
    writing.join().expect("it has written");
    assert!(watch.is_quiet(Duration::from_millis(300)), "who says that it goes has no will");
    lab.works("1");
}

#[test]
fn late_acknowledgements_lose_no_message() {
    let lab = Lab::new();
    let mut late = Raw::subscribed(lab.port, "late", "flood/#", 1);
    let mut writer = Raw::client(lab.port, "writer");
    for n in 0..800_u16 {
        writer.say(&publish(0x32, "flood/a", 1 + n, &n.to_be_bytes()));
        assert_eq!(writer.next().map(|packet| packet[0]), Some(0x40));
    }
    let mut acks = Vec::new();
    for n in 0..800_u16 {
        if n > 0 && n % 128 == 0 {
            assert!(late.is_quiet(Duration::from_millis(50)), "no more than that is without an acknowledgement");
            late.say(&std::mem::take(&mut acks));
        }
        let heard = late.next().expect("it stays");
        assert_eq!(heard[13..], n.to_be_bytes());
        acks.extend([0x40, 2, heard[11], heard[12]]);
    }
}

#[test]
fn a_flood_of_one_client_leaves_room_for_others() {
    let lab = Lab::new();
    let mut flood = Raw::client(lab.port, "flood");
    let mut other = flood.stream.try_clone().expect("a clone");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // Its answers are read as well: it does all that it may.
    let writing = std::thread::spawn(move || {
        let text = br#"{"event_id":"f","twin":{"temp":{"actual":{"value":"1"}}}}"#;
        let many = publish(0x30, UPDATE, 0, text).repeat(1_000);
        let mut written = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            if std::io::Write::write_all(&mut other, &many).is_err() {
                break;
            }
            written += 1_000;
        }
        written
    });
    std::thread::sleep(Duration::from_millis(500));
    let mut answers = Vec::new();
    for _ in 0..20 {
        let mut device = Raw::subscribed(lab.port, "device", "$hw/events/device/default/t2/twin/get/result", 0);
        let began = Instant::now();
        device.say(&publish(0x30, "$hw/events/device/default/t2/twin/get", 0, br#"{"event_id":"1"}"#));
        assert!(device.next().is_some());
        answers.push(began.elapsed());
    }
    let usual = median(answers);
    assert!(usual < Duration::from_millis(500), "{usual:?}");
    stop.store(true, Ordering::Relaxed);
    flood.cut();
    let written = writing.join().expect("it has written");
    assert!(written > 5_000, "{written}: it is not held back without need");
    flood.rest();
    lab.helper.hang_up();
}
