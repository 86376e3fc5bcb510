//! Frames and events in any order in both session cores: no panic, and a session is not used after an error. Each line
//! is one event; its first byte is the kind.
#![no_main]

use std::time::Duration;

use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::edge::{EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::message::{Object, ObjectDigest, ObjectKey, Position, Report, StreamRequest};
use edge_protocol::state::NodeState;
use libfuzzer_sys::fuzz_target;

struct Both {
    now: Duration,
    number: u64,
    state: NodeState,
    bridge: Option<BridgeSession>,
    edge: Option<EdgeSession>,
    held: Vec<ObjectDigest>,
    position: Option<Position>,
    changes: Vec<u64>,
    reports: Vec<u64>,
}

fuzz_target!(|data: &[u8]| {
    let state = NodeState::new("s").keep_tombstones(4);
    let mut both = Both {
        now: Duration::ZERO,
        number: 0,
        state,
        bridge: None,
        edge: None,
        held: Vec::new(),
        position: None,
        changes: Vec::new(),
        reports: Vec::new(),
    };
    both.connect();
    for line in data.split(|byte| *byte == b'\n').take(512) {
        let Some((what, rest)) = line.split_first() else { continue };
        both.happen(*what, &String::from_utf8_lossy(rest));
    }
});

impl Both {
    fn connect(&mut self) {
        self.number += 1;
        let mut settings = BridgeSettings::new("n", "c", self.number);
        settings.window = 512;
        self.bridge = Some(BridgeSession::new(settings, &mut self.state, self.now));
        let mut facts = EdgeFacts::new("n", "b");
        facts.held = self.held.clone();
        facts.position = self.position.clone();
        self.edge = Some(EdgeSession::new(facts, self.now));
        self.changes.clear();
        self.reports.clear();
    }

    fn happen(&mut self, what: u8, text: &str) {
        let first = text.bytes().next().unwrap_or_default();
        let number = u64::from(first);
        let key = ObjectKey { kind: "Pod".into(), namespace: "ns".into(), name: (first & 7).to_string() };
        let uid = (first >> 3).to_string();
        match what {
            b'd' => self.to_edge(text),
            b'u' => self.to_bridge(text),
            b'p' => self.pump(),
            b'w' => self.connect(),
            b't' => self.pass(Duration::from_secs(number)),
            b'l' => self.state.listed(self.number),
            b's' => {
                let digest = ObjectDigest { key, uid, digest: text.chars().take(8).collect() };
                let _ = self.state.set(Object { digest, body: text.into() });
            }
            b'r' => drop(self.state.remove(&key, &uid)),
            b'h' => drop(self.state.withdraw(&key, &uid)),
            b'c' => {
                let count = usize::from(first).min(self.changes.len());
                for seq in self.changes.drain(..count) {
                    self.edge.iter_mut().for_each(|edge| edge.committed(seq));
                }
            }
            b'n' => self.edge.iter_mut().for_each(|edge| edge.nack(&key, &uid, text)),
            b'o' => {
                let report = Report::Event { event: text.into() };
                self.edge.iter_mut().for_each(|edge| drop(edge.up(number, report.clone())));
            }
            b'a' => {
                for id in self.reports.drain(..) {
                    self.bridge.iter_mut().for_each(|bridge| bridge.reported(id));
                }
            }
            b'x' => self.bridge.iter_mut().for_each(|bridge| drop(bridge.open_stream(StreamRequest::Stats {}))),
            b'y' => self.edge.iter_mut().for_each(|edge| {
                if edge.stream_room(number) >= text.len() {
                    let _ = edge.stream_send(number, text.as_bytes());
                }
            }),
            b'z' => self.bridge.iter_mut().for_each(|bridge| bridge.stream_end(number, Some(text.to_owned()))),
            _ => {}
        }
    }

    fn pass(&mut self, by: Duration) {
        self.now += by;
        let now = self.now;
        if self.edge.as_mut().is_some_and(|edge| edge.on_timeout(now).is_err()) {
            self.edge = None;
        }
        if self.bridge.as_mut().is_some_and(|bridge| bridge.on_timeout(now).is_err()) {
            self.bridge = None;
        }
    }

    fn to_edge(&mut self, frame: &str) {
        let Some(edge) = &mut self.edge else { return };
        let result = edge.handle(frame, self.now);
        while let Some(event) = edge.poll_event() {
            if let EdgeEvent::Change(change) = event {
                self.position = change.position(edge.stream());
                self.changes.push(change.seq());
            }
        }
        if result.is_err() {
            self.edge = None;
        }
    }

    fn to_bridge(&mut self, frame: &str) {
        let Some(bridge) = &mut self.bridge else { return };
        let result = bridge.handle(&mut self.state, frame, self.now);
        while let Some(event) = bridge.poll_event() {
            match event {
                BridgeEvent::Report { id, .. } => self.reports.push(id),
                BridgeEvent::Unlisted(objects) => {
                    for object in objects {
                        self.state.remove(&object.key, &object.uid);
                    }
                }
                _ => {}
            }
        }
        if result.is_err() {
            self.bridge = None;
        }
    }

    /// Exchanges frames between the two, as long as both accept them.
    fn pump(&mut self) {
        for _ in 0..32 {
            let up = self.edge.as_mut().and_then(|edge| edge.poll_transmit(self.now));
            let down = self.bridge.as_mut().and_then(|bridge| bridge.poll_transmit(&self.state, self.now));
            if up.is_none() && down.is_none() {
                return;
            }
            up.into_iter().for_each(|frame| self.to_bridge(&frame));
            down.into_iter().for_each(|frame| self.to_edge(&frame));
        }
    }
}
