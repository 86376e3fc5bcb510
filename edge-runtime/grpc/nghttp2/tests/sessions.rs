//! A server and a client that speak with each other through memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::rc::Rc;

use sampan_nghttp2::{Error, Fatal, Frame, Handler, Limits, Part, Refused, Session, Setting, Then, code};

const LIMITS: Limits =
    Limits { acks: 10, settings: 10, continuations: 2, resets: (10, 1), glitches: (10, 1), table: 4_096 };

#[derive(Debug, Default)]
struct Heard {
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    ends: usize,
    closed: Option<u32>,
}

#[derive(Debug, Default)]
struct Ears {
    heard: BTreeMap<i32, Heard>,
    bodies: BTreeMap<i32, Vec<u8>>,
    trailers: bool,
    frames: usize,
    frames_at_most: Option<usize>,
    alive: Rc<()>,
}

impl Handler for Ears {
    fn frame(&mut self, _: Frame) -> Result<(), Fatal> {
        self.frames += 1;
        if self.frames_at_most.is_some_and(|most| self.frames > most) { Err(Fatal) } else { Ok(()) }
    }

    fn field(&mut self, stream: i32, name: &[u8], value: &[u8]) -> Result<(), Refused> {
        if name == b"refused" {
            return Err(Refused);
        }
        let text = |bytes| String::from_utf8(Vec::from(bytes)).unwrap();
        self.heard.entry(stream).or_default().fields.push((text(name), text(value)));
        Ok(())
    }

    fn fields_end(&mut self, stream: i32, end: bool) {
        self.heard.entry(stream).or_default().ends += usize::from(end);
    }

    fn data(&mut self, stream: i32, bytes: &[u8]) {
        self.heard.entry(stream).or_default().body.extend(bytes);
    }

    fn data_end(&mut self, stream: i32) {
        self.heard.entry(stream).or_default().ends += 1;
    }

    fn part(&mut self, stream: i32, room: usize) -> Option<Part<'_>> {
        let body = self.bodies.get_mut(&stream)?;
        let rest = body.split_off(room.min(body.len()));
        let last = rest.is_empty();
        let part = std::mem::replace(body, rest);
        let bytes: &[u8] = part.leak();
        let then = match (last, self.trailers) {
            (false, _) => Then::More,
            (true, false) => Then::End,
            (true, true) => Then::Trailers(vec![("x-end", b"yes".into())]),
        };
        Some(Part { bytes, then })
    }

    fn closed(&mut self, stream: i32, code: u32) {
        self.heard.entry(stream).or_default().closed = Some(code);
    }
}

struct Pair {
    server: Session<Ears>,
    client: Session<Ears>,
}

impl Pair {
    fn new() -> Self {
        let mut server = Session::server(Ears { trailers: true, ..Ears::default() }, &LIMITS).unwrap();
        let mut client = Session::client(Ears::default(), &LIMITS).unwrap();
        server.settings(&[(Setting::MaxConcurrentStreams, 5)]).unwrap();
        client.settings(&[(Setting::EnablePush, 0)]).unwrap();
        Self { server, client }
    }

    fn talk(&mut self) -> Result<(), Error> {
        loop {
            let asked = carry(&mut self.client, &mut self.server)?;
            if carry(&mut self.server, &mut self.client)? + asked == 0 {
                return Ok(());
            }
        }
    }
}

/// Carries the bytes in pieces of three.
fn carry(from: &mut Session<Ears>, to: &mut Session<Ears>) -> Result<usize, Error> {
    let mut carried = 0;
    loop {
        let bytes = from.send()?.to_vec();
        for piece in bytes.chunks(3) {
            to.receive(piece)?;
        }
        carried += bytes.len();
        if bytes.is_empty() {
            return Ok(carried);
        }
    }
}

fn request(pair: &mut Pair, more: &[(&'static str, &'static [u8])], body: &[u8]) -> i32 {
    let mut fields = vec![
        (":method", b"POST".into()),
        (":scheme", b"http".into()),
        (":path", b"/".into()),
        (":authority", b"%2Fetc%2Fkubeedge%2Fdmi.sock".into()),
    ];
    fields.extend(more.iter().map(|(name, value)| (*name, (*value).into())));
    let stream = pair.client.request(&fields).unwrap();
    pair.client.handler().bodies.insert(stream, body.to_vec());
    stream
}

#[test]
fn a_request_and_its_answer_go_through_window_by_window() {
    let mut pair = Pair::new();
    let body: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let stream = request(&mut pair, &[("x", b"y")], &body);
    let mut consumed = 0;
    while consumed < body.len() {
        pair.talk().unwrap();
        let heard = pair.server.handler().heard[&stream].body.len();
        assert!((1..=65_535).contains(&(heard - consumed)), "as much as the window allows");
        pair.server.consumed(stream, heard - consumed).unwrap();
        pair.server.consumed_by_all(heard - consumed).unwrap();
        consumed = heard;
    }
    pair.talk().unwrap();
    let heard = pair.server.handler().heard.remove(&stream).unwrap();
    assert_eq!((heard.body, heard.ends, heard.closed), (body, 1, None));
    assert!(heard.fields.contains(&(":authority".into(), "%2Fetc%2Fkubeedge%2Fdmi.sock".into())), "{:?}", heard.fields);
    pair.server.handler().bodies.insert(stream, b"answer".to_vec());
    pair.server.respond(stream, &[(":status", b"200".into())], true).unwrap();
    pair.talk().unwrap();
    let heard = pair.client.handler().heard.remove(&stream).unwrap();
    assert_eq!((&heard.body[..], heard.ends, heard.closed), (&b"answer"[..], 1, Some(code::NO_ERROR)));
    let fields: Vec<&str> = heard.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(fields, [":status", "x-end"]);
}

#[test]
fn a_field_or_a_body_that_is_refused_resets_its_stream_alone() {
    let mut pair = Pair::new();
    let refused = request(&mut pair, &[("refused", b"")], b"a");
    let missing = request(&mut pair, &[], b"a");
    pair.client.handler().bodies.remove(&missing);
    let proper = request(&mut pair, &[], b"a");
    pair.talk().unwrap();
    let closed = |pair: &mut Pair, stream| pair.client.handler().heard.get(&stream).and_then(|heard| heard.closed);
    assert!(closed(&mut pair, refused).is_some_and(|code| code != code::NO_ERROR));
    assert!(closed(&mut pair, missing).is_some_and(|code| code != code::NO_ERROR));
    assert_eq!(closed(&mut pair, proper), None);
    assert_eq!(pair.server.handler().heard[&proper].ends, 1);
    pair.server.reset(proper, code::CANCEL).unwrap();
    pair.talk().unwrap();
    assert_eq!(closed(&mut pair, proper), Some(code::CANCEL));
}

#[test]
fn flood_ends_the_connection_and_is_reported() {
    let mut pair = Pair::new();
    pair.talk().unwrap();
    pair.server.handler().frames_at_most = Some(3);
    let error = (0..5).find_map(|_| {
        request(&mut pair, &[], b"a");
        pair.talk().err()
    });
    assert_eq!(error.unwrap().to_string(), "The user callback function failed");
    let mut pair = Pair::new();
    pair.talk().unwrap();
    assert!(pair.client.takes_requests() && !pair.server.is_over());
    pair.server.terminate(code::NO_ERROR).unwrap();
    pair.talk().unwrap();
    assert!(!pair.client.takes_requests() && pair.server.is_over());
}

#[test]
fn a_handler_ends_with_its_session() {
    let alive = Rc::new(());
    let ears = || Ears { alive: Rc::clone(&alive), ..Ears::default() };
    let mut server = Session::server(ears(), &LIMITS).unwrap();
    let client = Session::client(ears(), &LIMITS).unwrap();
    assert_eq!(Rc::strong_count(&server.handler().alive), 3);
    drop((server, client));
    assert_eq!(Rc::strong_count(&alive), 1);
}
