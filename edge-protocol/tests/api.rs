//! Requests of pods to the API: who sends them, how many, and what both ends refuse.

mod common;

use common::{NOW, Pair, listed, sent};
use edge_protocol::bridge::BridgeEvent;
use edge_protocol::channel::{self, OPENED, STDIN, STDOUT};
use edge_protocol::edge::{EdgeEvent, EdgeFacts};
use edge_protocol::frame::encode;
use edge_protocol::message::{ApiRequest, ApiRequestError, Report, StreamId, StreamRequest, ToCloud, ToEdge};
use edge_protocol::stream::{EDGE_STREAMS, INITIAL_CREDIT, MAX_API_STREAMS, MAX_STREAMS, StreamError, StreamEvent};
use edge_protocol::version::Wants;

fn get(path: &str) -> ApiRequest {
    ApiRequest {
        method: "GET".into(),
        path: path.into(),
        headers: vec![("authorization".into(), "Bearer x".into())],
        has_body: false,
    }
}

fn welcomed(api: bool) -> Pair {
    let facts = EdgeFacts { wants: Wants { api, ..Wants::default() }, ..EdgeFacts::new("n", "b-1") };
    let mut pair = Pair::new(listed("s"), facts);
    pair.run(NOW).expect("settles");
    pair.edge_events.clear();
    pair.bridge_events.clear();
    pair
}

fn open(stream: StreamId, request: ApiRequest) -> String {
    encode(&ToCloud::ApiOpen { stream, request, credit: INITIAL_CREDIT })
}

#[test]
fn request_and_answer_cross_the_link() {
    let mut pair = welcomed(true);
    assert!(pair.edge.passes_api());
    let request = ApiRequest { has_body: true, ..get("/api/v1/pods?watch=1") };
    let stream = pair.edge.open_api(request.clone()).expect("room");
    assert!(stream >= EDGE_STREAMS);
    let body = channel::records(STDIN, b"{}");
    pair.edge.stream_send(stream, &body).expect("credit");
    pair.run(NOW).expect("runs");
    let data = |data: &[u8]| StreamEvent::Data { stream, data: data.to_vec() };
    assert_eq!(pair.bridge_events, [BridgeEvent::ApiOpened { stream, request }, BridgeEvent::Stream(data(&body))]);

    let mut answer = channel::records(OPENED, br#"{"status":200,"headers":[]}"#);
    answer.extend(channel::records(STDOUT, b"x"));
    pair.bridge.stream_send(stream, &answer).expect("credit");
    pair.bridge.stream_end(stream, None);
    pair.run(NOW).expect("runs");
    let closed = EdgeEvent::Stream(StreamEvent::Closed { stream, error: None });
    assert_eq!(pair.edge_events, [EdgeEvent::Stream(data(&answer)), closed]);
    assert!(pair.bridge.open_streams().is_empty() && pair.edge.open_streams().is_empty());
}

#[test]
fn requests_go_behind_reports_and_have_numbers_of_their_own() {
    let mut pair = welcomed(true);
    let own = pair.edge.open_api(get("/api")).expect("room");
    pair.edge.up(1, Report::Node { node: serde_json::json!({}) }).expect("room");
    let out = sent::<ToCloud>(|| pair.edge.poll_transmit(NOW));
    assert!(matches!(out[..], [ToCloud::Up { .. }, ToCloud::ApiOpen { .. }]), "{out:?}");
    let bridges = pair.bridge.open_stream(StreamRequest::Stats {}).expect("room");
    assert!(own != bridges);
    pair.run(NOW).expect("runs");
    // A bridge that takes a number of the node's reaches no stream of it.
    let open = ToEdge::StreamOpen { stream: own + 1, request: StreamRequest::Stats {}, credit: 1 };
    pair.edge.handle(&encode(&open), NOW).expect("is ignored");
    assert_eq!(pair.edge.open_streams(), [bridges, own]);
}

#[test]
fn requests_have_a_limit_beside_that_of_streams() {
    let mut pair = welcomed(true);
    let opened = (0..100).filter(|_| pair.edge.open_api(get("/api")).is_ok()).count();
    assert_eq!(opened, MAX_API_STREAMS);
    assert_eq!(pair.edge.open_api(get("/api")), Err(StreamError::TooManyRequests));
    let streams = (0..100).filter(|_| pair.bridge.open_stream(StreamRequest::Stats {}).is_ok()).count();
    assert_eq!(streams, MAX_STREAMS);
    pair.run(NOW).expect("runs");
    assert_eq!(pair.bridge.open_streams().len(), MAX_STREAMS + MAX_API_STREAMS);
    assert_eq!(pair.edge.open_streams().len(), MAX_STREAMS + MAX_API_STREAMS);

    // One more of a node that does not count ends alone.
    let beyond = EDGE_STREAMS + 1_000;
    pair.bridge_events.clear();
    pair.bridge.handle(&mut pair.state, &open(beyond, get("/api")), NOW).expect("ends alone");
    assert_eq!(pair.bridge.poll_event(), None);
    let out = sent::<ToEdge>(|| pair.bridge.poll_transmit(&pair.state, NOW));
    assert!(matches!(&out[..], [ToEdge::StreamEnd { stream, error: Some(_) }] if *stream == beyond), "{out:?}");
}

#[test]
fn line_that_stands_still_gathers_no_ended_requests() {
    let mut pair = welcomed(true);
    let opened = (0..10_000).filter(|_| {
        let Ok(stream) = pair.edge.open_api(get("/api")) else { return false };
        pair.edge.stream_end(stream, Some("the pod has gone".into()));
        true
    });
    assert!(opened.count() < 256);
    pair.run(NOW).expect("runs");
    assert!(pair.edge.open_api(get("/api")).is_ok());
}

#[test]
fn both_ends_refuse_what_is_not_passed_on() {
    let mut pair = welcomed(true);
    assert_eq!(pair.edge.open_api(get("/metrics")), Err(StreamError::BadRequest(ApiRequestError::Path)));
    let mut impersonates = get("/api");
    impersonates.headers.push(("impersonate-user".into(), "admin".into()));
    for (stream, request) in (EDGE_STREAMS + 1..).zip([get("/metrics"), impersonates]) {
        pair.bridge.handle(&mut pair.state, &open(stream, request), NOW).expect("ends alone");
        assert_eq!(pair.bridge.poll_event(), None);
    }
    let out = sent::<ToEdge>(|| pair.bridge.poll_transmit(&pair.state, NOW));
    assert_eq!(out.len(), 2);
    assert!(out.iter().all(|message| matches!(message, ToEdge::StreamEnd { error: Some(_), .. })), "{out:?}");
    assert!(pair.bridge.open_streams().is_empty());
}

#[test]
fn numbers_are_used_once_and_are_not_those_of_the_bridge() {
    let mut pair = welcomed(true);
    for stream in [0, 1, EDGE_STREAMS - 1, EDGE_STREAMS + 5, EDGE_STREAMS + 5, EDGE_STREAMS + 4] {
        pair.bridge.handle(&mut pair.state, &open(stream, get("/api")), NOW).expect("is ignored");
    }
    assert_eq!(pair.bridge.open_streams(), [EDGE_STREAMS + 5]);
}

#[test]
fn flood_of_refused_requests_ends_the_connection() {
    let mut pair = welcomed(true);
    let flood = (EDGE_STREAMS + 1..)
        .take(100_000)
        .find_map(|stream| pair.bridge.handle(&mut pair.state, &open(stream, get("/api")), NOW).err());
    assert!(flood.is_some());
    assert_eq!(pair.bridge.open_streams().len(), MAX_API_STREAMS);
}

/// A node without the feature, and a bridge that does not name it: no request crosses.
#[test]
fn g21_side_without_the_feature_has_no_requests() {
    let mut pair = welcomed(false);
    assert!(!pair.edge.passes_api());
    assert_eq!(pair.edge.open_api(get("/api")), Err(StreamError::NotAgreed));
    assert!(pair.bridge.handle(&mut pair.state, &open(EDGE_STREAMS + 1, get("/api")), NOW).is_err());
}

#[test]
fn requests_have_no_more_credit_than_their_reader_has_room() {
    let mut pair = welcomed(true);
    let stream = EDGE_STREAMS + 1;
    let open = encode(&ToCloud::ApiOpen { stream, request: get("/api"), credit: u64::MAX });
    pair.bridge.handle(&mut pair.state, &open, NOW).expect("is taken");
    let credit = encode(&ToCloud::StreamCredit { stream, bytes: u64::MAX });
    pair.bridge.handle(&mut pair.state, &credit, NOW).expect("is taken");
    let most = usize::try_from(INITIAL_CREDIT).expect("fits");
    assert_eq!((pair.bridge.stream_room(stream), pair.bridge.stream_waiting(stream)), (most, 0));
    pair.bridge.stream_send(stream, b"x").expect("credit");
    assert_eq!(pair.bridge.stream_waiting(stream), 1);
    assert_eq!(pair.bridge.stream_waiting(stream + 1), 0);
}
