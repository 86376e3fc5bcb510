//! Requests of pods between `edge-api` and the link: copies the bytes of streams, under the credit of both sides. It parses
//! only the frame that opens a request. Does not do I/O.

use edge_protocol::channel::{OPENED, STATUS, STDOUT, records};
use edge_protocol::message::{ApiRequest, StreamId};
use edge_protocol::stream::StreamEvent;
use sampan_api_control::frame::{self, Frame};
use sampan_api_control::{INITIAL_CREDIT, Kind, MAX_DATA};
use serde_json::Value;

use crate::counters;
use crate::link::LinkHandle;
use crate::sys::from_json::from_json;
use crate::sys::vec_map::VecMap;

/// The helper has sent what is not a request: both are of one build, so that is a mistake of one of them.
const NO_REQUEST: &str = "the daemon does not understand the request: edge-api is of another version";

/// Head of an answer to a request that was not sent (`ApiAnswer`).
const UNAVAILABLE: &str = r#"{"status":503,"headers":[["content-type","application/json"],["retry-after","30"]]}"#;
/// Its body, in which the message is missing: the API's Status.
const STATUS_HEAD: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#;
const STATUS_TAIL: &str = r#","reason":"ServiceUnavailable","code":503}"#;

/// Streams that are open, and frames that wait for the helper.
pub(super) struct Relay {
    link: LinkHandle,
    /// By the link's numbers.
    streams: VecMap<StreamId, Stream>,
    pub(super) out: Vec<u8>,
}

struct Stream {
    /// The helper's number of it.
    number: u64,
    /// Bytes that the helper may still send.
    credit: usize,
}

impl Relay {
    pub(super) fn new(link: LinkHandle) -> Self {
        Self { link, streams: VecMap::new(), out: Vec::new() }
    }

    /// Takes a frame of the helper. Frames of streams that have ended are normal: both sides may end one at the same time.
    pub(super) fn frame(&mut self, Frame { stream: number, kind, payload }: Frame) {
        let known = self.streams.iter().find(|(_, stream)| stream.number == number);
        let Some(id) = known.map(|(id, _)| *id) else {
            if kind == Kind::Open {
                self.open(number, &payload);
            }
            return;
        };
        match kind {
            Kind::Open => {}
            Kind::Data => self.data(id, &payload),
            Kind::Credit => {
                let bytes = frame::credit(&payload).and_then(|bytes| usize::try_from(bytes).ok());
                self.link.stream_consumed(id, bytes.unwrap_or_default());
            }
            Kind::End => {
                let why = String::from_utf8_lossy(&payload).into_owned();
                self.link.stream_end(id, Some(why).filter(|why| !why.is_empty()));
                self.streams.remove(&id);
            }
        }
    }

    fn open(&mut self, number: u64, payload: &[u8]) {
        let asked = request(payload).ok_or_else(|| NO_REQUEST.to_owned());
        match asked.and_then(|request| self.link.open_api(request)) {
            Ok(id) => {
                counters::API_REQUESTS.one();
                let credit = usize::try_from(INITIAL_CREDIT).unwrap_or_default();
                self.streams.insert(id, Stream { number, credit });
            }
            Err(why) => {
                counters::REFUSED_API_REQUESTS.one();
                self.refuse(number, &why);
            }
        }
    }

    /// Answers a request that was not sent, as the API does when it cannot serve: its pod learns why, and may repeat it.
    fn refuse(&mut self, number: u64, why: &str) {
        let body = [STATUS_HEAD, &Value::from(why).to_string(), STATUS_TAIL].concat();
        let mut answer = records(OPENED, UNAVAILABLE.as_bytes());
        answer.extend(records(STDOUT, body.as_bytes()));
        answer.extend(records(STATUS, b""));
        answer.chunks(MAX_DATA).for_each(|part| frame::write(number, Kind::Data, part, &mut self.out));
        self.end(number, "");
    }

    fn data(&mut self, id: StreamId, payload: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(left) = stream.credit.checked_sub(payload.len()) {
            stream.credit = left;
            // An error: the stream is over, and its end is on the way.
            let _ = self.link.stream_send(id, payload);
            return;
        }
        let (number, why) = (stream.number, "edge-api has sent more than it may");
        self.link.stream_end(id, Some(why.to_owned()));
        self.streams.remove(&id);
        self.end(number, why);
    }

    /// Takes an event of one of the link's streams that this node has opened.
    pub(super) fn event(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Data { stream, data } => {
                if let Some(of) = self.streams.get(&stream) {
                    data.chunks(MAX_DATA).for_each(|part| frame::write(of.number, Kind::Data, part, &mut self.out));
                }
            }
            StreamEvent::Room { stream } => {
                if let Some(of) = self.streams.get_mut(&stream) {
                    let room = self.link.stream_room(stream);
                    let more = u32::try_from(room.saturating_sub(of.credit)).unwrap_or_default();
                    if more > 0 {
                        of.credit = room;
                        frame::write_credit(of.number, more, &mut self.out);
                    }
                }
            }
            StreamEvent::Closed { stream, error } => {
                if let Some(of) = self.streams.remove(&stream) {
                    self.end(of.number, &error.unwrap_or_default());
                }
            }
            // The bridge opens none of these.
            StreamEvent::Opened { .. } => {}
        }
    }

    /// The connection to the helper has ended, and its requests with it.
    pub(super) fn cut(&mut self) {
        self.out = Vec::new();
        while let Some((id, _)) = self.streams.pop_first() {
            self.link.stream_end(id, Some("edge-api has ended on the node".to_owned()));
        }
    }

    /// Tells the helper the end of a stream; empty: it is complete.
    fn end(&mut self, number: u64, why: &str) {
        let end = why.floor_char_boundary(MAX_DATA);
        frame::write(number, Kind::End, why.get(..end).unwrap_or_default().as_bytes(), &mut self.out);
    }
}

/// Parses a request by hand: derived code is larger.
fn request(payload: &[u8]) -> Option<ApiRequest> {
    let mut typed: Value = from_json(payload).ok()?;
    let text = |value: Option<&mut Value>| match value.map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let mut headers = Vec::new();
    for header in typed.get_mut("headers")?.as_array_mut()? {
        let name = text(header.get_mut(0))?;
        headers.push((name, text(header.get_mut(1))?));
    }
    let has_body = typed.get("hasBody")?.as_bool()?;
    Some(ApiRequest { method: text(typed.get_mut("method"))?, path: text(typed.get_mut("path"))?, headers, has_body })
}

#[cfg(test)]
mod tests {
    use edge_protocol::channel::Records;
    use edge_protocol::message::{ApiAnswer, ToCloud, ToEdge};
    use edge_protocol::version::API;
    use sampan_api_control::frame::Frames;
    use tempfile::TempDir;

    use super::*;
    use crate::paths::Paths;

    fn asked() -> ApiRequest {
        let headers = vec![("authorization".to_owned(), "Bearer t".to_owned())];
        ApiRequest { method: "POST".to_owned(), path: "/api/v1/pods?watch=1".to_owned(), headers, has_body: true }
    }

    fn frame(stream: u64, kind: Kind, payload: &[u8]) -> Frame {
        Frame { stream, kind, payload: payload.to_vec() }
    }

    /// A relay with request 1 under way, and the link's number of it.
    fn opened() -> (TempDir, LinkHandle, Relay, StreamId) {
        let folder = tempfile::tempdir().unwrap();
        let link = LinkHandle::for_tests(&Paths::new(folder.path()), &[API]);
        let mut relay = Relay::new(link.clone());
        link.says();
        relay.frame(frame(1, Kind::Open, &serde_json::to_vec(&asked()).unwrap()));
        let said = link.says();
        let [ToCloud::ApiOpen { stream, request, .. }] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!(*request, asked());
        (folder, link, relay, *stream)
    }

    /// What the helper has been sent.
    fn told(relay: &mut Relay) -> Vec<(u64, Kind, Vec<u8>)> {
        let mut frames = Frames::default();
        frames.push(&std::mem::take(&mut relay.out));
        std::iter::from_fn(|| frames.next_frame().unwrap()).map(|one| (one.stream, one.kind, one.payload)).collect()
    }

    /// The message of an answer by which the relay refuses a request.
    fn refused(relay: &mut Relay, number: u64) -> String {
        let said = told(relay);
        let [(of, Kind::Data, data), (_, Kind::End, end)] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!((*of, end.len()), (number, 0));
        let mut all = Records::default();
        all.push(data);
        let mut next = || all.next_record().unwrap().unwrap();
        let (head, body, last) = (next(), next(), next());
        assert_eq!([head.channel, body.channel, last.channel], [OPENED, STDOUT, STATUS]);
        let head: ApiAnswer = serde_json::from_slice(&head.data).unwrap();
        assert_eq!((head.status, head.headers.len()), (503, 2));
        let status: Value = serde_json::from_slice(&body.data).unwrap();
        assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(503)));
        status["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn bytes_pass_in_both_directions() {
        let (_folder, link, mut relay, stream) = opened();
        relay.frame(frame(1, Kind::Data, b"up"));
        assert_eq!(link.says(), [ToCloud::StreamData { stream, data: b"up".to_vec() }]);
        let long = vec![7; MAX_DATA + 1];
        relay.event(StreamEvent::Data { stream, data: long });
        let lengths: Vec<usize> = told(&mut relay).iter().map(|(_, _, payload)| payload.len()).collect();
        assert_eq!(lengths, [MAX_DATA, 1]);
        relay.event(StreamEvent::Closed { stream, error: None });
        assert_eq!(told(&mut relay), [(1, Kind::End, Vec::new())]);
        relay.event(StreamEvent::Data { stream, data: vec![1] });
        relay.frame(frame(1, Kind::Data, b"late"));
        assert!(told(&mut relay).is_empty() && link.says().is_empty());
    }

    #[test]
    fn helper_sends_no_more_than_the_bridge_takes() {
        let (_folder, link, mut relay, stream) = opened();
        let credit = usize::try_from(INITIAL_CREDIT).unwrap();
        relay.frame(frame(1, Kind::Data, &vec![0; credit]));
        link.says();
        link.hears(&ToEdge::StreamCredit { stream, bytes: 100 });
        relay.event(StreamEvent::Room { stream });
        relay.event(StreamEvent::Room { stream });
        assert_eq!(told(&mut relay), [(1, Kind::Credit, 100_u32.to_be_bytes().to_vec())]);
        relay.frame(frame(1, Kind::Data, &[0; 101]));
        assert!(matches!(told(&mut relay).as_slice(), [(1, Kind::End, why)] if !why.is_empty()));
        assert!(matches!(link.says().as_slice(), [ToCloud::StreamEnd { error: Some(_), .. }]));
    }

    #[test]
    fn credit_of_the_helper_goes_to_the_bridge() {
        let (_folder, link, mut relay, stream) = opened();
        link.hears(&ToEdge::StreamData { stream, data: vec![0; 40_000] });
        relay.event(StreamEvent::Data { stream, data: vec![0; 40_000] });
        assert!(link.says().is_empty(), "the helper has not dealt with it");
        relay.frame(frame(1, Kind::Credit, &40_000_u32.to_be_bytes()));
        assert_eq!(link.says(), [ToCloud::StreamCredit { stream, bytes: 40_000 }]);
        relay.frame(frame(1, Kind::Credit, b"x"));
    }

    #[test]
    fn refused_request_is_told_why() {
        let (_folder, link, mut relay, _) = opened();
        let open = serde_json::to_vec(&ApiRequest { path: "/metrics".to_owned(), ..asked() }).unwrap();
        relay.frame(frame(2, Kind::Open, &open));
        assert!(refused(&mut relay, 2).contains("path is none of the API's"));
        relay.frame(frame(3, Kind::Open, b"{}"));
        assert_eq!(refused(&mut relay, 3), NO_REQUEST);
        assert!(link.says().is_empty());

        let folder = tempfile::tempdir().unwrap();
        let old = LinkHandle::for_tests(&Paths::new(folder.path()), &[]);
        let mut relay = Relay::new(old);
        relay.frame(frame(1, Kind::Open, &serde_json::to_vec(&asked()).unwrap()));
        assert!(refused(&mut relay, 1).contains("it is older than this node"));
    }

    /// L5: what the helper has begun is not continued by its successor.
    #[test]
    fn requests_end_with_the_helper() {
        let (_folder, link, mut relay, stream) = opened();
        relay.event(StreamEvent::Data { stream, data: vec![1] });
        relay.cut();
        assert!(relay.out.is_empty());
        assert!(
            matches!(link.says().as_slice(), [ToCloud::StreamEnd { stream: ended, error: Some(_) }] if *ended == stream)
        );
    }
}
