//! Any sequence of well-formed messages, in any order, with any numbers: errors are fine, panics are not, and
//! nothing is deleted that was not named.

mod common;

use common::{NOW, digest, key, listed, object, welcome};
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::frame::encode;
use edge_protocol::message::{ApiRequest, ObjectRef, Position, Report, StreamRequest, ToCloud, ToEdge};
use edge_protocol::stream::EDGE_STREAMS;
use edge_protocol::version::{API, Hello, ProtocolRange};
use proptest::prelude::*;
use std::time::Duration;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..6, Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 40)]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("c"), Just("")]
}

fn reference(name: &str) -> ObjectRef {
    ObjectRef { key: key(name), uid: format!("uid-{name}") }
}

fn to_edge() -> impl Strategy<Value = ToEdge> {
    prop_oneof![
        any::<bool>().prop_map(welcome),
        (number(), number()).prop_map(|(seq, count)| ToEdge::SyncBegin { seq, count }),
        prop::collection::vec((name(), 0u64..3), 0..3)
            .prop_map(|list| ToEdge::SyncDigests { objects: list.iter().map(|(n, v)| digest(n, *v)).collect() }),
        (number(), number()).prop_map(|(seq, count)| ToEdge::SyncEnd { seq, count }),
        number().prop_map(|seq| ToEdge::SyncDone { seq }),
        (number(), any::<bool>(), name()).prop_map(|(seq, sync, n)| ToEdge::Put { seq, sync, object: object(n, 1) }),
        (number(), name()).prop_map(|(seq, n)| ToEdge::Delete { seq, object: reference(n) }),
        prop::collection::vec(number(), 0..3).prop_map(|ids| ToEdge::UpAck { ids }),
        number().prop_map(|id| ToEdge::UpRefuse { id, reason: String::new() }),
        (number(), number()).prop_map(|(stream, credit)| {
            let request = StreamRequest::Unknown;
            ToEdge::StreamOpen { stream, request, credit }
        }),
        (number(), 0usize..70_000).prop_map(|(stream, n)| ToEdge::StreamData { stream, data: vec![0; n] }),
        (number(), number()).prop_map(|(stream, bytes)| ToEdge::StreamCredit { stream, bytes }),
        number().prop_map(|stream| ToEdge::StreamEnd { stream, error: None }),
        Just(ToEdge::Pong {}),
    ]
}

fn to_cloud() -> impl Strategy<Value = ToCloud> {
    prop_oneof![
        number().prop_map(|seq| ToCloud::Ack { seq }),
        name().prop_map(|n| ToCloud::Nack { object: reference(n), reason: String::new() }),
        (prop::collection::vec(name(), 0..4), any::<bool>())
            .prop_map(|(names, done)| ToCloud::Need { keys: names.into_iter().map(key).collect(), done }),
        name().prop_map(|n| ToCloud::Unlisted { objects: vec![digest(n, 1)] }),
        number().prop_map(|id| ToCloud::Up { id, report: Report::Unknown }),
        (number(), 0usize..70_000).prop_map(|(stream, n)| ToCloud::StreamData { stream, data: vec![0; n] }),
        (number(), number()).prop_map(|(stream, bytes)| ToCloud::StreamCredit { stream, bytes }),
        number().prop_map(|stream| ToCloud::StreamEnd { stream, error: None }),
        (0u64..6, number(), any::<bool>()).prop_map(|(stream, credit, bad)| {
            let path = if bad { "/metrics" } else { "/api" }.to_owned();
            let request = ApiRequest { method: "GET".into(), path, headers: Vec::new(), has_body: true };
            ToCloud::ApiOpen { stream: EDGE_STREAMS + stream, request, credit }
        }),
        Just(ToCloud::Ping { rtt_ms: None }),
        Just(ToCloud::Ping { rtt_ms: Some(7) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_node_survives_any_bridge(messages in prop::collection::vec(to_edge(), 1..30), resume: bool, report: bool) {
        let mut facts = EdgeFacts::new("n", "b");
        facts.held = vec![digest("a", 1), digest("b", 1)];
        facts.position = Some(Position { stream: "s".into(), seq: 1 });
        let mut edge = EdgeSession::new(facts, NOW);
        let mut named = false;
        let _ = edge.handle(&encode(&welcome(resume)), NOW);
        for (turn, message) in messages.iter().enumerate() {
            named |= matches!(message, ToEdge::Delete { .. } | ToEdge::SyncDone { .. });
            if edge.handle(&encode(message), NOW).is_err() {
                break;
            }
            if report {
                let _ = edge.up(turn as u64, Report::Node { node: serde_json::json!(null) });
            }
            for stream in edge.open_streams() {
                let room = edge.stream_room(stream);
                prop_assert!(edge.stream_send(stream, &vec![0; room.min(1_000)]).is_ok());
                edge.stream_consumed(stream, 70_000);
            }
            while let Some(event) = edge.poll_event() {
                if let EdgeEvent::Change(change) = event {
                    let deletes = match &change {
                        Change::SyncComplete { absent, .. } => !absent.is_empty(),
                        Change::Delete { .. } => true,
                        Change::Put { .. } => false,
                    };
                    prop_assert!(named || !deletes);
                    edge.committed(change.seq());
                }
            }
            let mut frames = 0;
            while edge.poll_transmit(NOW).is_some() {
                frames += 1;
                prop_assert!(frames < 1_000);
            }
            let _ = edge.on_timeout(Duration::from_secs(turn as u64));
        }
    }

    #[test]
    fn the_bridge_survives_any_node(messages in prop::collection::vec(to_cloud(), 1..30), seq in number(), same: bool) {
        let mut state = listed("s").keep_tombstones(1);
        for n in ["a", "b", "c"] {
            prop_assert!(state.set(object(n, 1)).is_ok());
        }
        state.remove(&key("c"), "uid-c");
        let mut bridge = BridgeSession::new(BridgeSettings::new("n", "c", 1), &mut state, NOW);
        let hello = Hello {
            protocol: ProtocolRange { min: 0, max: u32::MAX },
            features: vec!["logs".into(), API.into()],
            node: "n".into(),
            cluster: None,
            boot_id: String::new(),
            agent: String::new(),
            interests: Vec::new(),
            position: Some(Position { stream: if same { "s" } else { "t" }.into(), seq }),
        };
        prop_assert!(bridge.handle(&mut state, &encode(&ToCloud::Hello(hello)), NOW).is_ok());
        state.listed(1);
        let _ = bridge.open_stream(StreamRequest::Unknown);
        for (turn, message) in messages.iter().enumerate() {
            let mut frames = 0;
            while bridge.poll_transmit(&state, NOW).is_some() {
                frames += 1;
                prop_assert!(frames < 1_000);
            }
            if bridge.handle(&mut state, &encode(message), NOW).is_err() {
                break;
            }
            while let Some(event) = bridge.poll_event() {
                match event {
                    BridgeEvent::Report { id, .. } if id % 2 == 0 => bridge.reported(id),
                    BridgeEvent::Report { id, .. } => bridge.refuse_report(id, "no"),
                    BridgeEvent::Unlisted(objects) => {
                        for gone in objects {
                            state.remove(&gone.key, &gone.uid);
                        }
                    }
                    _ => {}
                }
            }
            let _ = state.set(object("d", turn as u64));
        }
    }
}
