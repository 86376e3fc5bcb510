//! Node, bridge and the line between them, with everything that can go wrong on it.

use crate::api::{Api, POISON};
use crate::cloud::{Cloud, WINDOW};
use crate::edge::Edge;
use crate::rng::Rng;
use edge_protocol::SessionError;
use edge_protocol::bridge::BridgeSession;
use edge_protocol::frame::{MAX_FRAME, PART};
use edge_protocol::version::RefuseReason;
use std::collections::VecDeque;
use std::time::Duration;

/// The slowest thing a live side waits for is two heartbeats.
const HEAL: Duration = Duration::from_secs(31);

pub(crate) struct World {
    rng: Rng,
    now: Duration,
    api: Api,
    cloud: Cloud,
    edge: Edge,
    down: VecDeque<String>,
    up: VecDeque<String>,
    /// Frames vanish, nobody is told.
    silent: bool,
    /// Sessions of connections the node has given up, with what still comes in on them.
    ghosts: Vec<(BridgeSession, VecDeque<String>)>,
    connections: u64,
    restarts: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut api = Api::default();
        let cloud = Cloud::start(0, &mut api);
        Self {
            rng: Rng::new(seed),
            now: Duration::ZERO,
            api,
            cloud,
            edge: Edge::default(),
            down: VecDeque::new(),
            up: VecDeque::new(),
            silent: false,
            ghosts: Vec::new(),
            connections: 0,
            restarts: 0,
        }
    }

    /// A world in sync with some objects.
    pub(crate) fn calm(seed: u64) -> Self {
        let mut world = Self::new(seed);
        for _ in 0..20 {
            world.api.change(&mut world.rng);
        }
        world.settle();
        world
    }

    /// Hundreds of objects, some of which change or go while they are being listed.
    pub(crate) fn crowd(&mut self) {
        self.api.crowd(&mut self.rng);
        self.restart_cloud();
        for _ in 0..2_500 {
            self.step_gently();
        }
        self.api.delete_all();
        self.restart_cloud();
    }

    fn step_gently(&mut self) {
        self.connect_if_down();
        if self.rng.once_in(20) {
            let keys = self.api.keys();
            if !keys.is_empty() && self.rng.once_in(2) {
                let key = keys[self.rng.below(keys.len())].clone();
                self.api.delete(&key);
            } else {
                self.api.change(&mut self.rng);
            }
        }
        self.round();
    }

    /// Some of everything, for the exhaustive test.
    pub(crate) fn script(&mut self) {
        for _ in 0..12 {
            self.api.change(&mut self.rng);
            self.edge.report(&mut self.rng);
        }
        if let Some(key) = self.api.keys().first() {
            self.api.delete(key);
            self.api.create(key.clone(), &mut self.rng);
        }
        self.restart_cloud();
    }

    /// One random thing happens.
    pub(crate) fn step(&mut self) {
        self.advance(Duration::from_millis(20));
        match self.rng.below(100) {
            0..8 => self.api.change(&mut self.rng),
            // A first list may take its time: nodes connect while it is read.
            8..20 if self.cloud.is_listing() && !self.rng.once_in(5) => {}
            8..20 => drop(self.cloud.follow(&mut self.api)),
            20..26 => self.edge.report(&mut self.rng),
            26..48 => self.send_down(),
            48..60 => self.send_up(),
            60..72 => self.receive_down(),
            72..82 => self.receive_up(),
            82..88 => self.commit(false),
            88..90 => self.answer_reports(),
            90..94 => self.connect_if_down(),
            94 => self.cut(),
            95 => self.commit(true),
            96 => self.ghost(),
            _ if self.rng.once_in(3) => self.rare(),
            _ => {}
        }
    }

    fn rare(&mut self) {
        match self.rng.below(5) {
            0 => self.edge.lose_connection(), // the node's daemon dies; the bridge does not notice
            1 => self.restart_cloud(),
            2 => self.silent = true,
            3 => self.advance(HEAL),
            _ => {
                // The next full list is empty.
                self.api.delete_all();
            }
        }
    }

    /// Heals everything, lets it run until nothing moves, and compares.
    pub(crate) fn settle(&mut self) {
        if self.silent {
            // What has vanished does not come back: such a connection only ends.
            self.advance(HEAL);
            assert!(self.edge.session.is_none() && self.cloud.session.is_none(), "a dead peer was not found");
        }
        let mut waited = 0;
        for round in 0.. {
            assert!(round < 100_000, "the two never come to rest");
            self.connect_if_down();
            if self.round() > 0 {
                continue;
            }
            // A side may still believe in a connection that the other has given up: give it its time.
            waited += 1;
            if waited > 8 {
                break;
            }
            self.advance(HEAL / 4);
        }
        self.compare();
    }

    /// Runs to rest, but the connection is cut (or the node dies after a commit) once, after so many frames.
    /// Returns how many frames there were.
    pub(crate) fn settle_with_trouble_at(&mut self, place: usize, crash: bool) -> usize {
        let mut frames = 0;
        let mut done = false;
        loop {
            self.connect_if_down();
            let moved = self.round();
            frames += moved;
            if moved == 0 {
                return frames;
            }
            if frames >= place && !done {
                done = true;
                if crash { self.commit(true) } else { self.cut() }
            }
        }
    }

    /// Moves at most one thing each way; returns how much moved.
    fn round(&mut self) -> usize {
        let mut moved = usize::from(self.cloud.follow(&mut self.api));
        self.send_down();
        self.send_up();
        moved += self.down.len() + self.up.len();
        self.receive_down();
        self.receive_up();
        moved += self.edge.inbox.len();
        self.edge.commit(self.edge.inbox.len(), false, &self.api);
        self.answer_reports();
        moved
    }

    fn compare(&self) {
        let held = self.edge.store.objects.iter().map(|(k, s)| (k.clone(), s.uid.clone(), s.version));
        let wanted = self.api.objects.iter().filter(|(key, o)| o.used && key.name != POISON);
        let wanted = wanted.map(|(k, o)| (k.clone(), o.uid.clone(), o.version));
        assert_eq!(held.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "node and API disagree at rest");
        assert!(self.edge.store.outbox.is_empty(), "reports are left over");
        for (uid, version) in &self.edge.store.reported {
            assert_eq!(self.api.statuses.get(uid), Some(version), "the newest status of {uid} is not in the API");
        }
        let position = self.edge.store.position.as_ref().expect("a position at rest");
        assert_eq!((position.stream.as_str(), position.seq), (self.cloud.state.stream(), self.cloud.state.seq()));
    }

    fn connect_if_down(&mut self) {
        if self.edge.session.is_some() {
            return;
        }
        self.connections += 1;
        self.silent = false;
        self.down.clear();
        let late = std::mem::take(&mut self.up);
        self.edge.connect(self.now);
        if let Some(old) = self.cloud.connect(self.connections, self.now) {
            self.ghosts.push((old, late));
        }
    }

    fn cut(&mut self) {
        self.edge.lose_connection();
        self.cloud.session = None;
        self.down.clear();
        self.up.clear();
    }

    fn restart_cloud(&mut self) {
        self.cut();
        self.ghosts.clear();
        self.restarts += 1;
        self.cloud = Cloud::start(self.restarts, &mut self.api);
    }

    /// What comes in on an old connection changes nothing any more.
    fn ghost(&mut self) {
        let Some((mut session, frames)) = self.ghosts.pop() else { return };
        for frame in frames {
            let result = session.handle(&mut self.cloud.state, &frame, self.now);
            let superseded = matches!(result, Err(SessionError::Refused { reason: RefuseReason::Superseded, .. }));
            assert!(superseded, "a late frame was taken: {result:?}");
            assert_eq!(session.poll_event(), None, "a late frame had an effect");
        }
    }

    fn send_down(&mut self) {
        let Some(session) = &mut self.cloud.session else { return };
        let Some(frame) = session.poll_transmit(&self.cloud.state, self.now) else { return };
        assert!(frame.len() <= MAX_FRAME && frame.len() <= 3 * PART, "a frame of {} bytes", frame.len());
        assert!(session.in_flight() <= WINDOW + 400_000, "{} bytes in flight", session.in_flight());
        if !self.silent {
            self.down.push_back(frame);
        }
    }

    fn send_up(&mut self) {
        let Some(session) = &mut self.edge.session else { return };
        let Some(frame) = session.poll_transmit(self.now) else { return };
        assert!(frame.len() <= MAX_FRAME, "a frame of {} bytes", frame.len());
        if !self.silent {
            self.up.push_back(frame);
        }
    }

    fn receive_down(&mut self) {
        let Some(session) = &mut self.edge.session else { return };
        let Some(frame) = self.down.pop_front() else { return };
        if let Err(error) = session.handle(&frame, self.now) {
            panic!("the node refuses {frame}: {error}");
        }
        self.edge.drain();
        assert!(self.edge.inbox.len() < 1_000, "the window bounds what waits for the store");
    }

    fn receive_up(&mut self) {
        let Some(session) = &mut self.cloud.session else { return };
        let Some(frame) = self.up.pop_front() else { return };
        if let Err(error) = session.handle(&mut self.cloud.state, &frame, self.now) {
            panic!("the bridge refuses {frame}: {error}");
        }
        for seq in self.cloud.drain(&mut self.api) {
            assert!(self.edge.committed.contains(&seq), "change {seq} was acknowledged before its commit");
        }
    }

    fn commit(&mut self, crash: bool) {
        if self.edge.session.is_none() {
            return;
        }
        let count = self.rng.below(self.edge.inbox.len() + 1);
        self.edge.commit(count, crash, &self.api);
        if crash {
            self.edge.lose_connection();
        }
    }

    fn answer_reports(&mut self) {
        let Some(session) = &mut self.cloud.session else { return };
        self.cloud.written.drain(..).for_each(|id| session.reported(id));
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        if let Some(session) = &mut self.edge.session
            && session.next_timeout() <= self.now
            && session.on_timeout(self.now).is_err()
        {
            self.edge.lose_connection();
        }
        if let Some(session) = &mut self.cloud.session
            && session.next_timeout() <= self.now
            && session.on_timeout(self.now).is_err()
        {
            self.cloud.session = None;
            // Its socket is closed: the node sees that, if anything still gets through.
            if !self.silent {
                self.cut();
            }
        }
    }
}
