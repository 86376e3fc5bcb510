//! Streams share the connection fairly, never overrun their credit, and fail alone.

mod common;

use common::{NOW, Pair, key, listed, object, sent, welcome};
use edge_protocol::bridge::BridgeEvent;
use edge_protocol::edge::{EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::frame::encode;
use edge_protocol::message::{StreamRequest, ToCloud, ToEdge};
use edge_protocol::stream::{EDGE_STREAMS, INITIAL_CREDIT, MAX_STREAMS, StreamError, StreamEvent};
use proptest::prelude::*;

fn pair() -> Pair {
    let mut pair = Pair::new(listed("s"), EdgeFacts::new("n", "b"));
    pair.run(NOW).expect("settles");
    pair.edge_events.clear();
    pair.bridge_events.clear();
    pair
}

fn received(pair: &mut Pair, stream: u64) -> Vec<u8> {
    let mut all = Vec::new();
    for event in pair.bridge_events.drain(..) {
        if let BridgeEvent::Stream(StreamEvent::Data { stream: s, data }) = event
            && s == stream
        {
            pair.bridge.stream_consumed(stream, data.len());
            all.extend(data);
        }
    }
    all
}

/// They take no credit: a flood of them would wait for the reader without end.
#[test]
fn g17_empty_frames_are_ignored() {
    let mut pair = pair();
    let stream = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
    pair.run(NOW).expect("opens");
    for _ in 0..10_000 {
        let empty = encode(&ToCloud::StreamData { stream, data: Vec::new() });
        pair.bridge.handle(&mut pair.state, &empty, NOW).expect("no breach");
        let nobodys = encode(&ToCloud::StreamData { stream: stream + 7, data: vec![1] });
        pair.bridge.handle(&mut pair.state, &nobodys, NOW).expect("no breach");
    }
    assert_eq!(pair.bridge.poll_event(), None);
}

#[test]
fn sync_goes_before_stream_data_and_streams_take_turns() {
    let mut pair = pair();
    let streams = [(); 3].map(|()| pair.bridge.open_stream(StreamRequest::Unknown).expect("room"));
    pair.run(NOW).expect("opens");
    for stream in streams {
        pair.edge.stream_send(stream, &[1; 60_000]).expect("credit");
    }
    let report = edge_protocol::message::Report::Node { node: serde_json::json!({}) };
    pair.edge.up(1, report).expect("room");
    let out = sent::<ToCloud>(|| pair.edge.poll_transmit(NOW));
    assert!(matches!(out[0], ToCloud::Up { .. }), "{:?}", out[0]);
    let order: Vec<_> = out
        .iter()
        .filter_map(|m| if let ToCloud::StreamData { stream, .. } = m { Some(*stream) } else { None })
        .collect();
    assert_eq!(order[..6], [1, 2, 3, 1, 2, 3]);

    for stream in streams {
        pair.bridge.stream_send(stream, &[1; 5_000]).expect("credit");
    }
    pair.state.set(object("a", 1)).expect("fits");
    pair.state.remove(&key("a"), "uid-a");
    let out = sent::<ToEdge>(|| pair.bridge.poll_transmit(&pair.state, NOW));
    assert!(matches!(out[0], ToEdge::Delete { .. }), "{:?}", out[0]);
    assert_eq!(out.len(), 4);
}

#[test]
fn slow_reader_does_not_block_other_streams() {
    let mut pair = pair();
    let slow = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
    let fast = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
    let mut total = 0;
    for _ in 0..100 {
        pair.run(NOW).expect("runs");
        total += received(&mut pair, fast).len();
        let (a, b) = (pair.edge.stream_room(slow), pair.edge.stream_room(fast));
        pair.edge.stream_send(slow, &vec![1; a]).expect("room");
        pair.edge.stream_send(fast, &vec![1; b]).expect("room");
    }
    assert_eq!(pair.edge.stream_room(slow), 0);
    assert!(total as u64 > 20 * INITIAL_CREDIT, "{total}");
    let beyond = pair.edge.stream_send(slow, &[1]);
    assert_eq!(beyond, Err(StreamError::NoRoom(slow, 0)));
}

#[test]
fn a_stream_that_overruns_its_credit_fails_alone() {
    let mut pair = pair();
    let bad = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
    let good = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
    pair.run(NOW).expect("opens");
    let chunk = encode(&ToCloud::StreamData { stream: bad, data: vec![0; 50_000] });
    for _ in 0..5 {
        pair.bridge.handle(&mut pair.state, &chunk, NOW).expect("the connection lives");
    }
    let events: Vec<_> = std::iter::from_fn(|| pair.bridge.poll_event()).collect();
    assert!(
        matches!(&events[1], BridgeEvent::Stream(StreamEvent::Closed { stream, error: Some(_) }) if *stream == bad)
    );
    assert_eq!(events.len(), 2, "{events:?}");
    pair.edge.stream_send(good, b"fine").expect("credit");
    pair.run(NOW).expect("goes on");
    assert_eq!(received(&mut pair, good), b"fine");
    let closed = |e: &EdgeEvent| matches!(e, EdgeEvent::Stream(StreamEvent::Closed { stream, .. }) if *stream == bad);
    assert!(pair.edge_events.iter().any(closed));
    assert_eq!(pair.edge.open_streams(), [good]);
}

#[test]
fn ends_come_after_the_data_unless_there_is_an_error() {
    let mut pair = pair();
    let stream = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
    pair.run(NOW).expect("opens");
    pair.edge.stream_send(stream, b"last words").expect("credit");
    pair.edge.stream_end(stream, None);
    assert_eq!(pair.edge.stream_send(stream, b"x"), Err(StreamError::Closed(stream)));
    pair.run(NOW).expect("ends");
    let wanted = [
        BridgeEvent::Stream(StreamEvent::Data { stream, data: b"last words".to_vec() }),
        BridgeEvent::Stream(StreamEvent::Closed { stream, error: None }),
    ];
    assert_eq!(pair.bridge_events, wanted);
    assert!(pair.edge.open_streams().is_empty() && pair.bridge.open_streams().is_empty());
}

#[test]
fn numbers_are_not_reused_and_hostile_ones_do_no_harm() {
    let mut edge = EdgeSession::new(EdgeFacts::new("n", "b"), NOW);
    let open = |stream| encode(&ToEdge::StreamOpen { stream, request: StreamRequest::Unknown, credit: u64::MAX });
    edge.handle(&encode(&welcome(false)), NOW).expect("welcome");
    edge.handle(&open(EDGE_STREAMS - 1), NOW).expect("opens");
    edge.handle(&open(EDGE_STREAMS - 1), NOW).expect("is ignored");
    edge.handle(&open(5), NOW).expect("is ignored");
    assert_eq!(edge.open_streams(), [EDGE_STREAMS - 1]);
    let credit = encode(&ToEdge::StreamCredit { stream: EDGE_STREAMS - 1, bytes: u64::MAX });
    edge.handle(&credit, NOW).expect("saturates");
    let room = edge.stream_room(EDGE_STREAMS - 1);
    assert!(room <= 256 << 10, "{room}");
    edge.stream_send(EDGE_STREAMS - 1, &[0; 100]).expect("room");
    assert!(edge.poll_transmit(NOW).is_some());
    for stream in [0, 77] {
        for message in [
            ToEdge::StreamData { stream, data: vec![1] },
            ToEdge::StreamCredit { stream, bytes: 1 },
            ToEdge::StreamEnd { stream, error: None },
        ] {
            edge.handle(&encode(&message), NOW).expect("a stream that is over");
        }
    }
    let mut edge = EdgeSession::new(EdgeFacts::new("n", "b"), NOW);
    edge.handle(&encode(&welcome(false)), NOW).expect("welcome");
    let flood = (1..100_000).find_map(|n| edge.handle(&open(n), NOW).err());
    assert!(flood.is_some(), "a flood of streams ends the connection");
    assert_eq!(edge.open_streams().len(), MAX_STREAMS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the sizes and the pace, all bytes arrive, in order, within the credit.
    #[test]
    fn bytes_arrive_whole(sizes in prop::collection::vec(1usize..40_000, 1..30), pace in 1usize..5) {
        let mut pair = pair();
        let stream = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
        pair.run(NOW).expect("opens");
        let all: Vec<u8> = (0..sizes.iter().sum()).map(|n: usize| n.to_le_bytes()[0]).collect();
        let (mut sent, mut got) = (0, Vec::new());
        for (turn, size) in sizes.iter().cycle().enumerate() {
            let take = (*size).min(pair.edge.stream_room(stream)).min(all.len() - sent);
            pair.edge.stream_send(stream, &all[sent..sent + take]).expect("room");
            sent += take;
            if turn % pace == 0 {
                pair.run(NOW).expect("runs");
                got.extend(received(&mut pair, stream));
            }
            if got.len() == all.len() {
                break;
            }
            prop_assert!(turn < 10_000, "stalled at {} of {}", got.len(), all.len());
        }
        prop_assert_eq!(got, all);
    }
}
