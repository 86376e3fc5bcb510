//! Messages and calls of rules on the link: only where both sides want them, and never more than either can hold.

mod common;

use common::{NOW, Pair, listed};
use edge_protocol::bridge::{BridgeEvent, BridgeSettings};
use edge_protocol::edge::{EdgeEvent, EdgeFacts};
use edge_protocol::frame::encode;
use edge_protocol::message::{Call, CallFailure, CallResult, ToCloud};
use edge_protocol::version::Wants;
use serde_json::{Value, json};

fn welcomed(rules: bool, session: u64) -> Pair {
    let facts = EdgeFacts { wants: Wants { rules, ..Wants::default() }, ..EdgeFacts::new("n", "b-1") };
    let mut pair = Pair::with(listed("s"), facts, BridgeSettings::new("n", "c", session));
    pair.run(NOW).expect("they talk");
    pair
}

fn messages(pair: &Pair) -> Vec<u64> {
    let id = |event: &BridgeEvent| if let BridgeEvent::Message { id, .. } = event { Some(*id) } else { None };
    pair.bridge_events.iter().filter_map(id).collect()
}

fn acked(pair: &Pair) -> Vec<u64> {
    let ids = |event: &EdgeEvent| if let EdgeEvent::MessagesAcked(ids) = event { ids.clone() } else { vec![] };
    pair.edge_events.iter().flat_map(ids).collect()
}

#[test]
fn messages_come_in_order_and_are_acknowledged_in_any() {
    let mut pair = welcomed(true, 1);
    for id in [3, 5, 9] {
        assert!(pair.edge.message(id, 1_000, json!({"rule": "u", "payload": "eA=="})));
    }
    pair.run(NOW).expect("they talk");
    assert_eq!(messages(&pair), [3, 5, 9]);
    for id in [9, 3, 4, 9] {
        pair.bridge.message_done(id);
    }
    pair.run(NOW).expect("they talk");
    assert_eq!(acked(&pair), [9, 3], "nobody has said 4, and 9 is done once");
}

#[test]
fn a_call_is_answered_by_its_number() {
    let mut pair = welcomed(true, 7);
    let call =
        serde_json::to_value(Call::Publish { namespace: "ns".into(), topic: "led".into(), payload: b"ON".to_vec() })
            .expect("data");
    assert_eq!(call, json!({"publish": {"namespace": "ns", "topic": "led", "payload": "T04="}}));
    let id = pair.bridge.call(call.clone()).expect("it takes calls");
    pair.run(NOW).expect("they talk");
    assert_eq!(pair.edge_events.last(), Some(&EdgeEvent::Call { id, call: call.clone() }));
    let answer = serde_json::to_value(CallResult::Published {}).expect("data");
    assert!(pair.edge.answer(id, answer.clone()));
    pair.run(NOW).expect("they talk");
    assert_eq!(pair.bridge_events.last(), Some(&BridgeEvent::Answer { id, answer: answer.clone() }));
    let events = pair.bridge_events.len();
    assert!(pair.edge.answer(id, answer.clone()), "again");
    let late = pair.bridge.call(call).expect("it takes calls");
    pair.bridge.forget_call(late);
    assert!(pair.edge.answer(late, answer), "too late");
    pair.run(NOW).expect("they talk");
    assert_eq!(pair.bridge_events.len(), events, "nobody waits for either");
}

#[test]
fn a_request_is_answered_by_its_number() {
    let mut pair = welcomed(true, 7);
    let request = json!({"rule": "u", "body": "e30="});
    assert!(pair.edge.request(1_700_000_000_000_000, request.clone()));
    pair.run(NOW).expect("they talk");
    let id = 1_700_000_000_000_000;
    assert_eq!(pair.bridge_events.last(), Some(&BridgeEvent::Request { id, request: request.clone() }));
    for _ in 0..2 {
        assert!(pair.bridge.respond(id, json!({"published": {}})), "the second is none");
    }
    assert!(pair.bridge.respond(9, Value::Null), "nobody has asked");
    pair.run(NOW).expect("they talk");
    let told =
        |pair: &Pair| pair.edge_events.iter().filter(|event| matches!(event, EdgeEvent::Response { .. })).count();
    assert_eq!(told(&pair), 1);
    assert_eq!(pair.edge_events.last(), Some(&EdgeEvent::Response { id, response: json!({"published": {}}) }));

    // A peer that does not read gets no more than the limit permits.
    let long = Value::from("x".repeat(1 << 20));
    for id in 0..16 {
        assert!(pair.edge.request(id, Value::Null));
    }
    pair.run(NOW).expect("they talk");
    assert_eq!((0..16).filter(|id| pair.bridge.respond(*id, long.clone())).count(), 2);
    assert_eq!((0..16).filter(|id| pair.bridge.respond(*id, json!({"failed": {}}))).count(), 16);
    pair.run(NOW).expect("they talk");
    assert_eq!(told(&pair), 17, "each is answered once");
}

#[test]
fn answers_to_other_connections_calls_end_the_connection() {
    for id in [0, 1, (7 << 20) + 2, (8 << 20) + 1, u64::MAX] {
        let mut pair = welcomed(true, 7);
        pair.bridge.call(Value::Null).expect("it takes calls");
        let frame = encode(&ToCloud::Answer { id, answer: Value::Null });
        assert!(pair.bridge.handle(&mut pair.state, &frame, NOW).is_err(), "{id}");
    }
}

#[test]
fn node_without_the_feature_gets_no_rules() {
    let mut pair = welcomed(false, 1);
    assert!(!pair.edge.message(1, 1, Value::Null) && !pair.edge.answer(1, Value::Null));
    assert_eq!(pair.bridge.call(Value::Null), None);
    assert!(!pair.edge.request(1, Value::Null));
    for message in [
        ToCloud::Request { id: 1, request: Value::Null },
        ToCloud::Message { id: 1, left_ms: 1, message: Value::Null },
        ToCloud::Answer { id: 1, answer: Value::Null },
    ] {
        let mut pair = welcomed(false, 1);
        assert!(pair.bridge.handle(&mut pair.state, &encode(&message), NOW).is_err());
    }
}

#[test]
fn neither_side_can_fill_the_other() {
    let mut pair = welcomed(true, 1);
    let calls = (0..1_000).filter(|_| pair.bridge.call(Value::Null).is_some()).count();
    assert_eq!(calls, 32);
    let mut pair = welcomed(true, 1);
    let body = Value::from("x".repeat(1 << 20));
    assert_eq!((0..10).filter(|_| pair.bridge.call(body.clone()).is_some()).count(), 2, "by their bytes");
    assert_eq!((0..1_000).filter(|id| pair.edge.message(*id, 1, Value::Null)).count(), 256);
    let mut pair = welcomed(true, 1);
    assert!(!pair.edge.message(1, 1, "x".repeat(4 << 20).into()), "longer than any message");
    let message = |id| encode(&ToCloud::Message { id, left_ms: 1, message: Value::Null });
    let taken = (0..1_000).take_while(|id| pair.bridge.handle(&mut pair.state, &message(*id), NOW).is_ok()).count();
    assert_eq!(taken, 256);
    let request = |id| encode(&ToCloud::Request { id, request: Value::Null });
    let taken = (0..1_000).take_while(|id| pair.bridge.handle(&mut pair.state, &request(*id), NOW).is_ok()).count();
    assert_eq!(taken, 32);
    let mut pair = welcomed(true, 1);
    assert!(pair.bridge.handle(&mut pair.state, &request(1), NOW).is_ok());
    assert!(pair.bridge.handle(&mut pair.state, &request(1), NOW).is_err(), "the same number while under way");
    let mut pair = welcomed(true, 1);
    assert!(pair.bridge.handle(&mut pair.state, &message(1), NOW).is_ok());
    assert!(pair.bridge.handle(&mut pair.state, &message(1), NOW).is_err(), "the same row twice");
}

#[test]
fn reasons_of_newer_nodes_are_reasons() {
    let failed: CallResult =
        serde_json::from_value(json!({"failed": {"failure": "moonPhase", "why": "new"}})).expect("reads");
    assert_eq!(failed, CallResult::Failed { failure: CallFailure::Unknown, why: "new".into() });
}
