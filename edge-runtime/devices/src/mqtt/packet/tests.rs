//! Packets of a broker, however they are cut, and those of a client.

use proptest::prelude::*;

use super::write::{packet, text};
use super::*;

fn all(bytes: &[u8], cut: usize) -> Result<Vec<Packet>, Broken> {
    let (mut decoder, mut packets) = (Decoder::default(), Vec::new());
    for part in bytes.chunks(cut.max(1)) {
        decoder.feed(part);
        while let Some(packet) = decoder.next()? {
            packets.push(packet);
        }
        assert!(decoder.bytes.len() <= MAX_PACKET + 5 + cut, "it holds {} bytes", decoder.bytes.len());
    }
    Ok(packets)
}

fn from_broker(first: u8, topic: &str, id: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, topic.as_bytes());
    body.extend(id.into_iter().flat_map(u16::to_be_bytes));
    body.extend(payload);
    packet(first, &body)
}

#[test]
fn a_login_is_as_the_standard_has_it() {
    let login = Login { client_id: "c".into(), username: "u".into(), password: b"p".to_vec() };
    let wanted = b"\x10\x13\x00\x04MQTT\x04\xc2\x00\x1e\x00\x01c\x00\x01u\x00\x01p";
    assert_eq!(connect(&login, 30), wanted);
    assert_eq!(connect(&Login { client_id: "c".into(), ..Login::default() }, 30)[9], 0x02);
    assert_eq!(subscribe(1, &["a/#"]), b"\x82\x08\x00\x01\x00\x03a/#\x01");
    assert_eq!(unsubscribe(3, &["a".to_owned()]), b"\xa2\x05\x00\x03\x00\x01a");
    let mut said = Vec::new();
    message(&mut said, "a", b"x", Some(7), false);
    assert_eq!(said, b"\x32\x06\x00\x01a\x00\x07x");
    assert_eq!(puback(258), [0x40, 2, 1, 2]);
}

#[test]
fn split_packets_are_joined() {
    let mut bytes = vec![0x20, 2, 0, 0, 0x90, 3, 0, 1, 1, 0x40, 2, 0, 7, 0xd0, 0];
    bytes.extend(from_broker(0x33, "a/b", Some(9), b"{}"));
    bytes.extend(from_broker(0x30, "c", None, b""));
    let wanted = || {
        vec![
            Packet::ConnAck(0),
            Packet::SubAck(1, vec![1]),
            Packet::PubAck(7),
            Packet::PingResp,
            Packet::Publish(Publish {
                topic: "a/b".into(),
                payload: Some(b"{}".to_vec()),
                retained: true,
                id: Some(9),
            }),
            Packet::Publish(Publish { topic: "c".into(), payload: Some(vec![]), retained: false, id: None }),
        ]
    };
    for cut in 1..bytes.len() {
        assert_eq!(all(&bytes, cut), Ok(wanted()));
    }
}

#[test]
fn a_message_that_is_too_long_is_passed_over() {
    for (first, id) in [(0x32, Some(3)), (0x30, None)] {
        let mut bytes = from_broker(first, "big", id, &vec![b'x'; 3 << 20]);
        bytes.extend([0xd0, 0]);
        for cut in [1 << 10, 1 << 16, 5, 4 << 20] {
            let big = Publish { topic: "big".into(), payload: None, retained: false, id };
            assert_eq!(all(&bytes, cut), Ok(vec![Packet::Publish(big), Packet::PingResp]), "{cut}");
        }
    }
}

#[test]
fn malformed_packet_ends_the_connection() {
    for bytes in [
        &[0x20, 1, 0][..],
        &[0x10, 0],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 1],
        &[0x34, 5, 0, 1, b'a', 0, 1],
        &[0x32, 4, 0, 9, b'a', 0],
        &[0x30, 1, 0],
        &[0xd0, 1, 0],
        &[0x90, 0x80, 0x80, 0x80, 1],
    ] {
        assert!(all(bytes, 1).is_err(), "{bytes:x?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1_usize..300) {
        prop_assert_eq!(all(&bytes, cut), all(&bytes, bytes.len()), "the same, however it is cut");
    }
}
