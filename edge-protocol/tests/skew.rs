//! Conversations as the first release had them, frame by frame: the other side is today's. A line is never changed.

mod common;

use common::{NOW, key, object};
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::message::{Report, TokenRequest};
use edge_protocol::state::NodeState;

/// Messages of the first node version: a hello without later fields, the bodies it needs, its commits, a status, a
/// ping.
const OLD_NODE: [&str; 5] = [
    r#"{"hello":{"protocol":{"min":1,"max":1},"features":["logs"],"node":"n","bootId":"b-1","agent":"edge-runtime/0.1.0"}}"#,
    r#"{"need":{"keys":[{"kind":"Pod","namespace":"ns","name":"web"}],"done":true}}"#,
    r#"{"ack":{"seq":1}}"#,
    r#"{"up":{"id":1,"report":{"report":"podStatus","namespace":"ns","name":"web","uid":"uid-web","status":{"phase":"Running"}}}}"#,
    r#"{"ping":{}}"#,
];

/// Messages of the first bridge version: a welcome without later features, a list of one object, its body, the end.
const OLD_BRIDGE: [&str; 7] = [
    r#"{"welcome":{"protocol":1,"features":["logs"],"cluster":"c","session":7,"stream":"s","resume":false,"heartbeatMs":15000}}"#,
    r#"{"syncBegin":{"seq":1,"count":1}}"#,
    r#"{"syncDigests":{"objects":[{"kind":"Pod","namespace":"ns","name":"web","uid":"uid-web","digest":"1"}]}}"#,
    r#"{"syncEnd":{"seq":1,"count":1}}"#,
    r#"{"put":{"seq":1,"sync":true,"object":{"kind":"Pod","namespace":"ns","name":"web","uid":"uid-web","digest":"1","body":{"version":1}}}}"#,
    r#"{"syncDone":{"seq":1}}"#,
    r#"{"upAck":{"ids":[1]}}"#,
];

#[test]
fn g21_an_old_node_is_served() {
    let mut state = NodeState::new("s");
    state.set(object("web", 1)).expect("fits");
    let mut bridge = BridgeSession::new(BridgeSettings::new("n", "c", 7), &mut state, NOW);
    let mut sent = Vec::new();
    for frame in OLD_NODE {
        bridge.handle(&mut state, frame, NOW).expect("an old node's frame");
        state.listed(7);
        sent.extend(std::iter::from_fn(|| bridge.poll_transmit(&state, NOW)));
    }
    // It knows no other messages, and answers each that it does not know.
    let known = ["welcome", "syncBegin", "syncDigests", "syncEnd", "put", "syncDone", "pong"];
    let names: Vec<_> = sent.iter().filter_map(|frame| frame.split('"').nth(1)).collect();
    assert_eq!(names, known);
    let mut events = std::iter::from_fn(|| bridge.poll_event());
    let is_status =
        |event: &BridgeEvent| matches!(event, BridgeEvent::Report { id: 1, report: Report::PodStatus { .. } });
    assert!(events.any(|event| is_status(&event)));
    assert_eq!(bridge.acked(), Some(1));
}

#[test]
fn g21_an_old_bridge_is_followed() {
    let mut edge = EdgeSession::new(EdgeFacts::new("n", "b-1"), NOW);
    let mut changes = Vec::new();
    for frame in OLD_BRIDGE {
        edge.handle(frame, NOW).expect("an old bridge's frame");
        while let Some(event) = edge.poll_event() {
            if let EdgeEvent::Change(change) = event {
                edge.committed(change.seq());
                changes.push(change);
            }
        }
    }
    assert!(matches!(&changes[0], Change::Put { object, .. } if object.digest.key == key("web")));
    assert!(matches!(&changes[1], Change::SyncComplete { absent, .. } if absent.is_empty()));
    let request = TokenRequest {
        namespace: "ns".into(),
        pod: "web".into(),
        uid: "uid-web".into(),
        audience: String::new(),
        expiration_seconds: 600,
    };
    assert!(!edge.request_token(1, request), "a bridge that does not know tokens is not asked for one");
    assert!(!edge.passes_api());
}
