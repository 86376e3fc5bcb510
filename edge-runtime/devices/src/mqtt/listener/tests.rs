//! Codec and hub together: bytes of clients in, bytes for clients out.

use std::rc::Rc;

use proptest::prelude::*;

use super::super::news::News;
use super::super::packet::Broken;
use super::frame::{Decoder, MAX_PACKET};
use super::hub::{Hub, Refusal, Token, Who};
use super::login::Logins;
use super::packet::{Packet, Publish, Qos};
use super::rights::Rights;
use super::shared::Shared;
use super::{Filter, fuzz};
use crate::twins::{FILTERS, SAID};

const UPDATE: &str = "$hw/events/device/default/t1/twin/update";

fn text(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).expect("short").to_be_bytes()[..], bytes].concat()
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    let mut length = body.len();
    while length > 127 {
        packet.push(u8::try_from(length & 127).expect("seven bits") | 128);
        length >>= 7;
    }
    packet.push(u8::try_from(length).expect("seven bits"));
    packet.extend(body);
    packet
}

fn publish(first: u8, topic: &str, id: u16, payload: &[u8]) -> Vec<u8> {
    let id = id.to_be_bytes();
    let id = if first & 6 == 0 { &[][..] } else { &id };
    packet(first, &[&text(topic.as_bytes()), id, payload].concat())
}

fn subscribe(filter: &str, qos: u8) -> Vec<u8> {
    packet(0x82, &[&[0, 1], &text(filter.as_bytes())[..], &[qos]].concat())
}

fn hello(id: &str) -> Vec<u8> {
    packet(0x10, &[b"\x00\x04MQTT\x04\x02\x00\x00", &text(id.as_bytes())[..]].concat())
}

struct Bench {
    hub: Hub,
    /// Rights of a user that may not do everything.
    rights: Option<Rc<Rights>>,
}

impl Bench {
    fn new() -> Self {
        Self { hub: Hub::new(&FILTERS, &SAID), rights: None }
    }

    /// # Errors
    /// It is refused.
    fn try_connect(&mut self, bytes: &[u8], user: Option<&str>) -> Result<Token, Refusal> {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        let Ok(Some((Packet::Connect(connect), _))) = decoder.peek() else { panic!("no CONNECT") };
        let rights = self.rights.clone().unwrap_or_else(|| Rc::new(Rights::all()));
        self.hub.connect(&connect, Who { user: user.map(ToOwned::to_owned), rights })
    }

    fn connect(&mut self, id: &str) -> Token {
        let token = self.try_connect(&hello(id), None).expect("it is taken");
        assert_eq!(self.told(token), [0x20, 2, 0, 0]);
        token
    }

    /// # Errors
    /// It is to end.
    fn try_say(&mut self, token: Token, bytes: &[u8]) -> Result<Vec<News>, Broken> {
        // Any CONNECT: the hub has that client already.
        let (mut decoder, mut news) = (Decoder::default(), Vec::new());
        decoder.feed(&hello("any"));
        let size = decoder.peek()?.map(|(_, size)| size).expect("a packet");
        decoder.take(size);
        decoder.feed(bytes);
        while let Some((packet, size)) = decoder.peek()? {
            news.extend(self.hub.packet(token, packet)?);
            decoder.take(size);
        }
        assert!(!decoder.is_midway());
        Ok(news)
    }

    fn say(&mut self, token: Token, bytes: &[u8]) -> Vec<News> {
        self.try_say(token, bytes).expect("it goes on")
    }

    fn told(&mut self, token: Token) -> Vec<u8> {
        let mut out = Vec::new();
        self.hub.write(token, &mut out, usize::MAX);
        out
    }

    fn subscribed(&mut self, id: &str, filter: &str, qos: u8) -> Token {
        let token = self.connect(id);
        self.say(token, &subscribe(filter, qos));
        assert_eq!(self.told(token), [0x90, 3, 0, 1, qos.min(1)], "{filter}");
        token
    }
}

#[test]
fn messages_reach_each_subscriber_once() {
    let mut bench = Bench::new();
    let writer = bench.connect("writer");
    let unsure = bench.subscribed("unsure", "a/#", 0);
    let sure = bench.subscribed("sure", "a/+", 2);
    let both = bench.subscribed("both", "a/#", 0);
    bench.say(both, &subscribe("a/b", 1));
    bench.told(both);
    let other = bench.subscribed("other", "b/#", 1);
    assert_eq!(bench.say(writer, &publish(0x33, "a/b", 9, b"x")), []);
    assert_eq!(bench.told(writer), [0x40, 2, 0, 9]);
    assert_eq!(bench.told(unsure), b"\x30\x06\x00\x03a/bx");
    for token in [sure, both] {
        // [MQTT-3.3.1-9]: it is not retained for those that are there. [MQTT-3.3.5-1]: the most that one has subscribed with.
        assert_eq!(bench.told(token), b"\x32\x08\x00\x03a/b\x00\x01x");
    }
    assert_eq!(bench.told(other), b"");
    assert_eq!(bench.hub.woken(), [unsure, sure, both]);
    bench.say(writer, &publish(0x30, "a/b", 0, b"y"));
    assert_eq!(bench.told(sure), b"\x30\x06\x00\x03a/by", "QoS 0 stays so");
    bench.say(sure, &packet(0xa2, &[&[0, 5], &text(b"a/+")[..]].concat()));
    bench.say(writer, &publish(0x30, "a/b", 0, b"z"));
    assert_eq!(bench.told(sure), [0xb0, 2, 0, 5]);
    // A new subscriber gets the present retained message.
    let late = bench.connect("late");
    bench.say(late, &subscribe("#", 1));
    assert_eq!(bench.told(late), b"\x90\x03\x00\x01\x01\x33\x08\x00\x03a/b\x00\x01x");
    bench.say(late, &subscribe("#", 0));
    assert_eq!(
        bench.told(late),
        b"\x90\x03\x00\x01\x00\x31\x06\x00\x03a/bx",
        "again for the same filter [MQTT-3.8.4-3]"
    );
    bench.say(writer, &publish(0x31, "a/b", 0, b""));
    assert_eq!(bench.told(late), b"\x30\x05\x00\x03a/b");
    bench.say(late, &subscribe("#", 0));
    assert_eq!(bench.told(late), b"\x90\x03\x00\x01\x00");
}

#[test]
fn a_message_of_qos_2_is_taken_once() {
    let mut bench = Bench::new();
    let (writer, reader) = (bench.connect("writer"), bench.subscribed("reader", "a", 2));
    bench.say(writer, &publish(0x34, "a", 5, b"x"));
    bench.say(writer, &publish(0x3c, "a", 5, b"x"));
    assert_eq!(bench.told(writer), [0x50, 2, 0, 5, 0x50, 2, 0, 5]);
    assert_eq!(bench.told(reader), b"\x32\x06\x00\x01a\x00\x01x");
    bench.say(writer, &[0x62, 2, 0, 5]);
    bench.say(writer, &[0x62, 2, 0, 5]);
    assert_eq!(bench.told(writer), [0x70, 2, 0, 5, 0x70, 2, 0, 5]);
    bench.say(writer, &publish(0x34, "a", 5, b"y"));
    assert_eq!(bench.told(reader), b"\x32\x06\x00\x01a\x00\x02y");
    let many: Vec<u8> = (1..=300).flat_map(|id| publish(0x34, "a", id, b"")).collect();
    assert!(bench.try_say(writer, &many).is_err(), "without end it may not go on so");
}

#[test]
fn only_the_node_publishes_on_its_topics() {
    let mut bench = Bench::new();
    let client = bench.connect("client");
    let message = |payload: Option<&[u8]>| News::Message {
        topic: UPDATE.into(),
        payload: payload.map(<[u8]>::to_vec),
        retained: false,
    };
    assert_eq!(bench.say(client, &publish(0x33, UPDATE, 1, b"x")), [message(Some(b"x"))]);
    // Longer than the maximum: skipped, and reported.
    let long = vec![b'x'; MAX_PACKET];
    assert_eq!(bench.say(client, &publish(0x32, UPDATE, 2, &long)), [message(None)]);
    for topic in ["$hw/events/device/a/b/twin/update/delta", "$hw/events/node/n/membership/updated", "$SYS/a", "$x"] {
        let reader = bench.subscribed("reader", &topic.replace("/updated", "/+"), 0);
        assert_eq!(bench.say(client, &publish(0x33, topic, 3, b"x")), []);
        assert_eq!(bench.told(reader), b"", "{topic}");
        bench.hub.publish(topic, b"y");
        assert!(!bench.told(reader).is_empty());
        bench.hub.gone(reader, true);
    }
    bench.say(client, &publish(0x32, &"x/".repeat(600), 4, b"x"));
    let acks = [1, 2, 3, 3, 3, 3, 4].iter().flat_map(|id| [0x40, 2, 0, *id]);
    assert_eq!(bench.told(client), acks.collect::<Vec<u8>>());

    let heard = |text: &str| vec![News::Subscribed(vec![Filter::new(text).expect("a filter")])];
    for (filter, news) in
        [("$hw/#", true), ("$hw/events/device/+/t1/twin/update/delta", true), ("#", false), ("a", false)]
    {
        let wanted = if news { heard(filter) } else { Vec::new() };
        assert_eq!(bench.say(client, &subscribe(filter, 1)), wanted);
    }
    assert!(bench.hub.room().is_some());
}

#[test]
fn rights_are_those_of_the_user() {
    let mut bench = Bench::new();
    let mut rights = Rights::default();
    rights.add("device=default/t1").expect("a right");
    bench.rights = Some(Rc::new(rights));
    let t1 = bench.try_connect(&hello("a"), Some("t1")).expect("it is taken");
    bench.told(t1);
    let other = "$hw/events/device/default/t2/twin/update";
    assert_eq!(bench.say(t1, &publish(0x30, other, 0, b"x")), []);
    assert_eq!(bench.say(t1, &publish(0x30, UPDATE, 0, b"x")).len(), 1);
    let mut body = vec![0, 1];
    for filter in ["$hw/events/device/default/t1/#", "#", "$hw/events/#", "a"] {
        body.extend(text(filter.as_bytes()));
        body.push(1);
    }
    bench.say(t1, &packet(0x82, &body));
    assert_eq!(bench.told(t1), [0x90, 6, 0, 1, 1, 0x80, 0x80, 0x80]);
    // A will does not bypass this, and its id is free: another user's client with that id stays connected.
    let will = [b"\x00\x04MQTT\x04\x06\x00\x00\x00\x01b", &text(other.as_bytes())[..], &text(b"x")].concat();
    let cut = bench.try_connect(&packet(0x10, &will), Some("t1")).expect("it is taken");
    assert_eq!(bench.hub.gone(cut, false), None);
    let another = bench.try_connect(&hello("a"), Some("t2")).expect("it is taken");
    assert_eq!((bench.hub.is_cut(t1), bench.hub.is_cut(another)), (None, None));
    for n in 0..7 {
        bench.try_connect(&hello(&n.to_string()), Some("t1")).expect("it is taken");
    }
    assert_eq!(bench.try_connect(&hello("more"), Some("t1")), Err(Refusal::Full), "one user leaves room for others");
    assert!(bench.try_connect(&hello("0"), Some("t1")).is_ok(), "in its own place");
    bench.hub.users(|user, _| user != "t1");
    assert!(bench.hub.is_cut(t1).is_some() && bench.hub.is_cut(another).is_none());
    assert!(bench.try_connect(&hello("more"), Some("t1")).is_ok(), "those that are to end have no place");
}

#[test]
fn will_is_published_only_after_a_lost_connection() {
    let mut bench = Bench::new();
    let reader = bench.subscribed("reader", "w", 1);
    let will = packet(0x10, b"\x00\x04MQTT\x04\x2e\x00\x00\x00\x01a\x00\x01w\x00\x03bye");
    let orderly = bench.try_connect(&will, None).expect("it is taken");
    assert_eq!(bench.hub.gone(orderly, true), None);
    assert_eq!(bench.told(reader), b"");
    let cut = bench.try_connect(&will, None).expect("it is taken");
    let again = bench.try_connect(&will, None).expect("it is taken");
    assert!(bench.hub.is_cut(cut).is_some(), "another one has its id");
    bench.hub.gone(cut, false);
    assert_eq!(bench.told(reader), b"\x32\x08\x00\x01w\x00\x01bye");
    assert_eq!(bench.hub.gone(cut, false), None, "once");
    let late = bench.connect("late");
    bench.say(late, &subscribe("w", 0));
    assert!(bench.told(late).ends_with(b"\x31\x06\x00\x01wbye"), "it was to be retained");
    bench.hub.gone(again, false);
    assert!(!bench.told(reader).is_empty());
}

#[test]
fn queues_are_bounded_for_each_client_and_for_all() {
    let mut bench = Bench::new();
    let writer = bench.connect("writer");
    let wills = bench.subscribed("wills", "w", 0);
    let deaf: Vec<Token> = (0..60).map(|n| bench.subscribed(&format!("d{n}"), &format!("t/{n}/#"), n % 2)).collect();
    let will = packet(0x10, b"\x00\x04MQTT\x04\x06\x00\x00\x00\x01a\x00\x01w\x00\x03bye");
    let slow = bench.try_connect(&will, None).expect("it is taken");
    bench.say(slow, &subscribe("t/1/#", 1));
    for turn in 0..20 {
        for n in 0..60 {
            bench.say(writer, &publish(0x31, &format!("t/{n}/{turn}"), 0, &vec![b'x'; 40_000]));
            bench.hub.publish(&format!("t/{n}/{turn}"), &vec![b'y'; 20_000]);
            let held = bench.hub.held_bytes();
            assert!(held <= (2 << 20) + 70_000, "{held} bytes are held");
        }
    }
    assert!(deaf.iter().filter(|token| bench.hub.is_cut(**token).is_some()).count() > 10, "the slowest are cut");
    assert!(bench.hub.counters().dropped > 100);
    bench.hub.gone(slow, false);
    assert!(!bench.told(wills).is_empty());
    for token in deaf {
        bench.hub.gone(token, true);
    }
    let held = bench.hub.held_bytes();
    assert!(held <= 256 << 10, "{held} bytes are retained");
}

#[test]
fn subscriptions_are_bounded() {
    let mut bench = Bench::new();
    let client = bench.connect("client");
    let codes: Vec<u8> = (0..200)
        .map(|n| {
            bench.say(client, &subscribe(&format!("t/{n}"), 0));
            bench.told(client)[4]
        })
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 128);
    bench.say(client, &subscribe("t/1", 1));
    assert_eq!(bench.told(client)[4], 1, "the same one needs no other place");
    let other = bench.connect("other");
    for (filter, code) in [("x".repeat(9_000), 0x80), ("+/".repeat(40), 0x80), ("+/".repeat(20), 0)] {
        bench.say(other, &subscribe(&filter, 0));
        assert_eq!(bench.told(other)[4], code);
    }
}

#[test]
fn a_subscribe_packet_with_many_filters_is_bounded() {
    let mut bench = Bench::new();
    let writer = bench.connect("writer");
    for number in 0..512 {
        bench.say(writer, &publish(0x31, &format!("t/{number}"), 0, b"x"));
    }
    let reader = bench.connect("reader");
    let filters = [&text(b"#")[..], &[0], &text(b"$hw/#"), &[0]].concat().repeat(5_000);
    let news = bench.say(reader, &packet(0x82, &[&[0, 1], &filters[..]].concat()));
    assert_eq!(news, [News::Subscribed(vec![Filter::new("$hw/#").expect("a filter")])], "each filter once");
    let told = bench.told(reader);
    let codes = &told[5..10_005];
    assert!(codes[..128].iter().all(|code| *code == 0) && codes[128..].iter().all(|code| *code == 0x80));
}

#[test]
fn topics_of_rules_are_news_for_the_node() {
    let mut bench = Bench::new();
    let writer = bench.connect("writer");
    let said = publish(0x30, "default/temp/kitchen", 0, b"21");
    assert_eq!(bench.say(writer, &said), []);
    bench.hub.hear(&["default/temp/+".to_owned()].into());
    let message =
        |topic: &str| News::Message { topic: topic.to_owned(), payload: Some(b"21".to_vec()), retained: false };
    assert_eq!(bench.say(writer, &said), [message("default/temp/kitchen")]);
    assert_eq!(bench.say(writer, &publish(0x30, UPDATE, 0, b"21")), [message(UPDATE)]);
    bench.hub.hear(&[].into());
    assert_eq!(bench.say(writer, &said), []);
}

#[test]
fn removed_user_is_disconnected() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().expect("temp dir");
    let file = folder.path().join("users");
    std::fs::write(&file, "other secret all\n").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
    let mut bench = Bench::new();
    let token = bench.try_connect(&hello("a"), Some("app")).expect("it is taken");
    let (news, _heard) = tokio::sync::mpsc::channel(1);
    let shared = Rc::new(Shared::new(bench.hub, Logins::new(Some(file)), news));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let followed = Rc::clone(&shared);
    runtime.block_on(tokio::task::LocalSet::new().run_until(async move {
        let following = tokio::task::spawn_local(async move { followed.follow_users().await });
        let cut = async {
            while shared.with(|hub| hub.is_cut(token)).is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), cut).await.expect("it is cut");
        following.abort();
    }));
}

#[test]
fn long_messages_are_skipped() {
    for (first, id) in [(0x30, None), (0x32, Some(3))] {
        let mut bytes = hello("a");
        bytes.extend(publish(first, "big", id.unwrap_or(0), &vec![b'x'; 300_000]));
        bytes.extend([0xc0, 0]);
        for cut in [1 << 10, 1 << 16, 5, 1 << 20] {
            let (mut decoder, mut said) = (Decoder::default(), Vec::new());
            for part in bytes.chunks(cut) {
                decoder.feed(part);
                while let Some((packet, size)) = decoder.peek().expect("packets") {
                    let qos = id.map_or(Qos::Zero, Qos::One);
                    let big = Publish { topic: "big", payload: None, retain: false, qos };
                    said.push((packet == Packet::Publish(big), packet == Packet::PingReq));
                    decoder.take(size);
                }
            }
            assert_eq!(said, [(false, false), (true, false), (false, true)], "{cut}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::bytes(&bytes);
    }

    /// Packets that are nearly right, whole and cut, of clients that come and go.
    #[test]
    fn nothing_that_looks_like_mqtt_is_too_much(
        pieces in prop::collection::vec((0..4_u8, 0..9_usize, any::<u8>(), any::<u16>()), 0..40)
    ) {
        let mut data = Vec::new();
        for (whose, kind, byte, number) in pieces {
            let mut bytes = match kind {
                0 | 1 => hello(&(byte % 3).to_string()),
                2 => packet(0x10, b"\x00\x04MQTT\x04\x26\x00\x00\x00\x01a\x00\x03a/b\x00\x03bye"),
                3 => subscribe(["#", "+/b", "a/b", "$hw/#", "a/#"][usize::from(byte % 5)], byte % 3),
                4 => publish(0x30 | (byte & 7).min(5), "a/b", number | 1, b"x"),
                5 => publish(0x33, UPDATE, number | 1, b"x"),
                6 => vec![0x40 | (byte & 0x20) | (byte >> 7) << 1, 2, 0, byte & 3],
                7 => packet(0xa2, &[&[0, 1], &text(b"a/b")[..]].concat()),
                _ => vec![0xe0, 0],
            };
            if byte % 16 == 15 {
                bytes.truncate(bytes.len() / 2);
            }
            data.extend([whose, u8::try_from(bytes.len()).expect("short")]);
            data.extend(bytes);
        }
        fuzz::bytes(&data);
    }
}
