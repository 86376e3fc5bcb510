//! Stream bytes in separate frames: only between two peers that support them, and only with valid content.

mod common;

use common::{NOW, listed};
use edge_protocol::SessionError;
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::compress::UnpackError;
use edge_protocol::edge::{EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::message::StreamRequest;
use edge_protocol::state::NodeState;
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::RAW_STREAMS;
use edge_protocol::wire::{Content, Frame, Wire};

struct Pair {
    state: NodeState,
    bridge: BridgeSession,
    edge: EdgeSession,
    /// Frames of each kind that went either way: text, packed text, a stream's bytes.
    kinds: [usize; 3],
    to_edge: Vec<u8>,
    to_cloud: Vec<u8>,
}

/// How much of it one side knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Text,
    Packed,
    Now,
}

impl Pair {
    fn new(bridge: Age, edge: Age) -> Self {
        let mut state = listed("s");
        let mut settings = BridgeSettings::new("n", "c", 1);
        settings.compress = bridge > Age::Text;
        let mut facts = EdgeFacts::new("n", "b");
        facts.compress = edge > Age::Text;
        let bridge_session = BridgeSession::new(settings, &mut state, NOW);
        let edge_session = EdgeSession::new(facts, NOW);
        let mut pair = Self {
            state,
            bridge: bridge_session,
            edge: edge_session,
            kinds: [0; 3],
            to_edge: Vec::new(),
            to_cloud: Vec::new(),
        };
        pair.run(bridge.min(edge)).expect("settles");
        pair
    }

    /// `age`: of the older of the two, which names nothing that it does not know.
    fn run(&mut self, age: Age) -> Result<(), SessionError> {
        let older = |text: String| if age < Age::Now { text.replace(RAW_STREAMS, "another") } else { text };
        loop {
            let mut quiet = true;
            while let Some(frame) = self.edge.poll_frame(NOW) {
                quiet = false;
                match self.count(frame) {
                    Wire::Text(text) => self.bridge.handle(&mut self.state, &older(text), NOW)?,
                    Wire::Binary(bytes) => self.bridge.handle_binary(&mut self.state, &bytes, NOW)?,
                    Wire::Shared(bytes) => self.bridge.handle_binary(&mut self.state, &bytes, NOW)?,
                }
            }
            while let Some(frame) = self.bridge.poll_frame(&self.state, NOW) {
                quiet = false;
                match self.count(frame) {
                    Wire::Text(text) => self.edge.handle(&older(text), NOW)?,
                    Wire::Binary(bytes) => self.edge.handle_binary(&bytes, NOW)?,
                    Wire::Shared(bytes) => self.edge.handle_binary(&bytes, NOW)?,
                }
            }
            while let Some(event) = self.edge.poll_event() {
                match event {
                    EdgeEvent::Change(change) => self.edge.committed(change.seq()),
                    EdgeEvent::Stream(StreamEvent::Data { data, .. }) => self.to_edge.extend(data),
                    _ => {}
                }
            }
            while let Some(event) = self.bridge.poll_event() {
                if let BridgeEvent::Stream(StreamEvent::Data { data, .. }) = event {
                    self.to_cloud.extend(data);
                }
            }
            if quiet {
                return Ok(());
            }
        }
    }

    fn count(&mut self, frame: Frame) -> Wire {
        let wire = frame.wire();
        let kind = match &wire {
            Wire::Text(_) => 0,
            Wire::Binary(bytes) => 1 + usize::from(matches!(bytes[0], 6 | 7)),
            Wire::Shared(_) => 1,
        };
        self.kinds[kind] += 1;
        wire
    }
}

fn binary(stream: u64, data: &[u8]) -> Vec<u8> {
    match Frame::new(Content::Data { stream, data: data.to_vec() }, true).wire() {
        Wire::Binary(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn g21_bytes_of_streams_come_in_the_form_that_both_know() {
    for bridge in [Age::Text, Age::Packed, Age::Now] {
        for edge in [Age::Text, Age::Packed, Age::Now] {
            let (mut pair, older) = (Pair::new(bridge, edge), bridge.min(edge));
            let stream = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
            pair.run(older).expect("opens");
            pair.kinds = [0; 3];
            let data = b"a line of some log\n".repeat(1000);
            pair.edge.stream_send(stream, &data).expect("credit");
            pair.bridge.stream_send(stream, &data).expect("credit");
            pair.run(older).expect("goes through");
            assert!(pair.to_edge == data && pair.to_cloud == data, "{bridge:?} {edge:?}");
            let [text, packed, raw] = pair.kinds;
            let form = if raw > 0 {
                Age::Now
            } else if packed > 0 {
                Age::Packed
            } else {
                Age::Text
            };
            assert_eq!(form, older, "bridge {bridge:?}, edge {edge:?}: {text} {packed} {raw}");
        }
    }
}

#[test]
fn raw_frame_without_the_feature_ends_the_connection() {
    for age in [Age::Text, Age::Packed] {
        let mut pair = Pair::new(age, age);
        let refused = Err(SessionError::Packed(UnpackError::NotAgreed));
        assert_eq!(pair.edge.handle_binary(&binary(1, b"x"), NOW), refused, "{age:?}");
        assert_eq!(pair.bridge.handle_binary(&mut pair.state, &binary(1, b"x"), NOW), refused, "{age:?}");
    }
    let mut early = EdgeSession::new(EdgeFacts { compress: true, ..EdgeFacts::new("n", "b") }, NOW);
    assert_eq!(early.handle_binary(&binary(1, b"x"), NOW), Err(SessionError::Packed(UnpackError::NotAgreed)));
}

#[test]
fn credit_holds_for_them_as_for_texts() {
    let mut pair = Pair::new(Age::Now, Age::Now);
    let stream = pair.bridge.open_stream(StreamRequest::Unknown).expect("room");
    pair.run(Age::Now).expect("opens");
    for _ in 0..5 {
        pair.bridge.handle_binary(&mut pair.state, &binary(stream, &[0; 50_000]), NOW).expect("the connection lives");
    }
    let events: Vec<_> = std::iter::from_fn(|| pair.bridge.poll_event()).collect();
    assert!(matches!(
        &events[..],
        [
            BridgeEvent::Stream(StreamEvent::Data { .. }),
            BridgeEvent::Stream(StreamEvent::Closed { error: Some(_), .. })
        ]
    ));
    // Data of a stream that has ended, or never existed.
    pair.edge.handle_binary(&binary(77, b"x"), NOW).expect("nothing happens");
}
