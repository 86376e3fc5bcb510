//! A change reads the same however it is assembled, and large ones wait for their turn.

use super::*;
use crate::message::Object;
use crate::outgoing::{Outgoing, Piece};
use crate::state::Body;
use std::sync::Arc;

/// Frames of one message.
fn frames(message: Whole) -> Vec<String> {
    let mut out = Outgoing::<ToEdge>::new();
    let first = out.begin(message);
    first.into_iter().chain(std::iter::from_fn(|| out.next())).map(Piece::into_text).collect()
}

fn digest(kind: &str) -> ObjectDigest {
    let key = ObjectKey { kind: kind.into(), namespace: "a\"b".into(), name: "n".into() };
    ObjectDigest { key, uid: "u".into(), digest: "d".into() }
}

#[test]
fn the_spliced_put_reads_as_the_message() {
    for bytes in [0, LARGE - 100, LARGE, frame::PART, 20 * frame::PART] {
        let body = serde_json::json!({"data": {"x": "\u{0}\"\\", "y": "\u{e9}".repeat(bytes / 2)}});
        let object = Object { digest: digest("Secret"), body };
        let mut state = NodeState::new("s");
        state.set(object.clone()).expect("fits");
        for sync in [false, true] {
            let message = put(&state, 1, sync).expect("is there");
            let expected = ToEdge::Put { seq: 1, sync, object: object.clone() };
            assert_eq!(message.len(), frame::encode(&expected).len());
            let frames = frames(message);
            assert_eq!(frames.len() == 1, bytes < LARGE, "{} frames", frames.len());
            let mut reader = frame::Decoder::default();
            let read: Vec<_> = frames.iter().map(|frame| reader.decode::<ToEdge>(frame).expect("reads")).collect();
            let (last, slices) = read.split_last().expect("is there");
            assert!(slices.iter().all(|slice| *slice == frame::Decoded::Incomplete));
            assert_eq!(*last, frame::Decoded::Message(expected));
        }
    }
}

#[test]
fn a_large_object_waits_for_its_turn_and_its_text_is_shared() {
    let text = Arc::new(Body::new(format!("{{\"x\":\"{}\"}}", "y".repeat(LARGE))));
    let states: Vec<NodeState> = (0..50)
        .map(|_| {
            let mut state = NodeState::new("s");
            state.set_text(&digest("ConfigMap"), || Arc::clone(&text)).expect("fits");
            state
        })
        .collect();
    assert_eq!(Arc::strong_count(&text), 51, "one text for all");
    let mut down = Down::new(1 << 20, true);
    down.start(Some(0));
    assert!(down.next(&states[0]).is_none() && down.wants_large());
    down.allow_large();
    assert!(down.may_send_large() && !down.wants_large() && !down.large_in_flight());
    assert!(matches!(down.next(&states[0]), Some(Whole::Around { body, .. }) if Arc::ptr_eq(&body, &text)));
    assert!(!down.may_send_large() && down.next(&states[0]).is_none() && !down.wants_large(), "one, and no more");
    assert!(down.large_in_flight());
    down.ack(1).expect("was sent");
    assert!(!down.large_in_flight(), "its turn is another's now");
    let mut free = Down::new(1 << 20, false);
    free.start(Some(0));
    assert!(free.next(&states[1]).is_some());
}

/// As in the bridge and the node: compressed for peers that support it, text for the others, from one text.
#[test]
fn a_large_object_reaches_new_nodes_and_old_ones() {
    use crate::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
    use crate::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
    use crate::wire::Wire;
    use std::time::Duration;

    let letter = |n: u32| char::from(b'a' + n.wrapping_mul(2_654_435_761).to_be_bytes()[1] % 26);
    let letters: String = (0..(1 << 20) - 100).map(letter).collect();
    let body = serde_json::json!({"data": {"x": letters}});
    let shared = Arc::new(Body::new(body.to_string()));
    let mut packed = Vec::new();
    for compress in [true, true, false, true] {
        let now = Duration::ZERO;
        let mut state = NodeState::new("s");
        state.set_text(&digest("ConfigMap"), || Arc::clone(&shared)).expect("fits");
        let mut settings = BridgeSettings::new("n", "c", 1);
        settings.compress = true;
        let mut bridge = BridgeSession::new(settings, &mut state, now);
        let mut edge = EdgeSession::new(EdgeFacts { compress, ..EdgeFacts::new("n", "b") }, now);
        let (mut got, mut sent) = (None, Vec::new());
        for _ in 0..10 {
            while let Some(frame) = edge.poll_frame(now) {
                match frame.wire() {
                    Wire::Text(text) => bridge.handle(&mut state, &text, now).expect("good"),
                    Wire::Binary(bytes) => bridge.handle_binary(&mut state, &bytes, now).expect("good"),
                    Wire::Shared(_) => panic!("nodes share nothing"),
                }
            }
            while let Some(event) = bridge.poll_event() {
                if let BridgeEvent::Connected { .. } = event {
                    state.listed(1);
                }
            }
            while let Some(frame) = bridge.poll_frame(&state, now) {
                match frame.wire() {
                    Wire::Text(text) => edge.handle(&text, now).expect("good"),
                    Wire::Binary(bytes) => edge.handle_binary(&bytes, now).expect("good"),
                    Wire::Shared(bytes) => {
                        edge.handle_binary(&bytes, now).expect("good");
                        sent.push(bytes);
                    }
                }
            }
            while let Some(event) = edge.poll_event() {
                if let EdgeEvent::Change(change) = event {
                    edge.committed(change.seq());
                    if let Change::Put { object, .. } = change {
                        got = Some(object.body);
                    }
                }
            }
        }
        assert_eq!(got.as_ref(), Some(&body));
        assert_eq!(sent.is_empty(), !compress);
        packed.push(sent);
    }
    assert_eq!(packed[0], packed[1]);
    assert!(packed[1].len() >= 16 && packed[1].iter().zip(&packed[3]).all(|(one, other)| Arc::ptr_eq(one, other)));
}
